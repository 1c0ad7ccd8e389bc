"""runs.jsonl and ITERATIONS.md: torn lines, hand edits, two writers, other line endings."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from kernbench.events import CaseLanded, RunStarted, Summary
from kernbench.log.entries import iterations_file
from kernbench.log.entries.entry_text import EntryText
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import JournalError, RunsFile
from kernbench.task.lookup import make_state

STARTED = RunStarted("r1", "ab" * 32, "save", ("a",), "2026-11-14T21:03:00+00:00", "eager")


def summary(run: str = "r1", number: int | None = None, **words: str) -> Summary:
    about = Environment(device_name="Fake 9000", condition="no clock")
    return Summary(
        run,
        "ab" * 32,
        STARTED.at,
        True,
        2.0,
        1.98,
        2.02,
        "faster",
        iteration=number,
        environment=about,
        baseline="eager",
        counts={"ok": 1, "faster": 1, "headline": 1},
        **words,
    )  # type: ignore[arg-type]


def entry(folder: Path, **words: str) -> EntryText:
    rows = {
        "a": CaseResult(
            "a",
            "ok",
            clock="wall",
            baseline_us=100.0,
            solution_us=50.0,
            speedup=2.0,
            low=1.98,
            high=2.02,
            verdict="faster",
        )
    }
    return EntryText(taskfile.load(folder), summary(**words), rows)


def test_a_torn_last_line_is_skipped_and_not_glued_to_the_next(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start(STARTED, "toy", Environment())
    journal.finish(summary(number=1), [])
    with journal.path.open("a") as file:
        file.write('{"event":"finished","run":"r2","sour')
    again = Journal(tmp_path)
    assert [item.run for item in again.summaries] == ["r1"]
    again.finish(summary("r3", 2), [])
    assert [item.run for item in Journal(tmp_path).summaries] == ["r1", "r3"]


def test_results_survive_a_restart_to_the_digit(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    row = CaseResult(
        "a", "ok", clock="wall", baseline_us=1.25, solution_us=0.1 + 0.2, samples={"baseline": (1.0, 2.0)}, checked=2
    )
    journal.start(STARTED, "toy", Environment())
    journal.case(CaseLanded("r1", CaseResult("a", "ok", checked=1)))
    journal.case(CaseLanded("r1", row))
    journal.finish(summary(), [row])
    again = Journal(tmp_path)
    assert again.last_cases == {"a": row}
    assert again.cases_of("r1") == {"a": row}
    assert list(again.summaries) == list(journal.summaries)


TIMED = CaseResult(
    "a", "ok", clock="wall", baseline_us=2.0, solution_us=1.0, samples={"baseline": (1.0, 2.0)}, checked=1
)


def samples_on_disk(journal: Journal) -> list[bool]:
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    return [line["samples"] is not None for line in lines if line["event"] == "case"]


def test_only_the_last_landing_of_a_row_has_samples(tmp_path: Path) -> None:
    journal, last = Journal(tmp_path), replace(TIMED, checked=2)
    journal.start(STARTED, "toy", Environment())
    for row in (TIMED, last):
        journal.case(CaseLanded("r1", row))
    journal.finish(summary(), [last])
    assert samples_on_disk(journal) == [False, True]
    assert Journal(tmp_path).cases_of("r1") == {"a": last}


def test_a_run_interrupted_before_the_slow_checks_has_its_rows_without_samples(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start(STARTED, "toy", Environment())
    journal.case(CaseLanded("r1", TIMED))
    assert Journal(tmp_path).cases_of("r1") == journal.cases_of("r1") == {"a": replace(TIMED, samples=None)}


def test_a_run_whose_slow_checks_crashed_keeps_the_samples_of_the_other_rows(tmp_path: Path) -> None:
    journal, crashed = Journal(tmp_path), CaseResult("b", "crashed", checked=1)
    journal.start(STARTED, "toy", Environment())
    for row in (TIMED, replace(TIMED, id="b"), crashed):
        journal.case(CaseLanded("r1", row))
    journal.finish(summary(), [TIMED, crashed])
    assert samples_on_disk(journal) == [False, False, False, True]
    assert Journal(tmp_path).last_cases == journal.last_cases == {"a": TIMED, "b": crashed}


def test_a_journal_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").mkdir()
    with pytest.raises(JournalError, match=r"cannot read .*runs\.jsonl"):
        Journal(tmp_path).start(STARTED, "toy", Environment())


def test_the_entry_reads_as_promised(folder: Path) -> None:
    path = folder / "ITERATIONS.md"
    assert iterations_file.append(path, entry(folder, hypothesis="16-byte loads", next="eight rows"), 0) == 1
    assert path.read_text() == (Path(__file__).parent / "golden_journal_entry.md").read_text()


def test_numbers_go_on_from_the_highest_in_either_place(folder: Path) -> None:
    path = folder / "ITERATIONS.md"
    path.write_text("# mine\n\n## 41 · by hand · 1.0x\nwords\n")
    assert iterations_file.append(path, entry(folder), 7) == 42
    assert iterations_file.append(path, entry(folder), 99) == 100


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_hand_edits_survive_byte_for_byte(folder: Path, newline: str) -> None:
    path = folder / "ITERATIONS.md"
    mine = newline.join(["# my notes", "", "- odd bytes: \udce9\udcff", "no newline at the end"])
    path.write_bytes(mine.encode("utf-8", "surrogateescape"))
    iterations_file.append(path, entry(folder), 0)
    data = path.read_bytes()
    assert data.startswith(mine.encode("utf-8", "surrogateescape"))
    assert (b"\r\n## 1 " in data) == (newline == "\r\n")
    assert b"\n" not in data.replace(b"\r\n", b"") or newline == "\n"


def test_words_are_changed_in_place_and_nothing_else(folder: Path) -> None:
    path = folder / "ITERATIONS.md"
    iterations_file.append(path, entry(folder), 0)
    iterations_file.append(path, entry(folder), 0)
    path.write_text(path.read_text().replace("| case |", "a note of mine\n\n| case |"))
    before = path.read_text()
    iterations_file.reword(path, summary(number=2), summary(number=2, hypothesis="why not", next="more"))
    after = path.read_text()
    head, tail = after.split("## 2 · ")
    assert head == before.split("## 2 · ")[0]
    assert tail.startswith("why not · 2.00x")
    assert "- hypothesis: why not\n" in tail
    assert "- next: more\n" in tail
    assert "a note of mine" in tail


def test_lines_changed_by_hand_are_left_alone(folder: Path) -> None:
    path = folder / "ITERATIONS.md"
    iterations_file.append(path, entry(folder), 0)
    path.write_text(path.read_text().replace("- next: -", "- next: I wrote this myself"))
    before = path.read_bytes()
    with pytest.raises(iterations_file.LogbookError, match="edited by hand"):
        iterations_file.reword(path, summary(number=1), summary(number=1, next="more"))
    assert path.read_bytes() == before


def _append_many(folder: Path, count: int) -> None:
    for _ in range(count):
        iterations_file.append(folder / "ITERATIONS.md", entry(folder), 0)


def test_two_workbenches_take_turns(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(folder, 20)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    numbers = iterations_file.HEADING.findall((folder / "ITERATIONS.md").read_text())
    assert [int(number) for number in numbers] == list(range(1, 41))


def test_a_log_that_is_a_folder_is_one_sentence(folder: Path) -> None:
    (folder / "ITERATIONS.md").mkdir()
    with pytest.raises(iterations_file.LogbookError, match=r"ITERATIONS\.md cannot be written: Is a directory"):
        iterations_file.append(folder / "ITERATIONS.md", entry(folder), 0)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_evidence_goes_below_a_result_that_ends_the_file(folder: Path, newline: str) -> None:
    path = folder / "ITERATIONS.md"
    iterations_file.append(path, entry(folder), 0)
    kept = path.read_text().split("- result: ")[0] + "- result: fine"
    path.write_bytes(kept.replace("\n", newline).encode())
    for _again in range(2):
        iterations_file.add_evidence(path, summary(number=1), "registers 40 -> 32")
        assert path.read_bytes() == f"{kept}\n- evidence: registers 40 -> 32\n".replace("\n", newline).encode()


def test_evidence_tears_no_wrapped_result(folder: Path) -> None:
    path = folder / "ITERATIONS.md"
    iterations_file.append(path, entry(folder), 0)
    path.write_text(path.read_text().replace("- result: ", "- result: wrapped\n  by an editor: "))
    iterations_file.add_evidence(path, summary(number=1), "registers 40 -> 32")
    lines = path.read_text().splitlines()
    assert lines[lines.index("- result: wrapped") + 1].startswith("  by an editor")
    assert lines[lines.index("- result: wrapped") + 2] == "- evidence: registers 40 -> 32"
    path.write_text(path.read_text().replace("- evidence: registers 40 -> 32", "- evidence: registers\n  40 -> 32"))
    iterations_file.add_evidence(path, summary(number=1), "registers 40 -> 30")
    assert "  40 -> 32" not in path.read_text()
    assert path.read_text().count("- evidence: registers 40 -> 30\n") == 1


def test_results_of_a_run_that_another_process_finished_are_its_own(folder: Path) -> None:
    book = Logbook(folder, folder / ".kernbench")
    rows = [CaseResult("a", "ok", solution_us=time_us, checked=2) for time_us in (50.0, 10.0)]
    make_state(book.state)
    for journal, row, run in ((book.journal, rows[0], "r1"), (Journal(book.state), rows[1], "r2")):
        journal.start(replace(STARTED, run=run), "toy", Environment())
        journal.case(CaseLanded(run, row))
        journal.finish(summary(run), [row])
    assert book.changed()
    assert [book.results_of(item) for item in book.journal.summaries] == [{"a": row} for row in rows]


def test_the_runs_of_a_session_share_their_environment(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in (1, 2):
        about = Environment(device="cuda:0", device_name=" ".join(["Some", "GPU"]))  # another object each time
        journal.finish(replace(summary(number=number), environment=about), ())
    first, second = journal.summaries
    assert first.environment is second.environment
    assert first.counts is second.counts
    assert [run.iteration for run in journal.summaries] == [1, 2]


def test_a_line_that_is_just_being_written_is_not_taken_for_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process saw the first page of a long line, and put an empty line after it."""
    file, read, looks = RunsFile(tmp_path / "runs.jsonl"), os.pread, list[int]()

    def half_done(handle: int, size: int, place: int) -> bytes:
        looks.append(place)
        return b"x" if len(looks) == 1 else read(handle, size, place)

    file.append('{"event":"one"}')
    monkeypatch.setattr(os, "pread", half_done)
    file.append('{"event":"two"}')
    assert file.path.read_text() == '{"event":"one"}\n{"event":"two"}\n'
