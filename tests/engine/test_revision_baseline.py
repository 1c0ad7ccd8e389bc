"""`--baseline git:REV`: the solution of then is the opponent, with the task of today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.errors import UserError
from kernbench.engine import revision_baseline
from kernbench.events import Notice, Summary
from kernbench.machine.git_folder import NotThere
from tests.repositories import commit
from tests.sessions import Watched, write

pytestmark = pytest.mark.anyio
Opens = Callable[..., Watched]


async def test_the_solution_of_then_is_timed_in_turns(folder: Path, watched: Opens) -> None:
    first = commit(folder)
    write(folder, "TIME_US = 40.0")
    it = watched(baseline="git:HEAD")
    outcome = await it.session.run_once(iteration=False)
    assert isinstance(outcome, Summary)
    assert outcome.geomean == pytest.approx(50 / 40)
    assert (outcome.best, outcome.baseline[:9]) == (False, "git:HEAD@")
    assert outcome.baseline_hash.startswith(outcome.baseline[9:])
    assert outcome.command.endswith(f"--baseline git:{first[:12]}")
    assert it.of(Notice) == []


async def test_it_can_be_chosen_again_on_the_screen(folder: Path, watched: Opens) -> None:
    commit(folder)
    it = watched(baseline="git:HEAD")
    name = it.session.baseline
    assert it.session.baselines() == ("eager", "compile", name)
    it.session.set_baseline("eager")
    it.session.set_baseline(name)
    assert it.session.baseline == name


async def test_what_was_different_is_said_once(folder: Path, watched: Opens) -> None:
    commit(folder)
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace('device = "cpu"', 'device = "cpu"\nthreads = 2'))
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(x): ...\n")
    it = watched(baseline="git:HEAD")
    for _ in range(2):
        await it.session.run_once(iteration=False)
    said = [event.text for event in it.of(Notice) if isinstance(event, Notice) and "HEAD" in event.text]
    assert said == [
        "toy took () at HEAD and takes (x) now: the solution of then may not run",
        "different at HEAD: threads, reference.py; both sides run with today's",
    ]


def notes(folder: Path) -> tuple[str, ...]:
    return revision_baseline.parse("git:HEAD", taskfile.load(folder), folder / ".kernbench").notes


def test_another_entry_is_said(folder: Path) -> None:
    commit(folder)
    for name in ("task.toml", "reference.py", "solution.py"):
        (folder / name).write_text((folder / name).read_text().replace('"toy"', '"other"').replace("toy()", "other()"))
    assert "the entry was toy at HEAD and is other now: the two cannot be compared" in notes(folder)


def test_a_task_of_then_that_cannot_be_read_is_said(folder: Path) -> None:
    good = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text("entry = 3\n")
    commit(folder)
    (folder / "task.toml").write_text(good)
    assert notes(folder)[0].startswith("the task cannot be read as it was at HEAD (entry: ")


def test_without_a_solution_then(folder: Path) -> None:
    text = (folder / "solution.py").read_text()
    (folder / "solution.py").unlink()
    commit(folder)
    (folder / "solution.py").write_text(text)
    with pytest.raises(NotThere, match=r"toy had no solution.py at HEAD"):
        notes(folder)


def test_odd_names_of_a_revision_are_shown_by_its_commit(folder: Path) -> None:
    first = commit(folder, "the first, with spaces")
    task, state = taskfile.load(folder), folder / ".kernbench"
    found = revision_baseline.parse("git:HEAD^{/with spaces}", task, state)
    assert found.name == f"git:{first[:12]}@{found.tree[:8]}"
    assert revision_baseline.parse(found.name, task, state) == found
    assert revision_baseline.parse(f"git:{first}", task, state) == found
    with pytest.raises(UserError, match="git has no revision 'nope'"):
        revision_baseline.parse("git:nope", task, state)
