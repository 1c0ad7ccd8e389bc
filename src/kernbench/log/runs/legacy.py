"""Lines of runs.jsonl from before codes: the only place that reads a sentence back as a code.

The tables hold the words as earlier versions wrote them, whatever the words are today. A line that has the key keeps
its value; a sentence that no pattern knows has no code.
"""

from __future__ import annotations

import re
from typing import Any, cast, get_args

from harness.shared.codes import FindingCode, L2State, Reason
from harness.shared.lines import decode
from harness.shared.results import CaseResult, Status
from harness.shared.run_request import Environment

REASONS: tuple[tuple[Status, str, Reason], ...] = (
    ("skipped", r"needs a GPU: ", "needs_gpu"),
    ("skipped", r"interpreter has no inline asm$", "no_inline_asm"),
    ("skipped", r"interpreter has no libdevice$", "no_libdevice"),
    ("skipped", r"needs .+ GiB free(?: in all)?$", "too_large"),
    ("skipped", r"needs more memory than there is$", "out_of_memory"),
    ("skipped", r"not run: crashed on ", "after_crash"),
    ("skipped", r"not run: timeout on ", "after_timeout"),
    ("ok", r"baseline: being compiled$", "baseline_compiling"),
    ("ok", r"baseline: fails \(", "baseline_fails"),
    ("ok", r"baseline: fails when called again$", "baseline_fails_again"),
    ("ok", r"baseline: .+ and the solution share an operator name$", "baseline_shares_operator"),
    ("ok", r"baseline: there is no best source yet$", "no_best_yet"),
    ("crashed", r"the worker .* while ", "worker_crashed"),
    ("timeout", r".* while .*; stopped$", "worker_timeout"),
)
"""Status, how the sentence begins, and the code: user code may raise any words, so the status has to agree."""

FINDINGS: tuple[tuple[str, str, FindingCode], ...] = (
    ("best cannot be loaded", "", "best_not_loaded"),
    ("clock replaced", "", "clock_replaced"),
    ("events", "", "event_pairs"),
    ("fewer checks", "", "fewer_checks"),
    ("impossible", "", "impossible_time"),
    ("left threads running", "a thread of the call", "returned_too_soon"),
    ("left threads running", "", "left_threads"),
    ("library kernels only", "", "library_kernels_only"),
    ("no kernel ran", "", "no_kernel_ran"),
    ("nondeterministic", "", "nondeterministic"),
    ("throttled", "the GPU did not recover", "not_recovered"),
    ("throttled", "", "throttled"),
    ("graph on one side", "", "one_sided_graph"),
    ("other stream", "", "other_stream"),
    ("out-of-bounds write", "", "out_of_bounds_write"),
    ("output kept between calls", "", "output_kept"),
    ("result kept between calls", "", "result_kept"),
    ("shared GPU", "", "shared_gpu"),
    ("shared operator name", "", "shared_operator"),
    ("result of an earlier call", "", "stale_result"),
    ("more threads than the task", "it called torch.set_num_threads", "thread_limit_changed"),
    ("more threads than the task", "", "too_many_threads"),
    ("uneven calls", "", "uneven_calls"),
)
"""Name, how the help begins, and the code; the first that fits counts."""
NO_FINDING = "less accurate than the baseline"
"""What earlier versions made a finding of: the errors of both sides, which are figures of the row."""


def decode_row(data: dict[str, Any]) -> CaseResult:
    """A `case` line of any version."""
    return decode(CaseResult, with_codes(data))


def decode_environment(data: dict[str, Any]) -> Environment:
    """The environment of a run of any version."""
    return decode(Environment, data if "l2" in data else {**data, "l2": l2_of(str(data.get("condition", "")))})


def with_codes(data: dict[str, Any]) -> dict[str, Any]:
    """A row or a summary as a version with codes would have logged it."""
    more: dict[str, Any] = {}
    if "reason" not in data and data.get("detail"):
        more["reason"] = reason_of(str(data.get("status")), data["detail"])
    found = data.get("findings")
    if found and any("code" not in item or item["name"] == NO_FINDING for item in found):
        kept = [item for item in found if item["name"] != NO_FINDING]
        more["findings"] = [{"code": finding_code(item["name"], item["help"]), **item} for item in kept]
    return {**data, **more} if more else data


def reason_of(status: str, detail: str) -> Reason | None:
    fitting = (code for wanted, words, code in REASONS if wanted == status and re.match(words, detail))
    return next(fitting, None)


def finding_code(name: str, text: str) -> FindingCode | None:
    fitting = (code for known, words, code in FINDINGS if known == name and text.startswith(words))
    return next(fitting, None)


def l2_of(condition: str) -> L2State:
    """The L2's state as a condition spells it, such as `cold L2`; ITERATIONS.md has nothing but these words."""
    word = condition.partition(" ")[0]
    return cast(L2State, word) if word in get_args(L2State) else ""
