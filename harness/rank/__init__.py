"""Records what a command's Python processes do on their device, from inside these processes."""
