"""This machine: its GPUs, terminal and clipboard."""
