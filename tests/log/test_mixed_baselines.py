"""Runs over several baselines, on several machines: every number says what it is over, and best has one meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench import export, report
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import Notice, PulledEntry, Summary
from kernbench.log import overview
from kernbench.log.runs import comparison
from kernbench.task.baseline import Baseline, BaselineError
from tests import FAKE
from tests.log.test_pulled_entries import said
from tests.sessions import run_and_confirm, write

pytestmark = pytest.mark.anyio


async def run(folder: Path, words: str, state: str = ".kernbench", baseline: str | None = None) -> list[object]:
    """One iteration; its summary and what was said after it."""
    session = Session(taskfile.load(folder), folder / state, Options(harness=FAKE, baseline=baseline))
    session.notes.hypothesis, heard = words, list[object]()
    session.listen(heard.append)
    try:
        summary = await run_and_confirm(session, iteration=True)
    finally:
        await session.close()
    assert isinstance(summary, Summary)
    return [summary, *(event.text for event in heard if isinstance(event, Notice))]


async def test_against_the_best_alone_nothing_is_decided_and_the_run_says_so(folder: Path) -> None:
    await run(folder, "first")
    for number, time_us in enumerate((48.0, 30.0, 25.0, 20.0), start=2):
        write(folder, f"TIME_US = {time_us}")
        summary, *_ = await run(folder, f"number {number}", baseline="best")
        assert isinstance(summary, Summary)
        assert summary.not_best == "timed only against best; a new best needs a run against eager"
        assert (summary.best, summary.stalled, summary.counted) == (False, False, False)
    assert "## 5 · number 5 · 5.00x · faster (over best)\n" in (folder / "ITERATIONS.md").read_text()


async def test_what_others_see_is_over_the_tasks_own_baseline(folder: Path) -> None:
    await run(folder, "first")
    await run(folder, "beside another", baseline="compile")
    task, state = taskfile.load(folder), folder / ".kernbench"
    assert "Best: #1, geomean 2.00x ±0.1% against eager." in export.text(task, state, "md")
    assert "| beside another (over compile) |" in export.text(task, state, "md")
    assert "beside another (over compile)" in export.text(task, state, "html")
    assert export.text(task, state, "pr").startswith("# toy: 2.00x over eager")
    assert overview.of(folder).last.endswith(" over compile")
    assert (
        "## 2 · beside another · 2.00x · faster (over compile, same source as #1)\n"
        in (folder / "ITERATIONS.md").read_text()
    )


async def test_the_first_here_is_told_beside_a_better_one_of_elsewhere(folder: Path) -> None:
    write(folder, "TIME_US = 25.0")
    await run(folder, "theirs", state=".far")
    write(folder, "TIME_US = 80.0")
    summary, *said_then = await run(folder, "mine", state=".here")
    assert said_then == ["first best on this machine; the best in the log is #1 (4.00x over eager)"]
    assert "best so far over eager" in report.outcome(summary)  # type: ignore[arg-type]
    write(folder, "TIME_US = 25.0")
    summary, *said_then = await run(folder, "theirs again", state=".here")
    assert said_then == []
    assert "best so far over eager · same source as #1" in report.outcome(summary)  # type: ignore[arg-type]
    assert "· 4.00x · improved (best was 1.25x, same source as #1)\n" in (folder / "ITERATIONS.md").read_text()


async def test_a_merge_that_was_left_unresolved_is_named(folder: Path) -> None:
    await run(folder, "first")
    log = folder / "ITERATIONS.md"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:4], "<<<<<<< HEAD", *lines[4:], ""]))
    told = "ITERATIONS.md:5: unresolved merge; entries around the markers may contain each other's lines"
    state = folder / ".kernbench"
    assert said("log", str(folder), state=state).startswith(f"kernbench: {told}\n")
    assert said("show", str(folder), "1", state=state).startswith(f"kernbench: {told}\n")
    write(folder, "TIME_US = 20.0")
    assert told in (await run(folder, "second"))[1:]
    log.write_text(log.read_text().replace("<<<<<<< HEAD\n", ""))
    assert "merge" not in said("log", str(folder), state=state)


async def test_a_hash_names_the_entry_and_not_a_later_plain_run(folder: Path) -> None:
    first, *_ = await run(folder, "first")
    assert isinstance(first, Summary)
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE, baseline="compile"))
    await run_and_confirm(session, iteration=False)
    await session.close()
    assert said("show", str(folder), first.source[:6], state=folder / ".kernbench").startswith("## 1 · first · 2.00x")


def item(geomean: float | None, **more: object) -> Summary:
    known = Summary("r", "ab", "2026-11-14T21:03:00+00:00", geomean is not None, geomean=geomean)
    return dataclasses.replace(known, **more)  # type: ignore[arg-type]


def test_the_level_of_the_best_rises_between_entries_too() -> None:
    entries = [
        item(None),
        item(1.2, best=True),
        item(1.1, best_geomean=1.2),
        item(1.8, best_geomean=1.7),  # a run that made no entry had taken over
        item(None, best_geomean=1.7),
        item(1.6, best=True, best_geomean=1.7),  # the best, timed again
    ]
    assert comparison.best_levels(entries) == [None, 1.2, 1.2, 1.7, 1.7, 1.7]


async def test_a_heading_says_what_a_word_is_about(folder: Path) -> None:
    await run(folder, "first")
    for time_us, heading in ((80.0, "2 · slower one · 1.25x · slower than best (2.00x)"), (50.2, "3 · ")):
        write(folder, f"TIME_US = {time_us}")
        await run(folder, "slower one")
        assert f"## {heading}" in (folder / "ITERATIONS.md").read_text()
    assert "· same as best (2.00x)\n" in (folder / "ITERATIONS.md").read_text()


async def test_what_is_edited_in_the_log_is_what_lists_and_exports_say(folder: Path) -> None:
    await run(folder, "eight rows ± a warp")
    write(folder, "TIME_US = 25.0")
    await run(folder, "second")
    log, task, state = folder / "ITERATIONS.md", taskfile.load(folder), folder / ".kernbench"
    own = log.read_text()
    log.write_text(f"A note of mine: ±.\n\n{own}".replace("- hypothesis: second", "- hypothesis: in my words ·"))
    listed = said("log", str(folder), state=state).splitlines()[1:]
    assert [line.split("  ")[-1].strip() for line in listed] == ["eight rows ± a warp", "in my words ·"]
    for form in ("md", "html"):
        assert "in my words ·" in export.text(task, state, form)
    log.write_text(log.read_text().replace("- next: -", "- next: sixteen"))
    assert '"next":"sixteen"' in said("log", str(folder), "--json", state=state).replace(" ", "")
    log.write_text(own.replace("- hypothesis: second\n", ""))  # taken out: then the run's own words are all there is
    assert said("log", str(folder), state=state).splitlines()[-1].endswith("second")
    log.unlink()
    assert said("log", str(folder), state=state).splitlines()[-1].endswith("second")


@pytest.mark.parametrize(
    "saved",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"caf\xe9\n\n" + data,
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data + data[data.index(b"## 2") :],  # the entry twice
    ],
)
async def test_edited_words_are_found_in_any_file(folder: Path, saved: Callable[[bytes], bytes]) -> None:
    await run(folder, "first ±")
    write(folder, "TIME_US = 25.0")
    await run(folder, "second")
    log = folder / "ITERATIONS.md"
    log.write_bytes(saved(log.read_bytes().replace(b"- hypothesis: second", "- hypothesis: ± edited".encode())))
    listed = said("log", str(folder), state=folder / ".kernbench")
    assert "± edited" in listed
    assert "  second" not in listed


async def test_long_and_wrapped_words_are_whole(folder: Path) -> None:
    long = "word " * 1500 + "end"
    await run(folder, long)
    state, log = folder / ".kernbench", folder / "ITERATIONS.md"
    assert long in said("log", str(folder), "--json", state=state)
    log.write_text(log.read_text().replace(f"- hypothesis: {long}", "- hypothesis: the one half\n  and the other"))
    assert said("log", str(folder), state=state).splitlines()[-1].endswith("the one half and the other")


async def test_an_export_is_of_the_task_as_it_is(folder: Path) -> None:
    await run(folder, "of the task before")
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace('label = "a"', 'label = "A"') + "\n# another\n")
    (folder / "reference.py").write_text((folder / "reference.py").read_text() + "\nCHANGED = True\n")
    await run(folder, "of the task now", baseline="compile")
    task, state = taskfile.load(folder), folder / ".kernbench"
    told = export.text(task, state, "md")
    assert "\nBest: " not in told  # neither the task as it was nor another baseline makes one
    assert "| of the task now (over compile) |" in told


async def test_the_best_itself_is_not_called_not_best(folder: Path) -> None:
    await run(folder, "first")
    summary, *_ = await run(folder, "once more", baseline="best")
    assert isinstance(summary, Summary)
    assert summary.not_best == ""


def test_a_pulled_best_that_was_timed_again_keeps_the_line() -> None:
    known = PulledEntry("", "ab", "2026-11-14T21:03:00+00:00", True, best=True)
    entries = [
        dataclasses.replace(known, geomean=geomean, outcome=outcome)
        for geomean, outcome in ((2.0, "first"), (3.0, "improved"), (2.6, "best"), (2.9, "same"))
    ]
    assert comparison.best_levels(entries) == [2.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("given", ["alt.py", "./alt.py", "ABSOLUTE"])
async def test_another_text_of_a_file_is_another_series(folder: Path, given: str) -> None:
    """However it was spelled; of one session too."""
    (folder / "alt.py").write_text("from part import toy\n")
    (folder / "part.py").write_text("def toy(x): return x\n")
    name = given.replace("ABSOLUTE", str(folder / "alt.py"))
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE, baseline=name))
    seen = []
    try:
        for text in ("def toy(x): return x\n", "def toy(x): return x.clone()\n", "def toy(x): return x\n"):
            (folder / "part.py").write_text(text)
            seen.append(await run_and_confirm(session, iteration=True))
    finally:
        await session.close()
    first, other, again = [summary.baseline for summary in seen if isinstance(summary, Summary)]
    assert first == again != other
    assert [name.partition("@")[0] for name in (first, other)] == ["alt.py", "alt.py"]
    assert session.baseline == again
    assert isinstance(seen[1], Summary)
    assert not seen[1].best
    assert seen[1].not_best == f"timed against {other}; a new best needs a run against eager"


async def test_a_file_that_is_gone_is_one_sentence(folder: Path) -> None:
    (folder / "alt.py").write_text("def toy(x): return x\n")
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE, baseline="alt.py"))
    (folder / "alt.py").unlink()
    try:
        with pytest.raises(BaselineError, match=r"cannot read the baseline alt\.py; choose another"):
            await run_and_confirm(session, iteration=True)
    finally:
        await session.close()
    assert not session.logbook.iterations()


async def test_the_tasks_own_file_keeps_its_name(folder: Path) -> None:
    (folder / "baseline.py").write_text("def toy(x): return x\n")
    task = taskfile.load(folder)
    for text in ("baseline.py", "./baseline.py", str(folder / "baseline.py")):
        assert Baseline.parse(text, task) == Baseline("baseline.py")


@pytest.mark.parametrize("text", ["~nobody-of-this-name/x.py", "nowhere.py", "x\0.py", "."])
async def test_what_is_no_file_is_one_sentence(folder: Path, text: str) -> None:
    with pytest.raises(BaselineError, match="expected eager, compile, best, a file or git:REV"):
        Baseline.parse(text, taskfile.load(folder))


@pytest.mark.parametrize(("asked", "over"), [(None, ["eager", "baseline.py"]), ("compile", ["eager", "compile"])])
async def test_a_baseline_changed_in_the_task_counts_unless_another_was_asked_for(
    folder: Path, asked: str | None, over: list[str]
) -> None:
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE))
    try:
        seen = [await run_and_confirm(session, iteration=True)]
        if asked:
            session.set_baseline(asked)
        (folder / "baseline.py").write_text("def toy(x): return x\n")
        seen.append(await run_and_confirm(session, iteration=True))
    finally:
        await session.close()
    assert [summary.baseline for summary in seen if isinstance(summary, Summary)] == over
