"""Pages and dialogs over the main screen."""
