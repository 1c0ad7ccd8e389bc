"""Nsight Compute at a key: the standby and its command, csv to Profile, Profile to words, what is kept of it."""
