"""One run: checks, times and reports every case."""
