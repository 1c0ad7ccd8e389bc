"""Whether a call is right and its time honest."""
