"""The closed values that programs decide by. Sentences explain them: reasons.py and findings.py hold the words.

A code never changes once a log holds it; its words may. Every code has words there, and a test checks it.
"""

from __future__ import annotations

from typing import Literal

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
