"""Programs of the user's, with code of ours in their Python processes."""
