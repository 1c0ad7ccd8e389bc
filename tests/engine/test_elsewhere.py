"""A log that travelled without its runs: its entries are listed, and a run of one of their sources is that entry."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import taskfile
from kernbench import elsewhere, export, iterations, overview, render, trajectory
from kernbench.cli import cli
from kernbench.events import Elsewhere, Summary
from kernbench.jobs import Options
from kernbench.journal import Journal
from kernbench.session import Session
from tests.engine.conftest import FAKE, Watched, write

pytestmark = pytest.mark.anyio
Watch = Callable[..., Watched]
SHIPPED = Path(__file__).parents[2] / "kernels"


async def run(folder: Path, state: str, words: str | None = None, case: str | None = None, **options: str) -> Summary:
    """One run with the state of one machine or another; with words it is an iteration."""
    session = Session(taskfile.load(folder), folder / state, Options(harness=FAKE, case=case, **options))  # type: ignore[arg-type]
    session.remarks.hypothesis = words or ""
    try:
        ending = await session.run_once(iteration=words is not None)
    finally:
        await session.close()
    assert isinstance(ending, Summary)
    return ending


def said(*words: str, state: Path) -> str:
    """What a command prints, or the sentence it fails with."""
    result = CliRunner().invoke(cli, [*words, "--state", str(state)])
    return result.output if result.exception is None else str(result.exception)


@pytest.fixture
async def shipped(folder: Path) -> Path:
    """Two entries made on another machine; the folder holds the source of the second."""
    write(folder, "TIME_US = 80.0")
    await run(folder, ".far", "one row a warp")
    write(folder, "TIME_US = 50.0")
    await run(folder, ".far", "two rows a warp")
    return folder


async def test_entries_without_runs_are_listed_and_shown(shipped: Path) -> None:
    state, name = shipped / ".here", str(shipped)
    first, second = said("log", name, state=state).splitlines()[1:]
    assert first.split()[4:] == "1.25x first one row a warp (run made elsewhere)".split()
    assert "2.00x  improved" in second
    assert said("show", name, "1", state=state).startswith("## 1 · one row a warp · 1.25x · first\n")
    for words in (("diff", name, "1"), ("restore", name, "1")):
        sentence = said(*words, state=state)
        assert sentence.startswith("entry 1 was made elsewhere: its source (")
        assert sentence.endswith(") is not on this machine")
    assert said("diff", name, "2", state=state) == "no difference between 2 and now\n"  # the one that the folder holds
    assert "nothing was run on this machine yet" in said("show", name, "best", state=state)
    assert "there are 1 to 2" in said("show", name, "7", state=state)
    assert not state.exists()


async def test_a_run_of_an_entrys_source_is_that_entry(shipped: Path, watched: Watch) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    opening = it.session.logbook.journal.summaries[0]
    assert (opening.iteration, opening.repeats, opening.best) == (None, 2, True)
    listed = it.session.logbook.iterations()
    assert [(type(item), item.iteration) for item in listed] == [(Elsewhere, 1), (Summary, 2)]
    assert (listed[1].run, listed[1].hypothesis, render.outcome(listed[1])) == (opening.run, "two rows a warp", "first")
    write(shipped, "TIME_US = 60.0")
    await it.ended(2)
    assert [item.iteration for item in it.session.logbook.iterations()] == [1, 2, 3]
    task, journal = it.session.task, it.session.logbook.journal
    best = trajectory.summary_of(task, journal, "best")
    assert (best.iteration, best.run) == (2, opening.run)
    assert "TIME_US = 50.0" in (trajectory.find(task, journal, "2").folder / "solution.py").read_text()
    text = said("show", str(shipped), "2", state=it.session.state)
    assert text.startswith("## 2 · two rows a warp")
    assert "\nTimed again on this machine:\n" in text
    assert overview.of(shipped).iterations == 3


async def test_an_earlier_entrys_source_makes_no_new_entry_when_opened(shipped: Path, watched: Watch) -> None:
    write(shipped, "TIME_US = 80.0")
    it = watched()
    await it.session.start()
    await it.ended(1)
    assert iterations.last_entry(shipped / "ITERATIONS.md") == (2, it.session.logbook.iterations()[1].source)
    assert [type(item) for item in it.session.logbook.iterations()] == [Summary, Elsewhere]


async def test_a_part_of_the_cases_stands_for_no_entry(shipped: Path) -> None:
    await run(shipped, ".here", case="a")
    journal = Journal(shipped / ".here")
    assert [type(item) for item in elsewhere.Entries(shipped / "ITERATIONS.md").iterations(journal)] == [Elsewhere] * 2
    found = overview.of(shipped, shipped / ".here")
    assert (found.iterations, found.best, found.last) == (2, "-", "2.00x part of the cases")
    await run(shipped, ".here")
    await run(shipped, ".here", case="a*")
    assert overview.of(shipped, shipped / ".here").last == "2.00x first"


async def test_exports_begin_with_the_source_that_was_opened(shipped: Path) -> None:
    state = shipped / ".here"
    await run(shipped, ".here")
    task = taskfile.load(shipped)
    body = export.text(task, state, "pr")
    assert body.startswith("# toy: 2.00x over eager")
    assert "1 iteration:\n\n- #2 2.00x ±0.1%: two rows a warp\n" in body
    assert "best, #2, against eager" in export.text(task, state, "html")
    for time_us in (60.0, 70.0, 75.0):
        write(shipped, f"TIME_US = {time_us}")
        await run(shipped, ".here", f"{time_us} us")
    body = export.text(task, state, "pr", after="5")
    assert "| case | baseline us | #2 us | #5 us |" in body
    assert "4 iterations, 1 of them a new best:\n\n- #2 2.00x" in body
    assert "Best: #2, geomean 2.00x" in export.text(task, state, "md")
    rows = csv.DictReader(io.StringIO(export.text(task, state, "csv")))
    assert {row["iteration"] for row in rows} == {"2", "3", "4", "5"}
    assert "entry 1 was made elsewhere" in said(
        "export", str(shipped), *"--format pr -o - --after 1".split(), state=state
    )


async def test_a_source_without_a_number_is_named_by_what_it_was(folder: Path) -> None:
    await run(folder, ".here")
    write(folder, "TIME_US = 60.0")
    await run(folder, ".here", "a detour")
    task, state = taskfile.load(folder), folder / ".here"
    body = export.text(task, state, "pr", after="1")
    assert "| case | baseline us | as opened us | #1 us |" in body
    assert "It began with the source as it was opened, 2.00x ±0.1%.\n\n1 iteration, no new best.\n" in body
    assert "best, the source as it was opened, against eager" in export.text(task, state, "html")
    assert "Best: the source as it was opened" in export.text(task, state, "md")


async def test_the_same_source_is_no_improvement_over_itself(shipped: Path) -> None:
    await run(shipped, ".here")
    again = await run(shipped, ".here", "unchanged")
    assert again.best
    assert render.outcome(again) == "best"
    assert "## 3 · unchanged · 2.00x · best (same source as #2)\n" in (shipped / "ITERATIONS.md").read_text()
    assert "(same source as #2)" in said("log", str(shipped), state=shipped / ".here")


async def test_nor_is_it_where_the_first_run_made_no_entry(folder: Path) -> None:
    await run(folder, ".here")
    again = await run(folder, ".here", "unchanged")
    assert (again.repeats, again.streak, render.outcome(again)) == (None, 0, "best")
    ended = []
    for number in range(3):  # and it is no attempt: three others make a stall
        write(folder, f"TIME_US = {900 + number}.0")
        ended.append(await run(folder, ".here", "slower"))
    assert [(item.streak, item.stalled) for item in ended] == [(1, False), (2, False), (3, True)]


async def test_an_export_of_a_log_without_runs_says_what_to_do(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, state = taskfile.load(shipped), shipped / ".here"
    with pytest.raises(export.ExportError, match=r"on this machine yet; `kernbench run toy` times it here$"):
        export.text(task, state, "html")
    monkeypatch.chdir(SHIPPED.parent)
    shown = r"times it here, and kernels/rms_norm/exports/pull_request was exported where its log was made"
    with pytest.raises(export.ExportError, match=shown):
        export.text(taskfile.load(SHIPPED / "rms_norm"), state, "pr")


async def test_results_of_another_baseline_are_not_held_against(folder: Path, watched: Watch) -> None:
    await run(folder, ".kernbench")
    await run(folder, ".kernbench", baseline="compile")
    it = watched()
    eager, compiled = it.session.logbook.journal.summaries
    assert it.session.last_summary() == eager
    assert it.session.last_results() == it.session.logbook.journal.cases_of(eager.run)
    assert watched(baseline="compile").session.last_summary() == compiled
    best = watched(baseline="best").session
    assert (best.last_summary(), best.last_results()) == (None, {})


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SHIPPED.glob("*/ITERATIONS.md")))
def test_what_is_shipped_reads_back_as_it_is_written(name: str) -> None:
    path = SHIPPED / name / "ITERATIONS.md"
    text = path.read_text()
    for item in elsewhere.read(path):
        score = f" · {render.times(item.geomean)} · {item.outcome}"
        assert f"\n## {item.iteration} · " in text
        assert score in text
        assert f"\n- hypothesis: {item.hypothesis}\n" in text
        assert f"- when {render.minute(item.at)} · source {item.source} · {item.environment.device_name} · " in text
        assert f" · baseline {item.baseline} · {item.environment.condition}" in text


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        (" a · b · 1.25x · slower (best was 1.30x)", ("a · b", 1.25, "slower", True)),
        (" no build came of it · wrong (best was 1.30x)", ("no build came of it", None, "wrong", False)),
        (" it hangs · timeout", ("it hangs", None, "timeout", False)),
        (" by hand", ("by hand", None, "", True)),
        ("", ("", None, "", True)),
        (" by hand · 1.0x\r", ("by hand", 1.0, "", True)),
    ],
)
def test_headings(heading: str, expected: tuple[str, float | None, str, bool]) -> None:
    found = elsewhere.parse(3, f"{heading}\nwords\n", "")
    assert (found.hypothesis, found.geomean, found.outcome, found.right) == expected
    assert render.outcome(found) == (expected[2] or "-")


@pytest.mark.parametrize("text", ["", "# Iterations of toy\n", "words\n\n### 3 · not one of ours\n"])
def test_a_log_without_entries(folder: Path, text: str) -> None:
    path = folder / "ITERATIONS.md"
    assert not elsewhere.Entries(path).iterations(Journal(folder / ".here"))
    path.write_text(text)
    assert not elsewhere.Entries(path).iterations(Journal(folder / ".here"))
