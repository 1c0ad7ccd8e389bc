"""The words for every Reason: why a case was skipped, has no baseline time, or lost its worker.

Both halves make rows, so both take their sentences from here. Programs look at the code.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.shared.codes import Reason

NOT_RUN = "not run: "
WORDS: dict[Reason, str] = {
    "needs_gpu": "needs a GPU: here small cases are checked on the CPU, and nothing is timed",
    "no_inline_asm": "interpreter has no inline asm",
    "no_libdevice": "interpreter has no libdevice",
    "too_large": "needs at least {needed_gib:.3g} GiB, {free_gib:.3g} GiB free",
    "out_of_memory": "needs more memory than there is",
    "after_crash": NOT_RUN + "crashed on {blame}",
    "after_timeout": NOT_RUN + "timeout on {blame}",
    "baseline_compiling": "baseline: being compiled",
    "baseline_fails": "baseline: fails ({fault})",
    "baseline_fails_again": "baseline: fails when called again",
    "baseline_shares_operator": "baseline: {file} and the solution share an operator name",
    "no_best_yet": "baseline: there is no best source yet",
    "worker_crashed": "the worker {outcome} while {doing}",
    "worker_timeout": "{outcome} while {doing}; stopped",
}
SHORT: dict[Reason, str] = {"needs_gpu": "needs a GPU", "after_crash": "not run", "after_timeout": "not run"}
"""For a narrow table, where the screen says the rest once for all such rows."""
AFTER_ANOTHER: frozenset[Reason] = frozenset({"after_crash", "after_timeout"})
"""Reasons of cases that never had their turn because another one took the worker with it."""


class Explanation(NamedTuple):
    """The two fields of a CaseResult that say why."""

    reason: Reason
    detail: str


def explain(reason: Reason, /, **values: object) -> Explanation:
    """The reason with its sentence; `values` fill the gaps of its words."""
    return Explanation(reason, WORDS[reason].format(**values))
