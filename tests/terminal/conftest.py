from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.terminal.toy_workbench import TASK, Terminal, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
    place.mkdir()
    (place / "task.toml").write_text(TASK)
    (place / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    save(place, "TIME_US = 50.0")
    return place


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*given: Any, **more: Any) -> Terminal:
        opened.append(Terminal(*given, **more))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()
