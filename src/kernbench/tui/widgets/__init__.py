"""The lines and lists that panes and pages are made of."""
