"""What the keys do outside the panes."""
