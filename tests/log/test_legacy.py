"""Every code has words, and every sentence that a log may hold leads back to its code."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.shared import codes, findings
from harness.shared.codes import FindingCode, L2State, Reason
from harness.shared.lines import to_dict
from harness.shared.results import CaseResult, Finding
from harness.shared.run_request import Environment
from kernbench.log.runs import legacy
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import Series

OLD_LOG = Path(__file__).with_name("runs_v1.jsonl")
VALUES: dict[str, Any] = {
    "why": "it failed",
    "needed": 5.5, "free": 5.0, "blame": "wan 75600x5120", "fault": "baseline.py:2: ValueError: not here",
    "file": "baseline.py", "outcome": "segfaulted", "doing": "checking", "message": "no module", "names": "time.time",
    "problem": "6 calls left 5 marks", "detail": "needs more memory than there is", "us": 0.5, "floor_us": 0.83,
    "threads": "2 threads", "kernel": "at::native::x", "empty": 1, "calls": 9, "side": "past the end",
    "elements": "1 element", "tensor": "output 0", "processes": "1 other process", "operators": "torch.ops.a.b",
    "allowed": 1, "busy": 2.4, "cpus": 4, "dropped": 3, "cause": "software thermal", "counts": "1 kernel in 2 calls",
    "files": "reference.py", "now": "`fused grid 66`", "before": "`fused grid 132`", "what": "a torch mode",
    "now_us": "9.1", "alone_us": "4.2", "wrong": "zeros", "output": "output 0", "case": "small",
    "amount": "9 bytes",
    "wall_us": 80.0, "less": 9, "other": 4, "late": 7, "share": "97%", "slow": 8, "blocks": 9, "longer": "12%",
}  # fmt: skip
OLD_SENTENCES: list[tuple[str, str, Reason]] = [
    ("skipped", "needs a GPU: here small cases are checked on the CPU, and nothing is timed", "needs_gpu"),
    ("skipped", "needs a GPU: here Triton is interpreted, which is checked but not timed", "needs_gpu"),
    ("skipped", "interpreter has no inline asm", "no_inline_asm"),
    ("skipped", "interpreter has no libdevice", "no_libdevice"),
    ("skipped", "needs at least 5.5 GiB, 5 GiB free", "too_large"),
    ("skipped", "needs 1.50 GiB beyond what was taken already, 5 GiB free in all", "too_large"),
    ("skipped", "needs more memory than there is", "out_of_memory"),
    ("skipped", "not run: crashed on wan 75600x5120", "after_crash"),
    ("skipped", "not run: timeout on b", "after_timeout"),
    ("ok", "baseline: being compiled", "baseline_compiling"),
    ("ok", "baseline: fails (baseline.py:2: ValueError: not here)", "baseline_fails"),
    ("ok", "baseline: fails when called again", "baseline_fails_again"),
    ("ok", "baseline: baseline.py and the solution share an operator name", "baseline_shares_operator"),
    ("ok", "baseline: there is no best source yet", "no_best_yet"),
    ("crashed", "the worker segfaulted while checking", "worker_crashed"),
    ("timeout", "no end after 1 s while checking; stopped", "worker_timeout"),
]
ALWAYS_CODED = {
    "baseline_inexact", "busy_machine", "changed_before", "degenerate", "device_wall_mismatch", "forged_records",
    "forked", "inputs_kept", "interpreted_bf16", "interpreted_kernel", "left_set", "less_work_timed",
    "not_compared", "opponent_changed", "opponent_slowed", "other_baseline_kernels", "other_work_timed", "prints",
    "process_changed", "task_files_changed", "unsteady",
}  # fmt: skip
"""Never written without their code."""
OLD_FINDINGS: list[tuple[str, str, FindingCode]] = [
    ("best cannot be loaded", "the best source so far fails to load: no module", "best_not_loaded"),
    ("clock replaced", "the source put another function in the place of time.time", "clock_replaced"),
    ("events", "6 calls left 5 marks", "event_pairs"),
    ("fewer checks", "memory ran out while other values were tried", "fewer_checks"),
    ("impossible", "0.50 us for bytes that the bus cannot move in under 0.83 us", "impossible_time"),
    ("left threads running", "2 threads of the source still ran after its last call", "left_threads"),
    ("library kernels only", "only library kernels ran (at::native::x)", "library_kernels_only"),
    ("no kernel ran", "1 of 9 timed calls put nothing on the GPU", "no_kernel_ran"),
    ("nondeterministic", "the same inputs gave other bits the second time", "nondeterministic"),
    ("throttled", "the GPU did not recover (6 calls left 5 marks), and event pairs were timed", "not_recovered"),
    ("graph on one side", "only the past the end replays a CUDA graph", "one_sided_graph"),
    ("other stream", "kernels ran on another stream than the caller's", "other_stream"),
    ("out-of-bounds write", "the call wrote 1 element past the end of output 0", "out_of_bounds_write"),
    (
        "output kept between calls",
        "two calls returned the same memory, so the second wrote over the first's result",
        "output_kept",
    ),
    ("result kept between calls", "the second call on equal inputs did less work than the first", "result_kept"),
    ("left threads running", "a thread of the call still ran when it returned", "returned_too_soon"),
    ("shared GPU", "1 other process computed on this GPU meanwhile; times may be off", "shared_gpu"),
    (
        "shared operator name",
        "the source spells torch.ops.a.b out, so its operators cannot be kept apart from another source's",
        "shared_operator",
    ),
    (
        "result of an earlier call",
        "it returned what was right for the values that its inputs held before",
        "stale_result",
    ),
    ("more threads than the task", "it called torch.set_num_threads, and task.toml allows 1", "thread_limit_changed"),
    ("throttled", "3 blocks were dropped (software thermal); let the GPU cool down", "throttled"),
    ("more threads than the task", "it kept 2.4 processors busy, and task.toml allows 1", "too_many_threads"),
    ("uneven calls", "equal calls did unequal work (1 kernels in 2 calls)", "uneven_calls"),
]
"""Names and helps, some cut at a semicolon, as versions without codes wrote them."""
STATUSES = {reason: status for status, _sentence, reason in OLD_SENTENCES} | {"interpreted_kernel": "interpreted"}


def gaps(words: str) -> set[str]:
    return {name for _text, name, _format, _conversion in string.Formatter().parse(words) if name}


def old(row: dict[str, Any]) -> dict[str, Any]:
    """The row as a version without codes wrote it."""
    row = {key: value for key, value in row.items() if key != "reason"}
    row["findings"] = [{key: item[key] for key in ("name", "help", "red")} for item in row["findings"]]
    return row


def test_every_code_has_words_and_all_words_a_code() -> None:
    assert set(codes.WORDS) == set(get_args(Reason))
    assert set(findings.DEFINITIONS) == set(get_args(FindingCode))
    assert all(codes.WORDS.values())
    assert all(item.name and item.help for item in findings.DEFINITIONS.values())
    words = [*codes.WORDS.values(), *(item.help for item in findings.DEFINITIONS.values())]
    assert len(set(words)) == len(words)
    assert set().union(*map(gaps, words)) == set(VALUES)


def test_short_words_begin_the_long_ones_and_what_was_not_reached_says_so() -> None:
    assert all(codes.WORDS[reason].startswith(f"{short}: ") for reason, short in codes.SHORT.items())
    not_run = {reason for reason, words in codes.WORDS.items() if words.startswith(codes.NOT_RUN)}
    assert not_run == codes.AFTER_ANOTHER


def test_the_legacy_tables_know_every_code() -> None:
    assert {reason for _status, _words, reason in legacy.REASONS} == set(get_args(Reason)) - ALWAYS_CODED
    assert {code for _name, _words, code in legacy.FINDINGS} == set(get_args(FindingCode)) - ALWAYS_CODED


@pytest.mark.parametrize("reason", get_args(Reason))
def test_a_reason_comes_back_from_its_line(reason: Reason) -> None:
    said = codes.explain(reason, **VALUES)
    assert said.reason == reason
    assert not re.search("[{}]", said.detail)
    row = CaseResult("a", STATUSES[reason], detail=said.detail, reason=reason)  # type: ignore[arg-type]
    assert legacy.decode_row(to_dict(row)) == row


@pytest.mark.parametrize("code", get_args(FindingCode))
def test_a_finding_comes_back_from_its_line(code: FindingCode) -> None:
    made = findings.make(code, **VALUES)
    assert (made.code, made.disqualifying) == (code, findings.DEFINITIONS[code].disqualifying)
    assert not re.search("[{}]", made.help)
    row = CaseResult("a", "ok", findings=(made,))
    assert legacy.decode_row(to_dict(row)) == row


def test_the_old_findings_cover_every_code() -> None:
    assert {code for _name, _help, code in OLD_FINDINGS} == set(get_args(FindingCode)) - ALWAYS_CODED


@pytest.mark.parametrize(("name", "words", "code"), OLD_FINDINGS)
def test_an_old_finding_has_its_code(name: str, words: str, code: FindingCode) -> None:
    disqualifying = findings.DEFINITIONS[code].disqualifying
    row = CaseResult("a", "ok", findings=(Finding(name, words, disqualifying, code),))
    assert legacy.decode_row(old(to_dict(row))) == row


@pytest.mark.parametrize("more", [{}, {"code": "less_accurate"}])
def test_an_error_within_the_tolerance_was_a_finding_once(more: dict[str, str]) -> None:
    words = {"name": "less accurate than the baseline", "help": "the largest error is over twice the baseline's"}
    kept = {"name": "nondeterministic", "help": "", "red": False, "code": "nondeterministic"}
    row = {"id": "a", "status": "ok", "findings": [{**words, "red": False, **more}, kept]}
    assert [finding.code for finding in legacy.decode_row(row).findings] == ["nondeterministic"]


@pytest.mark.parametrize(("status", "sentence", "reason"), OLD_SENTENCES)
def test_an_old_sentence_has_its_code(status: str, sentence: str, reason: Reason) -> None:
    line = {"event": "case", "id": "a", "status": status, "detail": sentence, "run": "r"}
    row = legacy.decode_row(line)
    assert (row.reason, row.detail) == (reason, sentence)
    raised = legacy.decode_row({**line, "status": "runtime_error"})  # user code may say the same
    assert (raised.reason, raised.detail) == (None, sentence)


def test_a_line_that_has_codes_keeps_them() -> None:
    said = {"id": "a", "status": "skipped", "detail": "not run: crashed on b", "reason": None}
    assert legacy.decode_row(said).reason is None
    assert legacy.decode_row({**said, "reason": "after_timeout"}).reason == "after_timeout"
    assert legacy.decode_row({**said, "detail": "in other words", "reason": "after_crash"}).reason == "after_crash"


def test_an_old_log_is_read_with_codes(tmp_path: Path) -> None:
    """Rows of a real log, and after them one with a sentence that only a code can be made of."""
    lines = OLD_LOG.read_text(encoding="utf-8").splitlines()[:-1]  # the last one is torn
    assert not any('"reason":null' in line or '"l2"' in line or '"code"' in line for line in lines)
    last = [json.loads(line) for line in lines if line.startswith('{"event":"finished"')][-1]
    more = {"event": "case", "id": "late", "status": "skipped", "detail": "not run: crashed on b", "run": last["run"]}
    place = max(index for index, line in enumerate(lines) if f'"finished","run":"{last["run"]}"' in line)
    lines.insert(place, json.dumps(more, separators=(",", ":")))
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    journal = Journal(tmp_path)
    rows = journal.cases_of(last["run"])
    assert rows.pop("late").reason == "after_crash"
    assert rows
    assert {row.reason for row in rows.values()} == {None}  # right, or wrong: the status says it
    assert journal.summaries[-1].environment.l2 == ""


@pytest.mark.parametrize(
    ("condition", "l2"),
    [
        ("cold L2", "cold"),
        ("warm L2", "warm"),
        ("dirty L2", "dirty"),
        ("cold L2, 1980 MHz", "cold"),
        ("inputs rotated over 64 MiB, 1 thread", ""),
        ("interpreted, not timed", ""),
        ("", ""),
    ],
)
def test_an_old_environment_has_the_state_of_its_l2(condition: str, l2: L2State) -> None:
    device = "cuda:0" if l2 else "cpu"
    about = legacy.decode_environment({"device": device, "condition": condition})
    assert about == Environment(device=device, condition=condition, l2=l2)
    assert legacy.decode_environment({"condition": condition, "l2": "warm"}).l2 == "warm"


def test_old_and_new_runs_of_one_gpu_are_one_series(tmp_path: Path) -> None:
    about = {"device": "cuda:0", "device_name": "NVIDIA H200", "condition": "cold L2"}
    run = {"event": "finished", "source": "a" * 64, "at": "2026-11-14T21:03:00+00:00", "right": True, "task_hash": "t"}
    lines = [
        {**run, "run": "old", "environment": about},
        {**run, "run": "new", "environment": {**about, "l2": "cold"}},
        {**run, "run": "warm", "environment": {**about, "l2": "warm"}},
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (tmp_path / "runs.jsonl").write_text(text, encoding="utf-8")
    journal = Journal(tmp_path)
    series = Series("t", "", "NVIDIA H200", "cold")
    assert [item.run for item in journal.series(series)] == ["old", "new"]
