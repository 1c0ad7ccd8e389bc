"""Taking a time: clocks, blocks of calls, samples."""
