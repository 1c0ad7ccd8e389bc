"""The closed values that programs decide by, and the words for a reason; findings.py has those for a finding.

A code never changes once a log holds it; its words may. Both halves make rows, so both take their sentences from here.
Every code has words, and a test checks it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Reason = Literal[
    "needs_gpu",
    "no_inline_asm",
    "no_libdevice",
    "too_large",
    "out_of_memory",
    "after_crash",
    "after_timeout",
    "baseline_compiling",
    "baseline_fails",
    "baseline_fails_again",
    "baseline_shares_operator",
    "no_best_yet",
    "worker_crashed",
    "worker_timeout",
]
"""Why a case was skipped, has no baseline time, or lost its worker. A wrong answer and an exception need none: their
status says what happened, and their sentence is made of the values or of what was raised."""

FindingCode = Literal[
    "best_not_loaded",
    "clock_replaced",
    "event_pairs",
    "fewer_checks",
    "impossible_time",
    "left_threads",
    "less_accurate",
    "library_kernels_only",
    "no_kernel_ran",
    "nondeterministic",
    "not_recovered",
    "one_sided_graph",
    "other_stream",
    "out_of_bounds_write",
    "output_kept",
    "result_kept",
    "returned_too_soon",
    "shared_gpu",
    "shared_operator",
    "stale_result",
    "thread_limit_changed",
    "throttled",
    "too_many_threads",
    "uneven_calls",
]
"""Which sanity gate tripped."""

UnusableCode = Literal["no_torch", "no_device", "broken"]
"""Why a worker cannot do its work."""

L2State = Literal["cold", "warm", "dirty", ""]
"""What a GPU's L2 held before each timed call; empty where no GPU was timed."""

CUDA_ERROR_EXIT = 70
"""Exit code of a worker after a CUDA error: the context is gone, and the process with it."""

THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
    0x10: "clocks in step with another GPU",
    0x100: "display clocks",
    0x2: "clocks set by hand",
}
"""NVML's reasons for lower clocks, in words, gravest effect first; an idle GPU (0x1) is limited by nothing."""

NOT_RUN = "not run: "
WORDS: dict[Reason, str] = {
    "needs_gpu": "needs a GPU: here small cases are checked on the CPU, and nothing is timed",
    "no_inline_asm": "interpreter has no inline asm",
    "no_libdevice": "interpreter has no libdevice",
    "too_large": "needs at least {needed} GiB, {free} GiB free",
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
