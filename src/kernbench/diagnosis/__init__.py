"""What limits a kernel, derived from ncu's counters: pure functions, no process."""
