import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder: a task's click.py would be imported

from kernbench.cli import main

main()
