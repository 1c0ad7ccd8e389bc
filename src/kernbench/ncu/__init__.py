"""Nsight Compute as a process: started ahead, asked, stored."""
