"""A source that is unclear against the best is undecided: a word, an offer, no step towards a stall."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import findings
from harness.shared.results import CaseResult, Ratio, VerdictWord
from harness.shared.task import Task
from kernbench import report
from kernbench.events import NotBestCode, Summary
from kernbench.log.entries import entry_text, trailer
from kernbench.log.entries.entry_text import EntryText
from tests.log.logs import make_task, rows_of, summary_of
from tests.log.test_best import Place
from tests.sessions import TASK, write

Direct = tuple[float, float, VerdictWord]
"""Against the best: the speedup, half its interval, the verdict."""
FASTER: Direct = (1.10, 0.002, "faster")
SAME: Direct = (1.001, 0.002, "same")
UNCLEAR: Direct = (1.04, 0.06, "unclear")
LOW: Direct = (0.95, 0.10, "unclear")
SLOWER: Direct = (0.95, 0.002, "slower")
BUSY = findings.make("busy_machine", busy="1.9", cpus=2)


def tried(task: Task, *direct: Direct, series: list[Summary], busy: bool = False, number: int = 2) -> Summary:
    return summary_of(task, number, rows(task, *direct, busy=busy), series)


def rows(task: Task, *direct: Direct, busy: bool = False) -> list[CaseResult]:
    found = rows_of(task, 601, 1.0, {}, 1)
    ratios = [Ratio(speedup, speedup - half, speedup + half, word) for speedup, half, word in direct]
    return [
        replace(row, vs_best=ratio, findings=(BUSY,) if busy and ratio.verdict == "unclear" else ())
        for row, ratio in zip(found, ratios, strict=True)
    ]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "t", 2)


@pytest.fixture
def first(task: Task) -> list[Summary]:
    return [summary_of(task, 1, rows_of(task, 601, 1.0, {}, 1), [])]


@pytest.mark.parametrize(
    ("direct", "code", "words"),
    [
        ((UNCLEAR, UNCLEAR), "undecided", "2 rows are unclear against the best"),
        ((FASTER, LOW), "undecided", "1 row is unclear against the best"),
        ((FASTER, UNCLEAR), None, ""),  # best in spite of it
        ((SAME, (1.03, 0.025, "unclear")), "undecided", "1 row is unclear against the best"),
        (((1.02, 0.03, "same"), (1.02, 0.03, "same")), "undecided", "the geomean is unclear against the best"),
        ((SLOWER, UNCLEAR), "row_below_limit", "qwen 304x1024 is 0.95x vs best, below the limit of 0.97"),
        ((SAME, SAME), "not_above_margin", "1.001x vs best; the whole interval must be above 1.01x"),
        (((0.98, 0.02, "unclear"),) * 2, "not_above_margin", "0.980x vs best; the whole interval must be above 1.01x"),
    ],
)
def test_only_what_may_still_become_best_is_undecided(
    task: Task, first: list[Summary], direct: tuple[Direct, Direct], code: NotBestCode | None, words: str
) -> None:
    found = tried(task, *direct, series=first)
    assert (found.not_best_code, found.not_best, found.best) == (code, words, code is None)
    assert found.undecided is (code == "undecided")


@pytest.mark.parametrize("cases", [1, 2])
@pytest.mark.parametrize("has_best", [False, True])
def test_a_disqualified_row_is_named_before_there_is_a_best_and_if_not_all_cases_ran(
    task: Task, first: list[Summary], has_best: bool, cases: int
) -> None:
    kept = findings.make("inputs_kept", slow=6, blocks=6, longer="9%")
    quick, _ = found = rows(task, FASTER, FASTER)
    found[0] = replace(quick, findings=(BUSY, kept), vs_best=quick.vs_best if has_best else None)
    item = summary_of(task, 2, found[:cases], first if has_best else [])
    assert (item.best, item.not_best_code) == (False, "row_finding")
    assert item.not_best == f"{task.case(quick.id).label} is disqualified (inputs kept in the L2)"


def test_it_is_no_step_towards_a_stall(task: Task, first: list[Summary]) -> None:
    series = list(first)
    for number, direct in enumerate((SAME, UNCLEAR, SAME, UNCLEAR, SAME), 2):
        series.append(tried(task, direct, direct, series=series, number=number))
    assert [item.undecided for item in series] == [False, False, True, False, True, False]
    assert [item.streak for item in series] == [0, 1, 0, 2, 0, 3]
    assert [item.stalled for item in series] == [False, False, False, False, False, True]


def test_its_move_after_a_stall_is_in_the_log(task: Task, first: list[Summary]) -> None:
    series = list(first)
    for number, direct in enumerate((SAME, SAME, SAME, SAME, UNCLEAR, SAME), 2):
        series.append(tried(task, direct, direct, series=series, number=number))
    last = series[5]  # its hypothesis is `direction: ...`
    assert (last.undecided, last.stalled, last.streak) == (True, False, 0)
    assert (last.after_stall, last.move) == (True, "changed direction")
    assert "- after the stall: changed direction\n" in EntryText(task, last, {})(6)
    assert (series[6].after_stall, series[6].move, series[6].streak) == (True, "", 5)


def test_the_entry_says_so_and_names_a_busy_machine(task: Task, first: list[Summary]) -> None:
    item = tried(task, UNCLEAR, UNCLEAR, series=first, busy=True)
    text = EntryText(task, item, {row.id: row for row in rows(task, UNCLEAR, UNCLEAR, busy=True)})(2)
    assert text.splitlines()[0].endswith(" · undecided (best: 1.02x)")
    assert "; undecided: 2 rows are unclear against the best on a busy machine; 2/2 passed; findings: busy" in text
    assert "not best" not in text
    assert "r:" not in text  # there is no key in a file
    read = trailer.read(text)
    assert read is not None
    assert trailer.applied({"environment": {}}, read)["outcome"] == "undecided"


def test_rows_that_are_unclear_only_over_the_baseline_name_it_too(task: Task) -> None:
    """There is nothing to beat yet, so nothing is undecided."""
    unclear = [replace(row, verdict="unclear", findings=(BUSY,)) for row in rows_of(task, 601, 1.0, {}, 1)]
    item, results = summary_of(task, 1, unclear, []), {row.id: row for row in unclear}
    assert (item.best, item.undecided) == (True, False)
    assert "2/2 passed, 2 unclear (busy machine)" in entry_text.result(task, item, results)
    assert "2/2 passed, 2 unclear (busy machine)" in report.outcome(item, unclear)


@pytest.mark.anyio
async def test_timing_it_again_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `r` does it: the same source, no other entry."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK)
    write(folder, "TIME_US = 80.0\n")
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    place = Place(folder)
    await place.run(80.0)
    monkeypatch.setenv("FAKE_NOISE", "0.9")
    undecided = await place.run(50.0)
    assert (undecided.undecided, undecided.counted, undecided.iteration) == (True, False, 2)
    again = await place.run(iteration=False)
    assert (again.undecided, again.iteration) == (True, None)
    assert "  undecided  " in place.says("log", str(folder))
    monkeypatch.delenv("FAKE_NOISE")
    decided = await place.run(iteration=False)
    assert (decided.best, decided.took_over, decided.not_best) == (True, True, "")
    listed = place.says("log", str(folder))
    assert "best now" in listed
    assert "undecided" not in listed
    assert set(place.answers(tmp_path).values()) == {"2.00x"}
