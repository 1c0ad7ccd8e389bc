"""Compiling the kernels of later cases while the first is answered."""

SETTINGS = "TRITON_"
"""What the environment variables begin with that decide how Triton compiles."""
