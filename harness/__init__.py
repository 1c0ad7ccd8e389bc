"""The measuring half of kernbench: runs in the worker process, together with the kernel."""
