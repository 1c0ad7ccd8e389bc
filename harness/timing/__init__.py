"""Timing: clocks, blocks of calls, samples."""
