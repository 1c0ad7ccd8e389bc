"""runs.jsonl: old files stay readable, a tear costs only the torn line, opening parses no rows of old runs."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernbench
from harness.shared import taskfile
from harness.shared.lines import decode, to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Task
from kernbench.events import CaseLanded, RunStarted, Summary
from kernbench.log import overview
from kernbench.log.entries import iterations_file
from kernbench.log.logbook import Logbook
from kernbench.log.runs import runs_file
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import JournalError, RunsFile
from kernbench.machine.git import author
from tests.log.logs import make_log, make_task

HERE = Path(__file__).parent
STARTED = RunStarted("r1", "ab" * 32, "save", ("a",), "2026-11-14T21:03:00+00:00", "eager")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A state folder with a file that the first version of the schema wrote."""
    shutil.copy(HERE / "runs_v1.jsonl", tmp_path / "runs.jsonl")
    return tmp_path


def test_a_file_of_version_1_is_read_whole(old: Path) -> None:
    journal = Journal(old)
    assert [(item.iteration, item.right, item.best) for item in journal.summaries] == [
        (1, True, True),
        (None, True, True),
        (2, False, False),
    ]
    assert journal.summaries[0].geomean == 0.9801185149717512
    assert journal.summaries[2].failed_builds == 1
    assert (journal.summaries[2].hypothesis, journal.summaries[2].next) == ("said later", "wider rows")
    assert journal.controls == {"a95291382b84d496"}
    assert len(journal.floors) == 1
    assert {row.status for row in journal.last_cases.values()} == {"wrong"}
    first = journal.cases_of(journal.summaries[0].run)
    assert list(first) == ["softmax_19x3072", "softmax_2048x64", "smoke_4x16", "grid:rows=3,cols=7"]
    assert all(row.checked == 2 for row in first.values())
    assert first["softmax_19x3072"].samples is not None


def test_an_old_file_goes_on_in_the_present_version(old: Path) -> None:
    before = (old / "runs.jsonl").read_bytes()
    journal = Journal(old)
    journal.start(STARTED, "softmax_host", Environment())
    journal.finish(Summary("r1", "ab" * 32, STARTED.at, True, iteration=3), [])
    assert (old / "runs.jsonl").read_bytes().startswith(before)
    assert [item.iteration for item in Journal(old).summaries] == [1, None, 2, 3]


def test_a_newer_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"event":"start","run":"r9","source":"ab","schema":2}\n')
    with pytest.raises(JournalError, match=r"newer kernbench \(schema 2\); update kernbench"):
        Journal(tmp_path)


def test_lines_that_make_no_sense_are_passed_over(old: Path) -> None:
    strange = ['{"event":"finished"}', '{"event":"floor","key":1}', '{"event":"words"}', "[1]", '{"event":7}', ""]
    strange += ['{"event":"finished","run":"r","source":"s","at":"t","right":true,"environment":7}']
    strange += ['{"event":"case","id":"x","status":"wrong","solution_us":3.0,"run":"20261115T020753-c08191"}']
    with (old / "runs.jsonl").open("a") as file:
        file.write("\n" + "\n".join(strange) + "\n")
    assert len(Journal(old).summaries) == 3


def test_a_tear_anywhere_costs_only_the_torn_line(old: Path) -> None:
    whole = (old / "runs.jsonl").read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    rng = random.Random(6)
    for cut in [rng.randrange(1, len(whole)) for _ in range(150)]:
        (old / "runs.jsonl").write_bytes(whole[:cut])
        journal = Journal(old)
        journal.case(CaseLanded("r7", CaseResult("late", "ok", checked=2)))
        journal.finish(Summary("r7", "cd" * 32, STARTED.at, True), [])
        kept = whole[: max([end for end in ends if end <= cut], default=0)]
        again = Journal(old)
        finished = kept.count(b'{"event":"finished"')
        assert len(again.summaries) in (finished + 1, finished + 2)  # a line cut just before its newline is whole
        assert again.summaries[-1].run == "r7"
        assert list(again.last_cases) == ["late"]
        assert (old / "runs.jsonl").read_bytes().startswith(kept)


def test_a_log_opened_during_a_run_has_its_rows_later(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.start(STARTED, "t", Environment())
    first.case(CaseLanded("r1", CaseResult("a", "ok", checked=2)))
    second.keep_controls("something else")
    during = Journal(tmp_path)
    assert during.summaries == []
    first.case(CaseLanded("r1", CaseResult("b", "ok", checked=2)))
    first.finish(Summary("r1", "ab" * 32, STARTED.at, True), [])
    assert list(Journal(tmp_path).last_cases) == ["a", "b"]
    assert during.read_new()
    assert list(during.last_cases) == ["a", "b"]


def test_opening_parses_the_rows_of_the_last_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path / "t", 12, cases=3)
    parsed: list[bytes] = []

    def loads(text: bytes) -> Any:
        parsed.append(text)
        return json.loads(text)

    monkeypatch.setattr(runs_file, "json", SimpleNamespace(loads=loads))
    journal = Journal(tmp_path / "t" / ".kernbench")
    assert len(journal.summaries) == 12
    assert len(journal.last_cases) == 3
    rows = [json.loads(text) for text in parsed if b'"event":"case"' in text]
    assert [row["run"] for row in rows] == [journal.summaries[-1].run] * 6


def test_a_full_disk_takes_back_what_did_not_fit(tmp_path: Path) -> None:
    file = RunsFile(tmp_path / "runs.jsonl")
    file.append("x" * 100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, before[1]))
        with pytest.raises(JournalError, match=r"cannot write .*; the run is not recorded"):
            file.append("y" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.path.read_text() == "x" * 100 + "\n"
    file.append("z")
    assert file.path.read_text() == "x" * 100 + "\nz\n"


def test_history_is_the_numbers_of_the_file(tmp_path: Path) -> None:
    make_log(tmp_path / "t", 7, cases=4)
    journal = Journal(tmp_path / "t" / ".kernbench")
    frame = kernbench.history(tmp_path / "t")
    assert len(frame) == 28
    for summary in journal.summaries:
        part = frame[frame["run"] == summary.run].set_index("case")
        assert set(part["geomean_speedup"].dropna()) == ({summary.geomean} if summary.right else set())
        for case, row in journal.cases_of(summary.run).items():
            if row.status == "ok":
                assert part.loc[case, "baseline_us"] == row.baseline_us
                assert part.loc[case, "speedup_low"] == row.low
                assert part.loc[case, "wall_solution_us"] == row.wall.solution_us
            else:
                assert part.loc[case, "speedup"] != part.loc[case, "speedup"]


def test_history_of_a_log_without_rows_has_the_columns(tmp_path: Path) -> None:
    make_task(tmp_path / "t", 1)
    frame = kernbench.history(tmp_path / "t")
    assert len(frame) == 0
    assert {"iteration", "case", "baseline_us"} <= set(frame.columns)


def test_records_survive_their_own_json(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2)
    request = RunRequest("r", task, "/s", floors={"a": 0.5}, cases=("a",))
    again = decode(RunRequest, to_dict(request))
    assert again == request
    assert isinstance(again.task, Task)
    assert decode(CaseResult, {"id": "a", "status": "ok", "samples": {"solution": [1, 2.5]}}).samples == {
        "solution": (1.0, 2.5)
    }


def test_a_log_from_elsewhere_is_counted(tmp_path: Path) -> None:
    make_log(tmp_path / "t", 3, cases=2)
    task = taskfile.load(tmp_path / "t")
    book = Logbook(Path(task.folder), tmp_path / "t" / ".kernbench")
    for item in book.journal.summaries:
        book.enter(task, lambda item=item: item, book.journal.cases_of(item.run))
    last = iterations_file.last_entry(book.path)
    assert last is not None
    found = overview.of(tmp_path / "t", tmp_path / "another state")
    assert (found.iterations, found.last, found.best) == (3, "not run here yet", "1.32x")


def test_a_task_that_nobody_expected_is_a_row_with_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path / "t", 1, cases=2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where tracebacks are kept
    assert overview.of(tmp_path / "t").problem is None
    for problem, says in (
        (OverflowError("too long"), "/t: internal error: OverflowError: too long"),
        (PermissionError(errno.EACCES, "Permission denied", "/t/ITERATIONS.md"), "/t/ITERATIONS.md: Permission denied"),
    ):
        monkeypatch.setattr(overview, "PulledEntries", raising(problem))
        found = overview.of(tmp_path / "t")
        assert (found.name, found.last) == ("t", "cannot be opened")
        assert says in (found.problem or "")


def raising(problem: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise problem

    return fail


@pytest.mark.parametrize("name", [b"J\xfcrgen", b"J\xfcrgen\n of two lines"])
def test_words_that_are_no_utf_8_are_recorded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", os.fsdecode(name))
    assert author(tmp_path).encode().decode() == " ".join(name.decode(errors="replace").split())
    task = make_log(tmp_path / "t", 1, cases=2)
    journal = Journal(tmp_path / "t" / ".kernbench")
    journal.finish(replace(journal.summaries[0], run="odd", command=f"kernbench run {os.fsdecode(name)}"), [])
    assert Journal(Path(task.folder) / ".kernbench").summaries[-1].run == "odd"


def test_one_disturbed_moment_does_not_make_a_floor_for_good(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for floor, known in ((0.043, 0.043), (0.004, 0.0235), (0.006, 0.006)):
        assert journal.wants_floor("a")
        journal.keep_floor("a", floor)
        assert journal.floors["a"] == pytest.approx(known)
    assert not journal.wants_floor("a")
    assert Journal(tmp_path).floors == {"a": 0.006}
    assert not Journal(tmp_path).wants_floor("a")


def test_a_file_that_is_not_ours_to_write_says_where_runs_may_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    journal = Journal(tmp_path)
    monkeypatch.setattr("kernbench.log.runs.runs_file.os.open", refuse)
    with pytest.raises(JournalError, match=r"the run is not recorded; use `--state DIR` to keep runs elsewhere$"):
        journal.keep_floor("a", 0.1)
