"""One step of a model with tasks' entries patched in: sites, sides, turns, shares and numerics."""
