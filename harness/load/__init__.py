"""Loading a source: its modules, its operators, and the exceptions it raises."""
