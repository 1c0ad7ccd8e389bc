"""An entry is evidence: all that a reviewer asks for, nothing that was not measured, and only its own lines change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import format as fmt
from harness.shared.results import CaseResult, OutputError, Ratio, Status, Verdict
from harness.shared.task import Task
from kernbench import atomic_write, render
from kernbench.diagnosis.counters import Kernel, Profile
from kernbench.events import Summary
from kernbench.log import profile_evidence
from kernbench.log.entries import entry_text as entry
from kernbench.log.entries import iterations_file, pulled_entries
from kernbench.log.entries.entry_text import EntryText
from kernbench.log.logbook import Logbook
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from tests.log.logs import make_log, make_task, rows_of, source_hash, summary_of

HERE = Path(__file__).parent


@pytest.fixture
def log(tmp_path: Path) -> tuple[Task, Logbook]:
    task = make_log(tmp_path / "t", 8, cases=3)
    return task, Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench")


def profile(state: Path, number: int, case: str, **kernel: float) -> None:
    (state / "profiles").mkdir(exist_ok=True)
    data = {
        "source": source_hash(number),
        "case": case,
        "at": f"2026-11-30T00:{number:02d}:00+00:00",
        "gpu": "NVIDIA H200",
        "ncu": "2025.3",
        "kernels": [{"name": "rms", "duration_us": 10.0, **kernel}, {"name": "tail", "duration_us": 1.0}],
    }
    (state / "profiles" / f"{source_hash(number)[:8]}-{case}.json").write_text(json.dumps(data))


def test_the_entry_reads_as_promised(log: tuple[Task, Logbook]) -> None:
    task, book = log
    profile(book.state, 8, task.timed[0].id, registers=32, occupancy_pct=87)
    item = replace(book.journal.summaries[7], failed_builds=2, after_stall=True, move="changed direction", streak=3)
    book.enter(task, lambda: replace(item, stalled=True), book.journal.cases_of(item.run))
    assert book.path.read_text() == (HERE / "golden_entry.md").read_text()


def test_what_was_not_measured_is_not_printed(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2)
    bare = Summary("r", "ab" * 32, "2026-11-14T21:03:00+00:00", False, counts={"wrong": 2})
    text = EntryText(task, bare, {})(1)
    assert "None" not in text
    for word in ("driver", "clocks", "torch", "evidence", "wall", "geomean", "command", "said"):
        assert word not in text


def test_evidence_compares_with_the_best_before_once_both_were_profiled(log: tuple[Task, Logbook]) -> None:
    task, book = log
    item = book.journal.summaries[7]
    before = [entry for entry in book.journal.summaries[:7] if entry.best][-1]
    book.enter(task, lambda: replace(item, iteration=None), book.journal.cases_of(item.run))
    assert book.add_evidence(task, item.source) == ""
    case = task.timed[1].id
    assert before.iteration is not None
    profile(book.state, before.iteration, case, registers=40, occupancy_pct=62, bytes_read=2e7, bytes_written=1e7)
    profile(book.state, 8, case, registers=32, occupancy_pct=87, bytes_read=3e7, bytes_written=1e7)
    (book.state / "profiles" / "torn.json").write_text('{"source"')
    line = f"registers 40 -> 32, occupancy 62 -> 87% (ncu, {task.timed[1].label})"
    numbered = comparison.numbered(item, 9)
    book.journal.finish(numbered, [])
    assert book.add_evidence(task, item.source) == line
    assert book.add_evidence(task, item.source) == line  # replaced, not repeated
    assert book.path.read_text().count("- evidence: ") == 1
    assert f"- evidence: {line}\n" in book.path.read_text()


def test_an_entry_is_never_compared_with_a_later_best(log: tuple[Task, Logbook]) -> None:
    task, book = log
    first, best = book.journal.summaries[0], [entry for entry in book.journal.summaries if entry.best][-1]
    assert best.iteration is not None
    assert best.iteration > 1
    profile(book.state, 1, task.timed[0].id, registers=40, occupancy_pct=62)
    profile(book.state, best.iteration, task.timed[0].id, registers=32, occupancy_pct=87)
    alone, beside = book._evidence(task, first), book._evidence(task, best)
    assert alone is not None
    assert alone.startswith("registers 40, occupancy 62%")
    assert beside


def test_profiles_of_two_gpus_are_no_pair() -> None:
    found = [
        Profile((Kernel("k", registers=40),), source="a", case="x", gpu="H100"),
        Profile((Kernel("k"),), source="b", case="x", gpu="H200"),
    ]
    assert profile_evidence.pairs(found, "a", "b", ["x"]) == []
    assert len(profile_evidence.pairs([replace(item, gpu="H200") for item in found], "a", "b", ["x"])) == 1


def test_bandwidth_is_told_only_when_every_kernel_counted_its_bytes(tmp_path: Path) -> None:
    whole = {"name": "k", "duration_us": 10.0, "bytes_read": 3e7, "bytes_written": 1e7}
    (tmp_path / "profiles").mkdir()
    for name, kernels in (("a", [whole, whole]), ("b", [whole, {"name": "k", "duration_us": 1.0}]), ("c", [])):
        data = {"source": name, "case": "x", "kernels": kernels}
        (tmp_path / "profiles" / f"{name}.json").write_text(json.dumps(data))
    found = {item.source: profile_evidence.metrics(item) for item in profile_evidence.profiles(tmp_path)}
    assert found["a"]["bandwidth"] == pytest.approx(4e12)
    assert "bandwidth" not in found["b"]
    assert "c" not in found


def test_who_said_it_and_when_follows_the_words(log: tuple[Task, Logbook], monkeypatch: pytest.MonkeyPatch) -> None:
    task, book = log
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Lee")
    item = replace(book.journal.summaries[7], hypothesis="", hypothesis_at="", hypothesis_by="", run="r8")
    entered = book.enter(task, lambda: item, {})
    book.journal.finish(entered, [])
    assert "- written" not in book.path.read_text()
    book.reword(entered, "a better idea", "go on")
    text = book.path.read_text()
    assert "· a better idea ·" in text
    assert "- hypothesis: a better idea\n- written by Lee, 20" in text
    assert "UTC, after the run\n" in text
    again = Journal(book.state).summaries[-1]
    assert (again.hypothesis, again.hypothesis_by, again.next) == ("a better idea", "Lee", "go on")
    book.reword(again, "a better idea", "go on further")
    assert "- next: go on further\n" in book.path.read_text()


def test_an_entry_of_an_earlier_version_is_reworded_in_its_own_words(log: tuple[Task, Logbook]) -> None:
    task, book = log
    item = replace(book.journal.summaries[7], hypothesis="an idea", after_stall=True, move="", run="r8")
    entered = book.enter(task, lambda: item, {})
    book.journal.finish(entered, [])
    text = book.path.read_text().replace("- written by", "- said by").replace(": not given (", ": not said (")
    book.path.write_text(text)
    book.reword(entered, "another idea", "")
    reworded = book.path.read_text()
    assert "- hypothesis: another idea\n- said by " in reworded
    assert "- after the stall: not said (" in reworded
    assert "- written" not in reworded


NOTE = "two rows a warp\n\n  they hide the latency\n- and a list\n1. of two\nat the end"
LINES = "two rows a warp\n  they hide the latency - and a list 1. of two\n  at the end\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_note_of_several_lines_keeps_them(log: tuple[Task, Logbook], end: str) -> None:
    task, book = log
    item = replace(book.journal.summaries[7], hypothesis=NOTE, next=NOTE, run="r9")
    entered = book.enter(task, lambda: item, {})
    book.journal.finish(entered, [])
    assert f"- hypothesis: {LINES}- written by" in book.path.read_text()
    assert f"- next: {LINES}\n" in book.path.read_text()
    assert (book.iterations()[-1].hypothesis, book.next_step()) == (NOTE, NOTE)
    (written,) = pulled_entries.read(book.path)
    assert (written.hypothesis, written.next) == (" ".join(NOTE.split()), " ".join(NOTE.split()))
    book.path.write_bytes(book.path.read_bytes().replace(b"\n", end.encode()))
    book.reword(entered, "one line", NOTE + "\nand one more")
    assert book.next_step() == NOTE + "\nand one more"
    book.set_next("first\nsecond")
    data = book.path.read_bytes().decode()
    assert f"- hypothesis: one line{end}- written by" in data
    assert data.count(f"- next: first{end}  second{end}{end}") == 1
    assert "at the end" not in data
    assert data.replace("\r\n", "\n").count("\n") == data.count(end)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("- next: -", "- next: mine"), "edited by hand; change it there"),
        (("- hypothesis: ", "- my hypothesis: "), "edited by hand; change it there"),
        (("- written by Kim", "- written by me"), "edited by hand; change it there"),
        (("## 9 · ", "## 9: "), "no longer has an entry 9$"),
        (("· source ", "· source 0000beef, not "), "no longer has an entry 9 for this source$"),
    ],
)
def test_a_line_changed_by_hand_is_never_overwritten(
    log: tuple[Task, Logbook], change: tuple[str, str], says: str
) -> None:
    task, book = log
    entered = book.enter(task, lambda: book.journal.summaries[7], {})
    book.path.write_text(book.path.read_text().replace(*change))
    before = book.path.read_bytes()
    with pytest.raises(iterations_file.LogbookError, match=says):
        book.reword(entered, "other words", "more")
    assert book.path.read_bytes() == before
    assert not list(book.path.parent.glob(f"{atomic_write.PREFIX}*"))


def test_of_two_entries_with_one_number_the_right_one_is_changed(log: tuple[Task, Logbook]) -> None:
    task, book = log
    entered = book.enter(task, lambda: book.journal.summaries[7], {})
    other = book.path.read_text().replace(entered.source[:8], "0000beef")
    book.path.write_text(book.path.read_text() + "\n" + other)
    book.reword(entered, "mine", "more")
    mine, theirs = book.path.read_text().split("# Iterations of t\n")[1:]
    assert "- hypothesis: mine" in mine
    assert "- hypothesis: mine" not in theirs


def test_stall_and_the_move_after_it(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2)
    series: list[Summary] = []
    for number in range(1, 7):
        rows = rows_of(task, 600 + number, 1.0, {case.id: 2.0 for case in task.timed} if series else {}, 1)
        series.append(summary_of(task, number, rows, series))
    assert [item.best for item in series] == [True, False, False, False, False, False]
    assert [item.stalled for item in series] == [False, False, False, True, True, True]
    assert [item.streak for item in series] == [0, 1, 2, 3, 4, 5]
    assert [item.after_stall for item in series] == [False, False, False, False, True, True]
    assert [item.move for item in series] == ["", "", "", "", "", "changed direction"]
    texts = [EntryText(task, item, {})(item.iteration or 0) for item in series]
    assert "- stalled: 4 iterations without a new best; profile again, re-read the log, or change direction" in texts[4]
    assert "- after the stall: not given (profile again, re-read the log, or change direction)" in texts[4]
    assert "- after the stall: changed direction" in texts[5]
    wrong = summary_of(task, 7, rows_of(task, 6, 1.0, {}, 1), series)
    assert (wrong.right, wrong.stalled, wrong.streak, wrong.after_stall) == (False, False, 0, False)
    right = summary_of(task, 8, rows_of(task, 608, 1.0, {case.id: 2.0 for case in task.timed}, 1), [*series, wrong])
    assert (right.stalled, right.streak, right.after_stall) == (True, 6, True)  # as if it had not been tried


@pytest.mark.parametrize(
    ("words", "move"),
    [
        ("profile: the tail wave is long", "profiled again"),
        ("Re-read the log: 4 had it", "re-read the log"),
        ("change direction: TMA", "changed direction"),
        ("profile guided layout", ""),
        ("direction", ""),
    ],
)
def test_the_move_is_what_the_hypothesis_begins_with(words: str, move: str) -> None:
    assert comparison.said_move(words) == move


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.996, 1.004), "±0.4%"),
        ((0.80, 1.25), "±22.5%"),
        ((0.81, 2.76), "-19+176%"),
        ((0.98, 1.06), "±4.0%"),
        ((0.1, 2.2), "±105%"),
    ],
)
def test_an_uneven_interval_shows_both_ends(ends: tuple[float, float], words: str) -> None:
    """`1.44x ±98%` beside `faster` would say that it may be slower."""
    assert fmt.spread(Ratio(1.44, 1.44 * ends[0], 1.44 * ends[1], "faster")) == words


@pytest.mark.parametrize(
    ("ends", "verdict", "words"),
    [
        ((0.73, 1.42), "unclear", "±42%"),
        ((0.91, 1.22), "faster", "-9+22%"),
        ((0.81, 2.76), "faster", ""),
        ((0.81, 1.24), "unclear", "±24%"),
    ],
)
def test_where_there_is_no_room_the_farther_end_stands_for_both_or_nothing_is_shown(
    ends: tuple[float, float], verdict: Verdict, words: str
) -> None:
    assert fmt.spread(Ratio(1.44, 1.44 * ends[0], 1.44 * ends[1], verdict), most=6) == words


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["ok", "ok"], "2/2 check cases passed"),
        (["ok"], "1/1 check case passed"),
        (["ok", "wrong", "skipped"], "1/2 check cases passed, 1 not run"),
        (["skipped"], "1 check case not run"),
        ([], ""),
    ],
)
def test_checks_are_counted_among_those_that_were_run(statuses: list[Status], words: str) -> None:
    assert render.checks(CaseResult(str(place), status) for place, status in enumerate(statuses)) == words


def test_one_case_is_not_one_cases(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 1)
    rows = rows_of(task, 1, 1.0, {}, 1)
    summary = summary_of(task, 1, rows, [])
    assert " over 1 case (device)" in EntryText(task, summary, {row.id: row for row in rows})(1)


def test_ones_own_entry_does_not_have_the_whole_file_read_again(
    log: tuple[Task, Logbook], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, book = log
    item = replace(book.journal.summaries[7], iteration=None)
    book.enter(task, lambda: item, {})
    assert book._elsewhere.number_of(book.journal, "ff" * 32) is None
    monkeypatch.setattr("kernbench.log.entries.pulled_entries.read", lambda *_: pytest.fail("read again"))
    book.enter(task, lambda: item, {})
    assert book._elsewhere.number_of(book.journal, "ff" * 32) is None
    monkeypatch.undo()
    book.path.write_text(book.path.read_text() + "\nby hand\n")  # what somebody else wrote is looked at
    assert not book._elsewhere.current()


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({"ok": 3, "timeout": 1}, "timeout"),
        ({"crashed": 1, "skipped": 9}, "crashed"),
        ({"ok": 1, "crashed": 1, "wrong": 1}, "wrong"),
        ({"runtime_error": 2}, "error"),
        ({}, "wrong"),
    ],
)
def test_a_run_that_is_not_right_says_how_it_failed(counts: dict[str, int], word: str) -> None:
    failed = Summary("r", "ab" * 32, "2026-11-14T21:03:00+00:00", False, counts=counts)
    assert render.outcome(failed) == word
    score = entry.score(failed, "eager")
    written = pulled_entries.parse(7, f" wider loads · {score}\n", "")
    assert (written.right, written.outcome) == (False, word)


def test_what_was_never_timed_over_the_baseline_is_not_best(tmp_path: Path) -> None:
    """A broken baseline leaves a time and no ratio; the next source would be called the first again."""
    task = make_task(tmp_path, 3)
    alone = [replace(item, baseline_us=None, speedup=None, low=None, high=None, verdict=None, vs_best=None)
             for item in rows_of(task, 1, 1.2, {}, 1)]  # fmt: skip
    before = summary_of(task, 1, alone, [])
    assert (before.best, render.outcome(before)) == (False, "not timed")
    first = summary_of(task, 2, rows_of(task, 2, 1.2, {}, 1), [before])
    assert (first.best, render.outcome(first)) == (True, "first")


WRONG = CaseResult("x", "wrong", detail="0.967266, not 0.957688 at output 0[12, 21]", checked=2)


@pytest.mark.parametrize(
    ("statuses", "words", "outcome"),
    [
        (["wrong"] * 4, "; 3 other cases fail; 0/4 passed, 4 wrong", "wrong"),
        (["wrong", "ok", "wrong", "ok"], "; 1 other case fails; 2/4 passed, 2 wrong", "wrong"),
        (["crashed", "skipped", "skipped", "skipped"], "; 0/1 passed, 1 crashed, 3 not run", "crashed"),
        (["ok", "timeout", "skipped", "skipped"], "; 1/2 passed, 1 timeout, 2 not run", "timeout"),
        (["runtime_error"] * 2 + ["ok"] * 2, "; 1 other case fails; 2/4 passed, 2 errors", "error"),
        (["build_error"] * 4, "; 3 other cases fail; 0/4 passed, 4 build errors", "build error"),
    ],
)
def test_an_entry_that_failed_is_short(tmp_path: Path, statuses: list[Status], words: str, outcome: str) -> None:
    """What failed, the first case with its values, and how many others; no table."""
    task = make_task(tmp_path / "t", 4)
    rows = [
        timed if status == "ok" else replace(WRONG, id=timed.id, status=status)
        for timed, status in zip(rows_of(task, 1, 1.2, {}, 1), statuses, strict=True)
    ]
    first = next(task.case(row.id).label for row in rows if row.failed)
    item = replace(summary_of(task, 1, rows, []), hypothesis="wider loads", next="look at the tail")
    text = EntryText(task, item, {row.id: row for row in rows})(7)
    *lines, end = text.splitlines()
    assert lines == [
        f"## 7 · wider loads · {outcome}",
        f"- when {render.minute(item.at)} · source {item.source[:8]} · NVIDIA H200 · baseline compile · cold L2",
        "- hypothesis: wider loads",
        f"- written by Kim, {render.minute(item.at)}, before the run",
        f"- result: {first}: 0.967266, not 0.957688 at output 0[12, 21]{words}",
        "- next: look at the tail",
        "",
    ]
    assert end.startswith("<!-- kernbench {")
    entry = pulled_entries.parse(7, text.removeprefix("## 7 ·"), item.source[:8])
    assert (entry.run, entry.right, entry.geomean, entry.outcome) == (item.run, False, None, outcome)
    failed = {row.id: row.status for row in rows if row.failed}
    found = {case: row.status for case, row in pulled_entries.rows(task, text).items() if row.failed}
    assert found == failed


def test_the_row_whose_error_is_furthest_above_the_baselines_is_named(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 4)
    errors = [OutputError(1e-3, 1e-3, 5e-2), OutputError(3.1e-3, 1e-3, 5e-2), OutputError(9e-3, 0.0, 5e-2), None]
    rows = [CaseResult(case.id, "ok", error=error) for case, error in zip(task.cases, errors, strict=True)]
    told = [render.accuracy(row) for row in rows]
    assert told == ["error 1.0x the baseline's", "error 3.1x the baseline's", "", ""]
    assert entry.accuracy(task, {row.id: row for row in rows}) == [f"{told[1]} on {task.cases[1].label}"]
    assert entry.accuracy(task, {rows[0].id: rows[0]}) == []
    assert render.accuracy(CaseResult("a", "wrong", error=errors[1])) == ""
