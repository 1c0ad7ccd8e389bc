"""Which Python functions a model's device time belongs to, and which of them are worth a kernel."""
