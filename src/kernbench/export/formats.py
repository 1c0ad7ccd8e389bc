"""The export formats, by name and description. `_maker` in this package maps them to their code.

Imports nothing heavy: the command line and the screen list the formats without loading their code.
"""

from __future__ import annotations

from harness.shared.errors import UserError

FORMATS = {
    "md": "Markdown",
    "csv": "every row of every iteration",
    "json": "the same for programs",
    "html": "one page with charts",
    "pr": "a folder for a pull request",
}
SOLUTIONS = {
    "kernelbench": "the solution for KernelBench",
    "solution-json": "the solution for SOL-ExecBench or flashinfer-bench",
    "submission": "the solution for GPU MODE",
    "plain-file": "the solution of a task made of a plain file",
    "robust-kbench": "the solution for robust-kbench: forward.cu, or Python if it has none",
    "kda": "the solution for KDA-Pilot: the files of its folder solution",
}
"""Of imported tasks: the solution in its suite's own form."""


class ExportError(UserError):
    """The log cannot be exported; one sentence."""
