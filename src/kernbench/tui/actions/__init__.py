"""What keys do, beyond the panes."""
