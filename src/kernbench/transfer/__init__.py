"""Does it transfer? A model's step as it is and with tasks' kernels in it."""
