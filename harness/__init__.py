"""The measuring half of kernbench: runs in the worker process, next to the kernel."""
