"""The GPU or CPU that kernels run on: its clocks, caches and activity records."""
