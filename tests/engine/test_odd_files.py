"""Files of an open task that stop being files: the session says so, and goes on when they are back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import BuildFailed, RunFinished
from tests.sessions import Watched, write

pytestmark = pytest.mark.anyio


def replace_by_fifo(path: Path) -> None:
    os.mkfifo(path.with_name(".new"))
    path.with_name(".new").rename(path)


@pytest.mark.parametrize("name", ["task.toml", "reference.py", "solution.py"])
async def test_a_fifo_in_the_place_of_a_file_stops_nothing(
    watched: Callable[..., Watched], folder: Path, name: str
) -> None:
    it, text = watched(), (folder / name).read_text()
    await it.session.start()
    await it.ended(1)
    replace_by_fifo(folder / name)
    await it.until(lambda: bool(it.of(BuildFailed)))
    (failure,) = it.of(BuildFailed)
    assert isinstance(failure, BuildFailed)
    assert (failure.status, str(failure.where)) == ("bad_task", name)
    assert failure.message == "a fifo, not a regular file; move it out of the way"
    (folder / ".back").write_text(text)
    (folder / ".back").rename(folder / name)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(it.of(RunFinished)) == 2)


async def test_a_solution_over_the_limit_is_named_with_its_size(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    (folder / "solution.py").write_bytes(b"#" * 1_500_000)
    await it.until(lambda: bool(it.of(BuildFailed)))
    (failure,) = it.of(BuildFailed)
    assert isinstance(failure, BuildFailed)
    assert str(failure.where) == "solution.py"
    assert failure.message == "1,500,000 bytes; kernbench reads at most 1,048,576"
