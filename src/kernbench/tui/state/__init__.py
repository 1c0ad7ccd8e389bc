"""What the screen shows and whom it asks."""
