"""The worker, a child process that runs the kernel, and what comes back from it."""
