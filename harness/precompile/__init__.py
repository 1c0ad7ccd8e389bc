"""Compiles the kernels of later cases while the worker runs the first."""

SETTINGS = "TRITON_"
"""Prefix of the environment variables that control how Triton compiles."""
