"""The iteration log: what a task keeps about its runs, and which source is best."""
