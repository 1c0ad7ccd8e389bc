"""The vocabulary of both halves: frozen dataclasses and the JSON lines they travel in.

Tasks and requests go down to the worker, events come up from it, results go on to the journal, the screen and
`run --json`. Everything is plain data, and absent is None. task.py says what is to be computed, taskfile.py reads it,
and task_hash.py names its rules; run_request.py says what is asked of the worker and where it runs, results.py what
came of it, codes.py and findings.py hold the closed values that programs decide by, with their words, errors.py what a
person is told when something is wrong, and lines.py writes and reads them all. Standard library only.
"""
