"""Loading a source: modules, operators, the failures it raises."""
