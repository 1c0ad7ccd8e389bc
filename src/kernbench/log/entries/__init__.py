"""ITERATIONS.md: writing entries, reading them back, listing them."""
