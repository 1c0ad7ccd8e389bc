"""A log that travelled without its runs: its entries are listed, and stay as they are whatever is run here."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared import format as fmt
from harness.shared import taskfile
from kernbench import export, render
from kernbench.cli import cli
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import PulledEntry, RunStarted, Summary
from kernbench.log import overview, stored_sources
from kernbench.log.entries import iterations_file, pulled_entries
from kernbench.log.runs.journal import Journal
from tests import FAKE, ROOT
from tests.sessions import Watched, run_and_confirm, toy, write

pytestmark = pytest.mark.anyio
Watch = Callable[..., Watched]
SHIPPED = ROOT / "kernels"


async def run(folder: Path, state: str, words: str | None = None, case: str | None = None, **options: str) -> Summary:
    """One run with the state of one machine or another; with words it is an iteration."""
    session = Session(taskfile.load(folder), folder / state, Options(harness=FAKE, case=case, **options))  # type: ignore[arg-type]
    session.notes.hypothesis = words or ""
    try:
        outcome = await run_and_confirm(session, iteration=words is not None)
    finally:
        await session.close()
    assert isinstance(outcome, Summary)
    return outcome


def said(*words: str, state: Path) -> str:
    """What a command prints, or the sentence it fails with."""
    result = CliRunner().invoke(cli, [*words, "--state", str(state)])
    return result.output if result.exception is None else str(result.exception)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy(tmp_path_factory.mktemp("made") / "toy")
    for time_us, words in ((80.0, "one row a warp"), (50.0, "two rows a warp")):
        write(folder, f"TIME_US = {time_us}")
        asyncio.run(run(folder, ".far", words))
    return folder


@pytest.fixture
def shipped(folder: Path, made: Path) -> Path:
    """Two entries made on another machine; the folder holds the source of the second."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


async def test_entries_without_runs_are_listed_and_shown(shipped: Path) -> None:
    state, name = shipped / ".here", str(shipped)
    first, second = said("log", name, state=state).splitlines()[1:]
    assert first.split()[4:] == "1.25x ±0.1% first one row a warp (from another machine)".split()
    assert "2.00x ±0.1%  improved" in second
    assert said("show", name, "1", state=state).startswith("## 1 · one row a warp · 1.25x · first\n")
    for words in (("diff", name, "1"), ("restore", name, "1")):
        sentence = said(*words, state=state)
        assert sentence.startswith("entry 1 was not recorded here: its source (")
        assert sentence.endswith(f") is not in this state folder ({state})")
    assert said("diff", name, "2", state=state) == "no difference between 2 and now\n"  # the one that the folder holds
    assert said("show", name, "best", state=state).startswith("## 2 · two rows a warp · 2.00x · improved")
    assert said("diff", name, "1", "best", state=state).startswith("entry 1 was not recorded here")
    assert said("diff", name, "best", state=state) == "no difference between 2 and now\n"
    assert "the log has 1 to 2" in said("show", name, "7", state=state)
    assert not state.exists()


async def test_a_run_of_an_entrys_source_stands_beside_it(shipped: Path, watched: Watch) -> None:
    it = watched()
    await it.session.start()
    await it.confirmed()
    opening = it.session.logbook.journal.summaries[0]
    assert (opening.iteration, opening.repeats, opening.holds) == (None, 2, True)
    listed = it.session.logbook.iterations()
    assert [(type(item), item.iteration) for item in listed] == [(PulledEntry, 1), (PulledEntry, 2)]
    assert isinstance(listed[1], PulledEntry)
    assert listed[1].again == opening
    assert (listed[1].hypothesis, render.outcome(listed[1])) == ("two rows a warp", "improved")
    write(shipped, "TIME_US = 60.0")
    await it.ended(2)
    assert [item.iteration for item in it.session.logbook.iterations()] == [1, 2, 3]
    task, journal = it.session.task, it.session.logbook.journal
    best = stored_sources.summary_of(task, journal, "best")
    assert (best.iteration, best.run) == (2, opening.run)
    assert "TIME_US = 50.0" in (stored_sources.find(task, journal, "2").folder / "solution.py").read_text()
    text = said("show", str(shipped), "2", state=it.session.state)
    assert text.startswith("## 2 · two rows a warp")
    assert "\nTimed again on this machine:\n" in text
    start = it.of(RunStarted)[-1]
    assert isinstance(start, RunStarted)
    assert start.best == opening.source  # it serves as the opponent all the same
    assert overview.of(shipped).iterations == 3


async def test_the_rows_of_every_iteration_are_at_hand(shipped: Path, watched: Watch) -> None:
    """Those of another machine are in its text, those of a run here in runs.jsonl: the heat map shows both."""
    write(shipped, "TIME_US = 40.0")
    it = watched()
    await it.session.start()
    await it.ended(1)
    found = [it.session.archive.rows(item) for item in it.session.logbook.iterations()]
    speedups = [{row.speedup for row in rows.values() if row.speedup is not None} for rows in found]
    assert [{round(speedup, 2) for speedup in known} for known in speedups] == [{1.25}, {2.0}, {2.5}]


async def test_an_earlier_entrys_source_makes_no_new_entry_when_opened(shipped: Path, watched: Watch) -> None:
    write(shipped, "TIME_US = 80.0")
    it = watched()
    await it.session.start()
    await it.ended(1)
    assert iterations_file.last_entry(shipped / "ITERATIONS.md") == (2, it.session.logbook.iterations()[1].source[:8])
    again = [item.again for item in it.session.logbook.iterations() if isinstance(item, PulledEntry)]
    assert [run and run.run for run in again] == [it.session.logbook.journal.summaries[0].run, None]


async def test_a_later_run_changes_nothing_of_an_entry_made_elsewhere(shipped: Path) -> None:
    log, state, name = shipped / "ITERATIONS.md", shipped / ".here", str(shipped)
    log.write_text(re.sub(r"- when \S+ \S+ UTC", "- when 2026-01-02 03:04 UTC", log.read_text()))
    row, line = said("log", name, state=state).splitlines()[2], said("log", name, "--json", state=state).splitlines()[1]
    run_here = await run(shipped, ".here")
    after = said("log", name, state=state).splitlines()[2]
    assert after == row.replace("machine)", "machine, timed again here: 2.00x)")
    data, old = json.loads(said("log", name, "--json", state=state).splitlines()[1]), json.loads(line)
    assert data.pop("again")["run"] == run_here.run
    assert old.pop("again") is None
    assert data == old
    md = export.text(taskfile.load(shipped), state, "md")
    told = next(line for line in md.splitlines() if line.startswith("| #2 |"))
    assert "| 2026-01-02 03:04 UTC |" in told
    assert "two rows a warp (from another machine, timed again here: 2.00x) |" in told
    assert "| #1 | 2026-01-02 03:04 UTC |" in md
    assert "Best: #2 as timed again here, geomean 2.00x ±0.1% against eager." in md
    assert md.index("\n## 1 · one row a warp") < md.index("\n## 2 · two rows a warp")
    page = export.text(taskfile.load(shipped), state, "html")
    assert "two rows a warp (from another machine, timed again here: 2.00x)" in page
    assert page.count("2026-01-02 03:04") == 4  # in the list, and in the page's own section of each


async def test_a_part_of_the_cases_stands_for_no_entry(shipped: Path) -> None:
    await run(shipped, ".here", case="a")
    journal = Journal(shipped / ".here")
    assert [type(item) for item in pulled_entries.PulledEntries(shipped / "ITERATIONS.md").iterations(journal)] == [
        PulledEntry
    ] * 2
    found = overview.of(shipped, shipped / ".here")
    assert (found.iterations, found.best, found.last) == (2, "2.00x", "2.00x partial (some cases)")
    await run(shipped, ".here")
    await run(shipped, ".here", case="a*")
    assert overview.of(shipped, shipped / ".here").last == "2.00x first"


async def test_exports_begin_with_the_source_that_was_opened(shipped: Path) -> None:
    state = shipped / ".here"
    await run(shipped, ".here")
    task = taskfile.load(shipped)
    body = export.text(task, state, "pr")
    assert body.startswith("# toy: 2.00x over eager")
    assert (
        "It began with #2 as timed again here, 2.00x ±0.1%.\n\n2 iterations, 2 of them from another machine, no new"
        in body
    )
    assert "best, #2 as timed again here, against eager" in export.text(task, state, "html")
    for time_us in (60.0, 70.0, 75.0):
        write(shipped, f"TIME_US = {time_us}")
        await run(shipped, ".here", f"{time_us} us")
    body = export.text(task, state, "pr", after="5")
    assert "| case | baseline us | #2 again us | #5 us |" in body
    assert "5 iterations, 2 of them from another machine, no new best here." in body
    assert "Best: #2 as timed again here, geomean 2.00x" in export.text(task, state, "md")
    rows = csv.DictReader(io.StringIO(export.text(task, state, "csv")))
    assert {(row["iteration"], row["repeats"]) for row in rows} == {("", "2"), ("3", ""), ("4", ""), ("5", "")}
    assert "entry 1 is from another machine" in said(
        "export", str(shipped), *"--format pr -o - --after 1".split(), state=state
    )


async def test_a_source_without_a_number_is_named_by_what_it_was(folder: Path) -> None:
    await run(folder, ".here")
    write(folder, "TIME_US = 60.0")
    await run(folder, ".here", "a detour")
    task, state = taskfile.load(folder), folder / ".here"
    body = export.text(task, state, "pr", after="1")
    assert "| case | baseline us | as opened us | #1 us |" in body
    assert "It began with the source as first opened, 2.00x ±0.1%.\n\n1 iteration, no new best.\n" in body
    assert "best, the source as first opened, against eager" in export.text(task, state, "html")
    assert "Best: the source as first opened" in export.text(task, state, "md")


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


async def test_a_source_that_comes_again_names_its_first_entry(shipped: Path) -> None:
    numbers = [(await run(shipped, ".here", "unchanged")).repeats for _again in range(3)]
    assert numbers == [2, 2, 2]


async def test_a_column_has_the_numbers_of_the_entry_that_it_names(folder: Path) -> None:
    await run(folder, ".here")
    state, runs = folder / ".here", folder / ".here" / "runs.jsonl"
    runs.write_text(runs.read_text().replace('"solution_us":50.0', '"solution_us":47.0'))  # of a noisier run
    await run(folder, ".here", "as it is")
    write(folder, "TIME_US = 25.0")
    await run(folder, ".here", "faster")
    body = export.text(taskfile.load(folder), state, "pr")
    assert "| case | baseline us | #1 us | #2 us |" in body
    assert "| a 16x16 | 100.0 | 50.00 | 25.00 |" in body
    assert body == export.text(taskfile.load(folder), state, "pr", before="1")
    write(folder, "TIME_US = 50.0")
    text = said("show", str(folder), "1", state=state)
    assert "Timed again" not in text


async def test_two_entries_with_one_number_are_both_told(shipped: Path) -> None:
    write(shipped, "TIME_US = 40.0")
    mine = await run(shipped, ".here", "mine")
    log, state, name = shipped / "ITERATIONS.md", shipped / ".here", str(shipped)
    entry = iterations_file.entry_of(log, 3)
    assert entry is not None
    theirs = entry.replace("mine", "theirs").replace(mine.source[:8], "0000beef")
    log.write_text(f"{log.read_text()}\n{theirs}")
    warning = "kernbench: two entries are numbered 3, probably from merging two logs"
    listed = said("log", name, state=state)
    assert listed.startswith(f"{warning}; `kernbench show {name} 3` prints both\n")
    assert [line.split()[0] for line in listed.splitlines()[2:]] == ["1", "2", "3", "3"]
    told = said("show", name, "3", state=state)
    assert told.startswith(f"{warning}; here are both\n")
    assert re.findall(r"^## 3 · (\w+)", told, re.MULTILINE) == ["mine", "theirs"]
    hashes = ", ".join(sorted(["0000beef", mine.source[:8]]))
    assert said("restore", name, "3", state=state).endswith(f"; give the hash of one: {hashes}")
    assert said("diff", name, mine.source[:8], state=state).startswith("no difference")


async def test_nor_is_one_lost_that_has_the_same_source_too(shipped: Path) -> None:
    mine = await run(shipped, ".here", "mine")
    log, state, name = shipped / "ITERATIONS.md", shipped / ".here", str(shipped)
    entry = iterations_file.entry_of(log, 3)
    assert entry is not None
    theirs = entry.replace("mine", "theirs").replace(render.minute(mine.at), "2026-01-02 03:04 UTC")
    log.write_text(f"{log.read_text()}\n{theirs}")
    listed = said("log", name, state=state).splitlines()
    assert "mine" in listed[-2]
    assert "theirs (from another machine" in listed[-1]
    assert re.findall(r"^## 3 · (\w+)", said("show", name, "3", state=state), re.MULTILINE) == ["mine", "theirs"]


async def test_the_best_of_today_is_marked(shipped: Path) -> None:
    state, name = shipped / ".here", str(shipped)
    assert [("best now" in line) for line in said("log", name, state=state).splitlines()[1:]] == [False, True]
    await run(shipped, ".here")
    write(shipped, "TIME_US = 25.0")
    await run(shipped, ".here", "half")
    write(shipped, "TIME_US = 60.0")
    await run(shipped, ".here", "a detour")
    lines = said("log", name, state=state).splitlines()[1:]
    assert [("best now" in line) for line in lines] == [False, False, True, False]
    assert "  improved, best now  " in lines[2]
    data = [json.loads(line) for line in said("log", name, "--json", state=state).splitlines()]
    assert [item["best_now"] for item in data] == [False, False, True, False]
    task = taskfile.load(shipped)
    assert export.text(task, state, "md").count("| improved, best now |") == 1
    assert export.text(task, state, "html").count("improved, best now") == 1


async def test_a_pull_request_without_runs_says_what_to_do(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, state = taskfile.load(shipped), shipped / ".here"
    with pytest.raises(export.ExportError, match=r"on this machine yet; `kernbench run toy` times it here$"):
        export.text(task, state, "pr")
    monkeypatch.chdir(SHIPPED.parent)
    shown = r"times it here, and kernels/rms_norm/exports/pull_request holds its author's export"
    with pytest.raises(export.ExportError, match=shown):
        export.text(taskfile.load(SHIPPED / "rms_norm"), state, "pr")
    (shipped / "exports").mkdir()
    (shipped / "exports" / "toy.html").touch()
    with pytest.raises(export.ExportError, match=r"times it here, and \S+/exports/toy\.html is its author's export$"):
        export.text(task, state, "pr")


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
    for item in pulled_entries.read(path):
        score = f" · {fmt.times(item.geomean)} · {item.outcome}" if item.geomean else f" · {item.outcome}"
        assert f"\n## {item.iteration} · " in text
        assert score in text
        assert f"\n- hypothesis: {item.hypothesis}\n" in text
        assert f"- when {render.minute(item.at)} · source {item.source[:8]} · {item.environment.device_name} · " in text
        assert f" · baseline {item.baseline} · {item.environment.condition}" in text


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        (" a · b · 1.25x · slower (best was 1.30x)", ("a · b", 1.25, "slower", True)),
        (" no build came of it · wrong (best was 1.30x)", ("no build came of it", None, "wrong", False)),
        (" older · 1.20x · faster (than best: 1.10x)", ("older", 1.2, "faster", True)),
        (" newer · 1.20x · faster than best (1.10x)", ("newer", 1.2, "faster", True)),
        (" older · 1.20x · same (over compile, as best: 1.21x)", ("older", 1.2, "same", True)),
        (" newer · 1.20x · same as best (1.21x, over compile)", ("newer", 1.2, "same", True)),
        (" older · 1.20x · part", ("older", 1.2, "part", True)),
        (" newer · 1.20x · partial", ("newer", 1.2, "partial", True)),
        (" older: it does not compile · no build", ("older: it does not compile", None, "no build", False)),
        (" newer: it does not compile · build error", ("newer: it does not compile", None, "build error", False)),
        (" it hangs · timeout", ("it hangs", None, "timeout", False)),
        (" by hand", ("by hand", None, "", True)),
        ("", ("", None, "", True)),
        (" by hand · 1.0x\r", ("by hand", 1.0, "", True)),
    ],
)
def test_headings(heading: str, expected: tuple[str, float | None, str, bool]) -> None:
    found = pulled_entries.parse(3, f"{heading}\nwords\n", "")
    assert (found.hypothesis, found.geomean, found.outcome, found.right) == expected
    assert render.outcome(found) == (expected[2] or "-")


@pytest.mark.parametrize("text", ["", "# Iterations of toy\n", "words\n\n### 3 · not one of ours\n"])
def test_a_log_without_entries(folder: Path, text: str) -> None:
    path = folder / "ITERATIONS.md"
    assert not pulled_entries.PulledEntries(path).iterations(Journal(folder / ".here"))
    path.write_text(text)
    assert not pulled_entries.PulledEntries(path).iterations(Journal(folder / ".here"))


async def test_the_best_of_a_pulled_log_is_that_over_the_tasks_own_baseline(shipped: Path) -> None:
    with (shipped / "ITERATIONS.md").open("a") as log:
        log.write(
            "\n## 9 · against compile · 1.10x · first (over compile)\n\n"
            "- when 2026-11-01 10:00 UTC · source bbbbbbbb · Fake 9000 · no clock · baseline compile\n"
            "- result: 1.10x over compile\n"
        )
    assert said("show", str(shipped), "best", state=shipped / ".here").startswith("## 2 · two rows a warp")
