"""How code of ours gets into the Python processes of a program that knows nothing of kernbench."""
