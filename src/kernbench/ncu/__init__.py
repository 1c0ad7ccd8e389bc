"""Nsight Compute: start it ahead of time, profile with it, store the profiles."""
