"""`kernbench sweep`: variants of a solution, screened with successive halving, the best of them timed in full."""
