"""The worker, a child process that runs the kernel, and its output."""
