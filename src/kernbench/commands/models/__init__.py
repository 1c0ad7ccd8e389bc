"""The commands about models: what a kernel does to a whole step."""
