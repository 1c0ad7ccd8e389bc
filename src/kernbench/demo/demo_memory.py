"""What the demo remembers: whether the tour was shown, and the folder with copies of its tasks.

One small file, demo.json, in kernbench's folder under XDG_STATE_HOME (~/.local/state). It may be deleted at any time. A
file that cannot be read or written only means that the tour comes up again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kernbench import settings
from kernbench.atomic_write import written_aside


@dataclass(frozen=True)
class DemoMemory:
    tour_shown: bool = False
    folder: str = ""
    """Holds the copies; empty in a checkout, whose own tasks can be edited."""


def place(environ: Mapping[str, str]) -> Path:
    return settings.remembered(environ, "demo.json")


def load(path: Path) -> DemoMemory:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return DemoMemory(data["tour_shown"] is True, str(data["folder"]))
    except (OSError, ValueError, KeyError, TypeError):
        return DemoMemory()


def save(path: Path, memory: DemoMemory) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, json.dumps(asdict(memory)).encode()) as move:
            move()
