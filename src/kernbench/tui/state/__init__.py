"""What the screen shows, and the interfaces it uses."""
