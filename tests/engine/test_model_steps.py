"""A model that a key asks for runs in a worker by itself, never delays a save, and leaves its row in both logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import ModelsChanged, Notice, RunFinished
from tests.sessions import Watched, gone, write

pytestmark = pytest.mark.anyio
MODEL = """
title = "a model"
program = "program.py"
dtype = "float32"
[configs.only]
[[site]]
call = "layers:toy"
task = "TASK"
adapter = "adapters:toy"
"""


@pytest.fixture
def model(folder: Path) -> Path:
    """A model with a site for the task, next to it."""
    place = folder.parent / "models" / "small"
    place.mkdir(parents=True)
    (place / "model.toml").write_text(MODEL.replace("TASK", folder.name))
    return place


def shown(it: Watched) -> ModelsChanged:
    return it.of(ModelsChanged)[-1]  # type: ignore[return-value]


def pid_of(it: Watched) -> int:
    """Of the model's worker, from what it says it is doing."""
    found = [re.search(r"in process (\d+)", event.running) for event in it.of(ModelsChanged)]  # type: ignore[attr-defined]
    return next((int(match[1]) for match in reversed(found) if match), 0)


async def ran(it: Watched, name: str = "small") -> None:
    """Until the model has run and its line is shown."""
    before = len(it.events)
    it.session.models.start(name)

    def shown_now() -> bool:
        said = [event for event in it.events[before:] if isinstance(event, ModelsChanged)]
        return any(event.running for event in said) and bool(said[-1].lines) and not said[-1].running

    await it.until(shown_now)


@pytest.mark.usefixtures("model")
async def test_the_row_says_of_which_source_it_is(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    write(folder, "TIME_US = 50.0\nMODEL_MS = 32.0")
    await it.session.start()
    await it.confirmed()
    assert it.session.models.choices() == ["small"]
    await ran(it)
    (line,) = shown(it).lines
    assert (line.model, line.number, line.word, line.kept) == ("small", 1, "faster", True)
    assert (line.before_ms, line.after_ms) == (40.0, 32.0)
    assert shown(it).running == ""
    (source,) = {event.summary.source for event in it.of(RunFinished)}  # type: ignore[attr-defined]
    assert line.source == source
    lines = it.session.logbook.journal.path.read_text().splitlines()
    (row,) = [row for row in map(json.loads, lines) if row["event"] == "model"]
    assert row["command"] == f"kernbench transfer small --task {folder.name} --source now"
    entry = it.session.logbook.path.read_text()
    assert f"- model small ({row['config']}): step 40.00 -> 32.00 ms, ours over eager 1.250x" in entry
    await ran(it)
    assert entry.count("- model small") == it.session.logbook.path.read_text().count("- model small") == 1
    assert gone(pid_of(it))


@pytest.mark.usefixtures("model")
async def test_a_save_ends_the_models_worker_at_once(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    write(folder, 'TIME_US = 50.0\nMODEL_DO = "hang"')
    await it.session.start()
    await it.confirmed()
    it.session.models.start("small")
    await it.until(lambda: pid_of(it) > 0)
    runs = len(it.of(RunFinished))
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: shown(it).running == "")
    assert gone(pid_of(it), seconds=30)
    await it.until(lambda: len(it.of(RunFinished)) > runs)
    assert any("was ended by a save or a key; M runs it again" in event.text for event in it.of(Notice))  # type: ignore[attr-defined]
    assert shown(it).lines == ()
    assert '"event":"model"' not in it.session.logbook.journal.path.read_text()


@pytest.mark.usefixtures("model")
async def test_closing_ends_the_models_worker(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    write(folder, 'MODEL_DO = "hang"')
    await it.session.start()
    it.session.models.start("small")
    await it.until(lambda: pid_of(it) > 0)
    await it.session.close()
    assert gone(pid_of(it), seconds=30)


@pytest.mark.usefixtures("model")
async def test_a_model_that_fails_is_one_sentence_and_saves_go_on(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    write(folder, 'MODEL_DO = "fail"')
    await it.session.start()
    it.session.models.start("small")
    said = "small: program.py:3: no module named 'diffusers'"
    await it.until(lambda: any(event.text == said for event in it.of(Notice)))  # type: ignore[attr-defined]
    runs = len(it.of(RunFinished))
    write(folder, 'MODEL_DO = "not_wired"')
    await it.until(lambda: len(it.of(RunFinished)) > runs)
    await ran(it)
    (line,) = shown(it).lines
    assert (line.word, line.kept, line.ratio) == ("not wired: the entry of toy never ran", False, None)


async def test_without_a_site_there_is_nothing_to_choose(watched: Callable[..., Watched]) -> None:
    assert watched().session.models.choices() == []
