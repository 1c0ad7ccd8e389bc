"""The table of faults: what is done to kernbench, what its user must see, and what must be left afterwards."""
