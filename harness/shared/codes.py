"""The closed values that programs decide by, and the words for each reason; findings.py has those for findings.

A code never changes once a log contains it; its words may. Both halves make rows, so both get their sentences here.
A test checks that every code has words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Reason = Literal[
    "needs_gpu",
    "no_inline_asm",
    "no_libdevice",
    "interpreted_kernel",
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
"""Why a case was skipped, has no baseline time, or lost its worker. A wrong answer or an exception has no reason: the
status says what happened, and the sentence comes from the values or the exception."""

FindingCode = Literal[
    "baseline_inexact",
    "best_not_loaded",
    "busy_machine",
    "changed_before",
    "clock_replaced",
    "degenerate",
    "device_wall_mismatch",
    "event_pairs",
    "fewer_checks",
    "forged_records",
    "forked",
    "impossible_time",
    "inputs_kept",
    "interpreted_bf16",
    "left_set",
    "left_threads",
    "less_work_timed",
    "library_kernels_only",
    "no_kernel_ran",
    "nondeterministic",
    "not_compared",
    "not_recovered",
    "one_sided_graph",
    "opponent_changed",
    "opponent_slowed",
    "other_baseline_kernels",
    "other_stream",
    "other_work_timed",
    "out_of_bounds_write",
    "output_kept",
    "prints",
    "process_changed",
    "result_kept",
    "returned_too_soon",
    "shared_gpu",
    "shared_operator",
    "stale_result",
    "task_files_changed",
    "thread_limit_changed",
    "throttled",
    "too_many_threads",
    "uneven_calls",
    "unsteady",
]
"""Which sanity gate tripped."""

DISTURBANCES: frozenset[FindingCode] = frozenset({"busy_machine", "shared_gpu"})
"""Findings that explain an unclear verdict: other programs used the CPUs or the GPU."""

UnusableCode = Literal["no_torch", "no_device", "broken"]
"""Why a worker is unusable."""

L2State = Literal["cold", "warm", "dirty", ""]
"""State of the GPU's L2 before each timed call; empty if no GPU was timed."""

CUDA_ERROR_EXIT = 70
"""Exit code of a worker after a CUDA error: the context is lost, so the process must exit."""

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
    "needs_gpu": "needs a GPU: without one only small cases are checked, and nothing is timed",
    "no_inline_asm": "interpreter lacks inline asm",
    "no_libdevice": "interpreter lacks libdevice",
    "interpreted_kernel": "not timed: without a GPU, Triton's interpreter runs it",
    "too_large": "needs at least {needed} GiB, {free} GiB free",
    "out_of_memory": "does not fit in memory",
    "after_crash": NOT_RUN + "the worker crashed on {blame}",
    "after_timeout": NOT_RUN + "the worker timed out on {blame}",
    "baseline_compiling": "baseline: compiling",
    "baseline_fails": "baseline: failed ({fault})",
    "baseline_fails_again": "baseline: failed on a repeated call",
    "baseline_shares_operator": "baseline: {file} and the solution share an operator name",
    "no_best_yet": "baseline: no best source yet",
    "worker_crashed": "the worker {outcome} while {doing}",
    "worker_timeout": "{outcome} while {doing}",
}
SHORT: dict[Reason, str] = {"needs_gpu": "needs a GPU", "after_crash": "not run", "after_timeout": "not run"}
"""For a narrow table; the screen shows the full reason once for all these rows."""
NO_GPU: frozenset[Reason] = frozenset({"needs_gpu", "no_inline_asm", "no_libdevice"})
"""Reasons that a machine without a GPU gives."""
AFTER_ANOTHER: frozenset[Reason] = frozenset({"after_crash", "after_timeout"})
"""Reasons of cases that never ran because an earlier case took down the worker."""
OURS_OF = {
    "eager": "ours",
    "eager+graph": "ours+graph",
    "compile": "compile+ours",
    "compile+graph": "compile+ours+graph",
}
"""Each way to run a model's step as it is, with its counterpart that has the entries in it."""
SIDES = (*OURS_OF, *OURS_OF.values())
AS_IT_IS = tuple(OURS_OF)
PLAIN_PAIR = ("eager", "ours")
"""What a CPU runs, and what shows a task by itself."""
FEWEST_ROUNDS = 18
"""Rounds for an interval: six blocks of three."""
FEWEST_PAIRS = 6
"""Pairs of runs of a command for an interval."""


class Explanation(NamedTuple):
    """The `reason` and `detail` of a CaseResult."""

    reason: Reason
    detail: str


def explain(reason: Reason, /, **values: object) -> Explanation:
    """The reason with its sentence; `values` fill the placeholders."""
    return Explanation(reason, WORDS[reason].format(**values))
