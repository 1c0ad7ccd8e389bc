"""What limits a kernel, from ncu's counters: pure functions, no process."""
