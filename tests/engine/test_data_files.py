"""Data files in a session: what a kernel writes, what a person saves, what is too large, what a restore brings back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import Notice, RunCancelled, RunFinished, RunStarted
from kernbench.task import source_files
from tests.sessions import Watched, summaries, write

pytestmark = pytest.mark.anyio


def said(it: Watched) -> list[str]:
    return [event.text for event in it.of(Notice)]  # type: ignore[attr-defined]


async def test_a_kernel_that_writes_into_its_folder_starts_nothing(
    watched: Callable[..., Watched], folder: Path
) -> None:
    write(folder, 'DO = "dump"')
    it = watched()
    await it.session.start()
    await it.ended(1)
    assert (folder / "debug.txt").exists()
    write(folder, 'DO = "dump"\nTIME_US = 20.0')
    await it.ended(2)
    await it.idle()
    (folder / "debug.txt").write_text("by hand, while nothing runs")
    await it.until(lambda: "debug.txt changed: press r to run" in said(it))
    await it.idle()
    assert len(it.of(RunStarted)) == 2
    assert len(said(it)) == 1
    it.session.rerun()
    await it.ended(3)
    assert not it.of(RunCancelled)
    assert [run.iteration for run in it.session.logbook.journal.summaries] == [1, 2, 3]


async def test_a_table_saved_during_a_run_waits_for_a_key(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "slow"')
    it = watched()
    await it.session.start()
    await it.until(lambda: it.session.running is not None)
    (folder / "table.txt").write_text("1 2 3")
    await it.ended(1)
    await it.idle()
    assert (len(it.of(RunStarted)), said(it)) == (1, [])
    it.session.rerun()
    await it.ended(2)
    table = it.session.logbook.source(summaries(it)[-1].source) / "table.txt"
    assert table.read_text() == "1 2 3"


async def test_a_note_is_no_iteration(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    (folder / "plan.md").write_text("what to try")
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    assert [entry.iteration for entry in it.session.logbook.iterations()] == [1, 2]
    first, second = (it.session.logbook.source(run.source) for run in summaries(it))
    assert {path.name for path in second.iterdir()} == {path.name for path in first.iterdir()}
    assert said(it) == []


async def test_a_file_over_1_mb_that_the_code_loads_is_named_once(
    watched: Callable[..., Watched], folder: Path
) -> None:
    for name in ("weights.npy", "trace.bin"):
        (folder / name).write_bytes(b"0" * (source_files.LARGEST_FILE + 1))
    write(folder, 'DATA = "weights.npy"')
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'DATA = "weights.npy"\nTIME_US = 20.0')
    await it.ended(2)
    assert said(it) == ["weights.npy is over 1 MB, so it is not part of the source: load it by absolute path"]
    assert not (it.session.logbook.source(summaries(it)[0].source) / "weights.npy").exists()


async def test_after_a_restore_the_next_run_has_the_same_source(watched: Callable[..., Watched], folder: Path) -> None:
    """Whatever was added: data, headers, a helper; files that are not part of the source stay."""
    task = folder / "task.toml"
    task.write_text('ignore = ["mine.txt"]\n' + task.read_text())
    (folder / "table.txt").write_text("1 2 3")
    it = watched()
    await it.session.start()
    await it.ended(1)
    for name in ("table.txt", "more.txt", "rows.cuh", "helper.py", "plan.md", "mine.txt", "scratch.py"):
        (folder / name).write_text("x = 1\n")
    (folder / "large.npy").write_bytes(b"0" * (source_files.LARGEST_FILE + 1))
    write(folder, "TIME_US = 20.0\nimport helper")
    await it.until(lambda: any(summary.geomean == pytest.approx(5.0) for summary in summaries(it)))
    await it.idle()
    before = len(it.of(RunFinished))
    sentence = it.session.archive.restore("1")[0]
    assert sentence.startswith(
        "restored 1: solution.py, table.txt, helper.py (removed), more.txt (removed), rows.cuh (removed); `"
    )
    await it.until(lambda: len(it.of(RunFinished)) > before)
    assert summaries(it)[-1].repeats == 1
    kept = {"plan.md", "mine.txt", "scratch.py", "large.npy"}
    assert kept <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("do", "name"), [("generate", "generated.py"), ("append", "solution.py")])
async def test_code_that_a_kernel_writes_starts_nothing_and_is_named_once(
    watched: Callable[..., Watched], folder: Path, do: str, name: str
) -> None:
    write(folder, f'DO = "{do}"\nimport generated')
    it = watched()
    await it.session.start()
    await it.ended(1)
    await it.idle()
    it.session.rerun()
    await it.ended(2)
    await it.idle()
    assert (folder / name).read_text().count("STAMP") == 2
    assert (len(it.of(RunStarted)), it.of(RunCancelled)) == (2, [])
    assert said(it) == [f"the kernel wrote {name}, which does not start a run; press r to run anyway"]


async def test_an_image_starts_a_run_unless_a_process_of_the_kernel_made_it(
    watched: Callable[..., Watched], folder: Path
) -> None:
    (folder / "build.so").write_text("of make")
    it = watched()
    await it.session.start()
    await it.ended(1)
    (folder / "build.so").write_text("of make, again")
    await it.ended(2)
    write(folder, 'DO = "build"')
    await it.ended(3)
    await it.idle()
    assert (folder / "build.so").read_text().count("STAMP") == 1
    assert (len(it.of(RunStarted)), it.of(RunCancelled)) == (3, [])
    assert said(it) == ["the kernel wrote build.so, which does not start a run; press r to run anyway"]


async def test_a_run_that_changes_the_task_does_not_count(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "cheat"\nTIME_US = 20.0')
    it = watched()
    before = (folder / "reference.py").read_text()
    await it.session.start()
    await it.ended(1)
    await it.idle()
    (cheated,) = summaries(it)
    (finding,) = cheated.findings
    assert (finding.code, finding.disqualifying, cheated.took_over) == ("task_files_changed", True, False)
    assert finding.help.startswith("the source changed reference.py while it ran, so this run does not count;")
    write(folder, "TIME_US = 50.0")
    (folder / "reference.py").write_text(before)
    await it.until(lambda: any(summary.took_over for summary in summaries(it)))
    await it.idle()
    last = summaries(it)[-1]
    assert (last.findings, last.geomean) == ((), pytest.approx(2.0))


async def test_a_task_saved_during_a_run_is_a_save(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "slow"')
    it = watched()
    await it.session.start()
    await it.until(lambda: it.session.running is not None)
    with (folder / "reference.py").open("a") as file:
        file.write("EDITED = True\n")
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    await it.idle()
    assert not [finding for summary in summaries(it) for finding in summary.findings]
    assert summaries(it)[-1].took_over


async def test_code_that_a_process_of_the_kernel_writes_starts_two_runs_at_most(
    watched: Callable[..., Watched], folder: Path
) -> None:
    write(folder, 'DO = "spawn"\nimport generated')
    it = watched()
    await it.session.start()
    await it.until(lambda: bool(said(it)))
    (folder / ".go").touch()
    await it.until(lambda: bool(it.of(RunFinished)))
    await it.idle()
    assert len(it.of(RunStarted)) == 3
    (notice,) = said(it)
    words = "generated.py kept changing (3 runs in a row), perhaps written by the kernel: ignored until another"
    assert notice.startswith(words)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(it.of(RunFinished)) == 2)
