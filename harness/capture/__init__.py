"""What a program does at its sites: recorded inside the program, and made again in the worker.

The recorder (`injected`, `import_hook`, `recorder`, `functions`, `described`) runs in the program's processes, under
another package name: it imports nothing from the rest of `harness`. `captured` is for the worker.
"""
