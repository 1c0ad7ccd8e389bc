"""One module per group of commands; each lists its click commands in COMMANDS."""
