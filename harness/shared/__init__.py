"""The vocabulary of both halves: frozen dataclasses and the JSON lines they travel in.

Tasks and requests go down to the worker, events come up from it, and results continue to the journal, the screen and
`run --json`. Everything is plain data; a missing value is None. task.py defines what to compute and hashes its rules,
taskfile.py reads it. run_request.py defines a request to the worker and its environment, results.py the outcome.
codes.py and findings.py hold the closed values that programs decide by, with their words. errors.py defines the errors
shown to the user, and lines.py reads and writes all of these. Standard library only.
"""
