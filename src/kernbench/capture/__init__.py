"""`kernbench capture`: runs a program with a recorder in it, and writes tasks from what it did at its sites."""
