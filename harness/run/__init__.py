"""One run: every case checked, timed and reported."""
