"""From a save to a finished run: the session and its parts."""
