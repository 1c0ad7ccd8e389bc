"""The vocabulary of both halves: frozen dataclasses and the JSON lines they travel in.

Tasks and requests go down to the worker, events come up from it, results go on to the journal, the screen and
`run --json`. Everything is plain data, and absent is None. task.py says what is to be computed, run.py what is asked of
the worker and where it runs, results.py what came of it, codes.py the closed values
to decide by, reasons.py and findings.py their words, errors.py what a person is told when something is amiss, and
lines.py writes and reads them all. Standard library only.
"""
