"""Every finding: its code, its name, advice, and whether it disqualifies the source.

The checks are in harness/check, harness/timing, harness/device, harness/state and harness/run; each creates its finding
with `make`. The workbench finds `unsteady` and `task_files_changed`. The definitions are here because all of those
folders need them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.shared.codes import DISTURBANCES, FindingCode
from harness.shared.results import CaseResult, Finding


class Definition(NamedTuple):
    name: str
    help: str
    """What happened and what to look at; `make` fills the placeholders."""
    disqualifying: bool = False
    """A source with a disqualifying finding never becomes best."""


OUT_OF_BOUNDS = "the call wrote {elements} {side} of {tensor}"
"""The out-of-bounds sentence without advice, as used in the row's verdict."""

DEFINITIONS: dict[FindingCode, Definition] = {
    "baseline_inexact": Definition(
        "inexact baseline",
        "the baseline itself would be wrong here ({problem}); it was timed all the same, but the speedup compares"
        " unlike results",
    ),
    "best_not_loaded": Definition("best failed to load", "the best source so far failed to load: {message}"),
    "busy_machine": Definition(
        "busy machine",
        "other programs kept {busy} of {cpus} CPUs busy while this was timed, which makes times unclear;"
        " time it again when they are done",
    ),
    "changed_before": Definition(
        "in a changed process",
        "an earlier source changed {names} in this worker, so this run does not count; run it again in a new one",
        disqualifying=True,
    ),
    "clock_replaced": Definition(
        "clock replaced",
        "the source replaced {names}; do not patch the clocks that kernbench times with",
        disqualifying=True,
    ),
    "degenerate": Definition(
        "degenerate problem",
        "{wrong} pass as {output} of case {case}: this problem cannot tell a right answer from them;"
        " tighten [tolerance] or change the inputs",
    ),
    "device_wall_mismatch": Definition(
        "device and wall time disagree",
        "the {side} took {us} us on the device but {wall_us} us by the wall clock, and its launches do not explain it;"
        " do the same work whether or not a profiler is active",
        disqualifying=True,
    ),
    "event_pairs": Definition(
        "event pairs", "{problem}; timed with CUDA event pairs instead, which add a few microseconds per call"
    ),
    "fewer_checks": Definition(
        "fewer checks",
        "ran out of memory ({detail}) while checking other input values; those already checked were correct",
    ),
    "forged_records": Definition(
        "forged records",
        "{problem}: the source launched the kernels that separate timed calls, so records cannot be assigned to calls;"
        " launch only your own kernels",
        disqualifying=True,
    ),
    "forked": Definition(
        "forked",
        "the source forked, and the child returned into kernbench and was stopped; fork only to run another program",
    ),
    "impossible_time": Definition(
        "impossible time",
        "{us} us, but the memory bus needs at least {floor_us} us for these bytes: some work was not done",
        disqualifying=True,
    ),
    "inputs_kept": Definition(
        "inputs kept in the L2",
        "in {slow} of the {blocks} blocks that the baseline or the best began, the source's first call on a set of"
        " inputs took longer than its later calls (median {longer}), which found them in the L2. Load them without"
        " evict_last, or time with `--warm`",
        disqualifying=True,
    ),
    "interpreted_bf16": Definition(
        "interpreted bfloat16",
        "Triton's interpreter cuts bfloat16 off where a GPU rounds: here it is right only with one unit in the last"
        " place more than the tolerance; check it on a GPU",
    ),
    "left_set": Definition(
        "left between calls",
        "after the call had returned there was {what}, which disturbs the other side; undo it before returning",
        disqualifying=True,
    ),
    "left_threads": Definition(
        "left threads running",
        "{threads} still running after the last call; join all threads before returning",
    ),
    "less_work_timed": Definition(
        "less work timed",
        "{less} of {calls} timed calls ran less of `{kernel}` than the call whose result was checked;"
        " do the same work in every call",
        disqualifying=True,
    ),
    "library_kernels_only": Definition(
        "library kernels",
        "{share} of the time is spent in library kernels ({kernel}); did the solution fall back? If the task is about"
        " calling a library, set `libraries = true` in task.toml",
    ),
    "no_kernel_ran": Definition(
        "no kernel ran",
        "{empty} of {calls} timed calls launched nothing on the GPU; is a result cached from an earlier call?",
        disqualifying=True,
    ),
    "nondeterministic": Definition(
        "nondeterministic",
        "two calls with the same inputs returned different bits; look for atomics or a race between threads",
    ),
    "not_compared": Definition("not compared", "{side} is left out of this row: {why}"),
    "not_recovered": Definition(
        "throttled",
        "the GPU stayed throttled ({problem}), so calls were timed with CUDA event pairs instead; let it cool down",
    ),
    "one_sided_graph": Definition(
        "graph on one side", "only the {side} replays a CUDA graph, so the wall times are not comparable"
    ),
    "opponent_changed": Definition(
        "opponent changed",
        "the source changed {names}, which it is compared with, so its speedups do not count;"
        " leave the reference and the baseline alone",
        disqualifying=True,
    ),
    "opponent_slowed": Definition(
        "opponent slowed down",
        "the {side} took {now_us} us next to the source and {alone_us} us before it was loaded;"
        " leave nothing running between calls",
        disqualifying=True,
    ),
    "other_baseline_kernels": Definition(
        "other baseline kernels",
        "the compiled baseline runs {now}, in an earlier worker {before}: its time and the speedup over it do not"
        " compare with earlier ones",
    ),
    "other_stream": Definition(
        "other stream",
        "in {late} of {calls} calls work on another stream was still running when the next call began;"
        " make the caller's stream wait for it, or launch on it",
        disqualifying=True,
    ),
    "other_work_timed": Definition(
        "other work timed",
        "{other} of {calls} timed calls ran `{kernel}` more or less than the call whose result was checked;"
        " does the work depend on values, or is something tuned again?",
    ),
    "out_of_bounds_write": Definition(
        "out-of-bounds write", OUT_OF_BOUNDS + "; check the bounds of the last block or row", disqualifying=True
    ),
    "output_kept": Definition(
        "output kept between calls",
        "two calls returned the same memory, so no result outlasts the next call; return a new tensor from each call",
        disqualifying=True,
    ),
    "prints": Definition(
        "prints while timed",
        "each call writes {amount} to stdout or stderr, and printing is timed too; remove it",
    ),
    "process_changed": Definition(
        "changed process",
        "the source changed {names}, so this run does not count; call your own function instead of replacing one that"
        " others use. The next save gets a new worker",
        disqualifying=True,
    ),
    "result_kept": Definition(
        "result kept between calls",
        "the second call on equal inputs did less work than the first;"
        " is a result, or data derived from the inputs, cached?",
        disqualifying=True,
    ),
    "returned_too_soon": Definition(
        "left threads running",
        "a thread that the call started was still running when the call returned; join it before returning",
        disqualifying=True,
    ),
    "shared_gpu": Definition("shared GPU", "{processes} also used this GPU during timing; times may be off"),
    "shared_operator": Definition(
        "shared operator name",
        "the source refers to {operators} directly, so its operators collide with those of other sources and "
        "it is not compared with best; call the function that custom_op returns instead",
    ),
    "stale_result": Definition(
        "stale result",
        "it returned the correct result for earlier values of its inputs; do not cache results by tensor address",
        disqualifying=True,
    ),
    "task_files_changed": Definition(
        "task files changed",
        "the source changed {files} while it ran, so this run does not count;"
        " restore what it changed, for example with `git checkout`",
        disqualifying=True,
    ),
    "thread_limit_changed": Definition(
        "too many threads",
        "it called torch.set_num_threads; to use more threads than {allowed}, set `threads` in task.toml",
        disqualifying=True,
    ),
    "throttled": Definition("throttled", "{dropped} dropped ({cause}); let the GPU cool down"),
    "too_many_threads": Definition(
        "too many threads",
        "it kept {busy} CPUs busy, but task.toml allows {allowed}; to use more, set `threads` there",
        disqualifying=True,
    ),
    "uneven_calls": Definition(
        "uneven calls",
        "identical calls did different amounts of work ({counts}); is something cached or batched?",
        disqualifying=True,
    ),
    "unsteady": Definition(
        "unsteady",
        "it was right when tried again in a new worker with the same inputs; look for a race or uninitialized memory",
        disqualifying=True,
    ),
}


def make(code: FindingCode, /, **values: object) -> Finding:
    """The finding with its words; `values` fill the placeholders in its help."""
    known = DEFINITIONS[code]
    return Finding(known.name, known.help.format(**values), known.disqualifying, code)


def disturbance(rows: Iterable[CaseResult]) -> Finding | None:
    """Why rows are unclear, if other programs are the reason."""
    found = (finding for row in rows if row.is_unclear for finding in row.findings)
    return next((finding for finding in found if finding.code in DISTURBANCES), None)
