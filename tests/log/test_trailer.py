"""A trailer makes a pulled entry answer like one that a run here made; what is not a whole trailer does not count."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench import export, render
from kernbench.events import PulledEntry, Summary
from kernbench.log.entries import iterations_file, old_entries, pulled_entries, trailer
from kernbench.log.entries.entry_text import EntryText
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from kernbench.tui.panes import trajectory
from tests import ROOT
from tests.log.logs import make_log, make_task, rows_of, summary_of, write_entries

SHIPPED = sorted(path.parent.name for path in (ROOT / "kernels").glob("*/ITERATIONS.md"))
ODD = 'a -- b --> c <!-- "q" \\ | é'


def shipped(name: str, target: Path) -> Task:
    """A shipped task without anything that a run may have left."""
    shutil.copytree(ROOT / "kernels" / name, target, ignore=shutil.ignore_patterns(".kernbench", "exports"))
    return taskfile.load(target)


def pulled(task: Task) -> list[tuple[PulledEntry, str]]:
    """Every entry of the log with its text."""
    text = (Path(task.folder) / "ITERATIONS.md").read_text()
    texts = re.split(r"(?m)^(?=## \d+ ·)", text)[1:]
    return list(zip(pulled_entries.read(Path(task.folder) / "ITERATIONS.md"), texts, strict=True))


@pytest.fixture(params=["", ODD])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Task, list[tuple[Summary, dict[str, CaseResult]]]]:
    """A log with its entries, and the runs that made them."""
    task = make_log(tmp_path / "t", 12, cases=3, odd=request.param)
    write_entries(task)
    journal = Journal(tmp_path / "t" / ".kernbench")
    return task, [(item, journal.cases_of(item.run)) for item in journal.summaries]


def test_a_pulled_entry_has_the_values_of_its_run(
    log: tuple[Task, list[tuple[Summary, dict[str, CaseResult]]]],
) -> None:
    task, runs = log
    assert {render.outcome(item) for item, _rows in runs} >= {"first", "improved", "wrong"}
    for (entry, text), (run, rows) in zip(pulled(task), runs, strict=True):
        for name in trailer.FORMS:
            value = getattr(run, name)
            expected = pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
            if name != "vs_best":
                assert getattr(entry, name) == expected, name
        assert (entry.vs_best is None) == (run.vs_best is None)
        assert (entry.iteration, entry.outcome, entry.took_over) == (run.iteration, render.outcome(run), run.took_over)
        assert (entry.hypothesis, entry.next) == (run.hypothesis, run.next)
        assert entry.environment.device == "cuda:0"
        assert (entry.ratio is None) == (run.ratio is None)
        found = pulled_entries.rows(task, text)
        assert list(found) == [case.id for case in task.timed if case.id in rows]
        for case, row in found.items():
            assert (row.status, row.verdict) == (rows[case].status, rows[case].verdict)
            for name in ("baseline_us", "solution_us", "speedup", "low", "high"):
                value = getattr(rows[case], name)
                assert getattr(row, name) == (value if value is None else pytest.approx(value, rel=1e-5))


def test_the_comment_stays_one_comment_on_one_line(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 2, ODD)
    rows = rows_of(task, 1, 1.2, {}, 1)
    summary = replace(summary_of(task, 1, rows, []), baseline="--", code="-->")
    line = EntryText(task, summary, {row.id: row for row in rows})(1).splitlines()[-1]
    assert line.startswith("<!-- kernbench {")
    assert line.endswith("} -->")
    assert "--" not in line[4:-3]
    assert line.isascii()
    data = trailer.read(line)
    assert data is not None
    assert (data["baseline"], data["code"]) == ("--", "-->")
    assert ODD in trailer.rows(line)


def test_a_row_takes_about_a_hundred_bytes_and_no_words(
    log: tuple[Task, list[tuple[Summary, dict[str, CaseResult]]]],
) -> None:
    task, _runs = log
    for entry, text in pulled(task):
        rows = json.loads(text.rstrip().splitlines()[-1].removeprefix("<!-- kernbench ").removesuffix(" -->"))["rows"]
        assert len(rows) == len(task.timed)
        assert max(len(json.dumps(row, separators=(",", ":"))) for row in rows) <= 100
        assert len(entry.hypothesis) > 5
        assert entry.hypothesis not in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<!-- kernbench {", "<!-- kernbench ["),
        ("} -->", "} ->"),
        ('"schema":1', '"schema":99'),
        ('"right":true,', ""),
        ('"right":true', '"right":1'),
        ('"geomean":', '"geomean":"fast","x":'),
        ('"verdict":"faster"', '"verdict":"quick"'),
        ('"environment":{', '"environment":[],"x":{'),
        ('"rows":[', '"rows":{'),
        ('"counts":{', '"counts":{"a":"b",'),
        ('"source":"', '"source":"00'),
        ('"at":"2026', '"at":"2025'),
    ],
)
def test_a_broken_trailer_does_not_count(tmp_path: Path, old: str, new: str) -> None:
    task = make_log(tmp_path / "t", 2, cases=3)
    write_entries(task)
    path = Path(task.folder) / "ITERATIONS.md"
    whole = pulled(task)[1]
    head, mark, end = path.read_text().rpartition("<!-- kernbench ")
    assert whole[0].run
    assert old in mark + end
    path.write_text(head + (mark + end).replace(old, new, 1))
    _same_as_without(task, *pulled(task)[1])


def test_a_doubled_trailer_does_not_count(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 1, cases=3)
    write_entries(task)
    path = Path(task.folder) / "ITERATIONS.md"
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    _same_as_without(task, *pulled(task)[0])


def _same_as_without(task: Task, entry: PulledEntry, text: str) -> None:
    """The entry is the one that the same text without any trailer gives, times and speedups of its table included."""
    body = "\n".join(line for line in text.split("\n") if not line.startswith("<!--"))
    number, rest = entry.iteration or 0, body.partition(" ·")[2]
    assert entry == pulled_entries.parse(number, rest, entry.source)
    assert (entry.run, entry.verdict) == ("", None)
    assert entry.geomean
    assert set(old_entries.rows(task, text)) == {case.id for case in task.timed}


def test_rewording_leaves_the_trailer_as_it_is(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 3, cases=3)
    write_entries(task)
    book = Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench")
    before = [text.rstrip().splitlines()[-1] for _entry, text in pulled(task)]
    book.reword(book.journal.summaries[2], "other words\nin two lines", "a step")
    book.set_next("another step")
    iterations_file.add_evidence(book.path, book.journal.summaries[2], "registers 32")
    text = book.path.read_text()
    assert "- hypothesis: other words\n  in two lines\n" in text
    assert "- next: another step\n" in text
    assert "- evidence: registers 32\n" in text
    assert [part.rstrip().splitlines()[-1] for _entry, part in pulled(task)] == before
    assert pulled(task)[2][0].hypothesis == "other words in two lines"


def test_people_do_not_read_the_trailer(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 2, cases=3)
    write_entries(task)
    book = Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench")
    assert "<!--" not in book.text(1)
    assert book.text(1).endswith(" |\n")
    assert "<!--" not in export.text(task, book.state, "md")


def sharing_a_plot(entries: list[tuple[PulledEntry, str]]) -> list[PulledEntry]:
    """Those of the newest task and baseline that more than one has, else of the newest; old ones name no whole hash."""
    kinds = [(entry.task_hash[:8], entry.baseline) for entry, _text in entries]
    shared = [kind for kind in kinds if kinds.count(kind) > 1] or kinds
    return [entry for (entry, _text), kind in zip(entries, kinds, strict=True) if kind == shared[-1]]


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_is_listed_plotted_and_exported_without_a_run(name: str, tmp_path: Path) -> None:
    task = shipped(name, tmp_path / name)
    book = Logbook(Path(task.folder), tmp_path / "state", task)
    listed = list(book.iterations())
    entries = pulled(task)
    assert [item.iteration for item in listed] == [entry.iteration for entry, _text in entries]
    entries = [(entry, text) for entry, text in entries if entry.outcome != "checked"]  # those have no times
    shared = sharing_a_plot(entries)
    entries = [(entry, text) for entry, text in entries if entry.right]
    assert entries
    if len(entries) > 1:
        plot = "\n".join("".join(text for text, _style in line) for line in trajectory.draw(book.iterations(), 80, 20))
        assert "─ best" in plot
        assert f"#{listed[-1].iteration}" in plot
    page = export.text(task, tmp_path / "state", "html")
    drawn = [entry for entry in shared if entry.right]
    assert page.count('<circle class="') == len(drawn)
    chart = page[page.index('id="heatmap"') :]
    chart = chart[: chart.index("</svg>")]
    assert chart.count("<g><title>") == len(shared) * len(task.timed)
    for entry, text in entries:
        rows = pulled_entries.rows(task, text)
        assert len(rows) == len(re.findall(r"(?m)^\| (?!case |---)", text))
        assert set(rows) >= {case.id for case in task.timed if case.headline}
        for case in (case for case in task.timed if case.id in rows):
            row = rows[case.id]
            assert row.ratio is not None or not case.headline  # a baseline may refuse what no production row asks for
            if row.ratio is None:
                assert f"| {case.label} | - | {fmt.microseconds(row.solution_us)} | - |" in text
                continue
            cells = (case.label, fmt.microseconds(row.baseline_us), fmt.microseconds(row.solution_us))
            assert f"| {' | '.join(cells)} | {fmt.speedup(row.ratio)} |" in text
            assert (f"#{entry.iteration} {case.label}: {row.speedup:.3f}x</title>" in chart) == (entry in drawn)
        assert entry.low is not None
        assert f"geomean {fmt.times(entry.geomean)} " in text
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_new_entry_changes_no_byte_of_what_was_shipped(name: str, tmp_path: Path) -> None:
    task = shipped(name, tmp_path / name)
    path = Path(task.folder) / "ITERATIONS.md"
    before, numbers = path.read_bytes(), [entry.iteration for entry, _text in pulled(task)]
    made = make_task(tmp_path / "t", 2)
    rows = rows_of(made, 1, 1.2, {}, 1)
    results = {row.id: row for row in rows}
    entered = Logbook(Path(task.folder), tmp_path / "state").enter(made, lambda: summary_of(made, 1, rows, []), results)
    assert path.read_bytes().startswith(before)
    assert [entry.iteration for entry, _text in pulled(task)] == [*numbers, entered.iteration]
    assert pulled(task)[-1][0].run == entered.run
