"""Every finding: its code, its name, what to look at, and whether it disqualifies the source.

The gates that trip are in harness/check, harness/timing, harness/device and harness/run; each makes its finding with
`make`. The definitions are here because all of those folders need them.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.shared.codes import FindingCode
from harness.shared.results import Finding


class Definition(NamedTuple):
    name: str
    help: str
    """What was seen, and what to look at; gaps are filled by `make`."""
    disqualifying: bool = False
    """A source with such a finding never becomes best."""


OUT_OF_BOUNDS = "the call wrote {elements} {side} of {tensor}"
"""What a breached border says by itself; the row's verdict uses it without the advice."""

DEFINITIONS: dict[FindingCode, Definition] = {
    "best_not_loaded": Definition("best cannot be loaded", "the best source so far fails to load: {message}"),
    "clock_replaced": Definition(
        "clock replaced",
        "the source put another function in the place of {names}; leave what times are taken with alone",
        disqualifying=True,
    ),
    "event_pairs": Definition("events", "{problem}; event pairs were timed instead, and each adds a few microseconds"),
    "fewer_checks": Definition(
        "fewer checks",
        "memory ran out while other values were tried; those that were tried came out right ({detail})",
    ),
    "impossible_time": Definition(
        "impossible",
        "{us} us for bytes that the bus cannot move in under {floor_us} us: part of the work was not done",
        disqualifying=True,
    ),
    "left_threads": Definition(
        "left threads running",
        "{threads} of the source still ran after its last call; join them before returning",
    ),
    "less_accurate": Definition(
        "less accurate than the baseline",
        "the largest error is over twice the baseline's; check the accumulation dtype and fast-math functions",
    ),
    "library_kernels_only": Definition(
        "library kernels only", "only library kernels ran ({kernel}); did the solution fall back?"
    ),
    "no_kernel_ran": Definition(
        "no kernel ran",
        "{empty} of {calls} timed calls put nothing on the GPU; is a result kept from an earlier call?",
        disqualifying=True,
    ),
    "nondeterministic": Definition(
        "nondeterministic",
        "the same inputs gave other bits the second time; look for atomics or a race between threads",
    ),
    "not_recovered": Definition(
        "throttled", "the GPU did not recover ({problem}), and event pairs were timed; let it cool down"
    ),
    "one_sided_graph": Definition(
        "graph on one side", "only the {side} replays a CUDA graph: the wall times are not comparable"
    ),
    "other_stream": Definition(
        "other stream",
        "kernels ran on another stream than the caller's; make the caller's stream wait, or launch on it",
    ),
    "out_of_bounds_write": Definition(
        "out-of-bounds write", OUT_OF_BOUNDS + "; check the bounds of the last block or row", disqualifying=True
    ),
    "output_kept": Definition(
        "output kept between calls",
        "two calls returned the same memory, so the second wrote over the first's result;"
        " return a new tensor from each",
        disqualifying=True,
    ),
    "result_kept": Definition(
        "result kept between calls",
        "the second call on equal inputs did less work than the first; is a result, or something made of inputs, kept?",
        disqualifying=True,
    ),
    "returned_too_soon": Definition(
        "left threads running",
        "a thread of the call still ran when it returned; join it before returning",
        disqualifying=True,
    ),
    "shared_gpu": Definition("shared GPU", "{processes} computed on this GPU meanwhile; times may be off"),
    "shared_operator": Definition(
        "shared operator name",
        "the source spells {operators} out, so its operators cannot be kept apart from another source's: "
        "no comparison with best; call the function that custom_op returns instead",
    ),
    "stale_result": Definition(
        "result of an earlier call",
        "it returned what was right for the values that its inputs held before; keep no result by a tensor's address",
        disqualifying=True,
    ),
    "thread_limit_changed": Definition(
        "more threads than the task",
        "it called torch.set_num_threads, and task.toml allows {allowed}; set threads there to compare with more",
        disqualifying=True,
    ),
    "throttled": Definition("throttled", "{dropped} blocks were dropped ({cause}); let the GPU cool down"),
    "too_many_threads": Definition(
        "more threads than the task",
        "it kept {busy} processors busy, and task.toml allows {allowed}; set threads there to compare with more",
        disqualifying=True,
    ),
    "uneven_calls": Definition(
        "uneven calls",
        "equal calls did unequal work ({counts}); is something cached or batched up?",
        disqualifying=True,
    ),
}


def make(code: FindingCode, /, **values: object) -> Finding:
    """The finding with its words; `values` fill the gaps of its help."""
    known = DEFINITIONS[code]
    return Finding(known.name, known.help.format(**values), known.disqualifying, code)
