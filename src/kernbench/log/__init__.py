"""The iteration log: what a task remembers of its runs, and which source is best."""
