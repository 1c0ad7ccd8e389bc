"""What a program does at its sites: recorded inside the program, and made again in the worker.

The recorder (`injected`, `recorder`, `functions`, `described`) runs in the program's processes, under
another package name: of the rest of `harness` it imports only `injection`. `captured` is for the worker.
"""
