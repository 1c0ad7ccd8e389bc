"""What happened in a campaign, one line of JSON per event of a task: a campaign that was killed goes on from there.

A campaign is a folder in `.kernbench/campaign` of the folder with the tasks. An event says that a step has ended, so
one that was interrupted is done again; every step allows that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from kernbench.log.runs.runs_file import RunsFile
from kernbench.task import lookup

PLACE, EVENTS, LOCK = "campaign", "events.jsonl", "lock"
OWN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")
"""The name of a campaign's folder."""
ODD = re.compile(r"[^\w.-]+|\.{2,}")
"""What neither a branch nor a folder should have in its name."""
Event = dict[str, Any]


class CampaignFile:
    def __init__(self, folder: Path, tell: Callable[[Event], None] = lambda event: None) -> None:
        """`tell` gets every new event."""
        self.folder, self._tell = folder, tell
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return self.folder.name

    def place(self, task: str) -> Path:
        """The folder with the task's worktree and logs."""
        return self.folder / slug(task)

    def add(self, task: str, event: str, **about: Any) -> None:
        told = {"event": event, "task": task, "at": datetime.now(timezone.utc).isoformat(timespec="seconds"), **about}
        RunsFile(self.folder / EVENTS).append(json.dumps(told))
        self._tell(told)

    def events(self) -> Iterator[Event]:
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / EVENTS).read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # torn
                    event = json.loads(line)
                    if isinstance(event, dict) and {"task", "event"} <= event.keys():
                        yield event

    def seen(self, task: str) -> dict[str, Event]:
        """The task's events by their names, the last of each."""
        return {event["event"]: event for event in self.events() if event["task"] == task}


def slug(task: str) -> str:
    return ODD.sub("-", task)


def opened(folder: Path, is_new: bool, tell: Callable[[Event], None] = lambda event: None) -> CampaignFile:
    """The last campaign of the folder, or another one."""
    lookup.make_state(folder / lookup.STATE_FOLDER)
    place = folder / lookup.STATE_FOLDER / PLACE
    known = sorted(path for path in place.glob("*") if OWN.fullmatch(path.name))
    if known and not is_new:
        return CampaignFile(known[-1], tell)
    return CampaignFile(place / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", tell)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuses if another process works on the folder's campaign."""
    place = folder / lookup.STATE_FOLDER / PLACE
    place.mkdir(parents=True, exist_ok=True)
    with open(place / LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise UserError(f"another campaign is running in {folder} (process {lock.read().strip()})") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class Stopwatch:
    """Seconds that survive a kill: in a file, written every few seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._before = float(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            self._before = 0.0
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._began is None else time.monotonic() - self._began)

    def start(self) -> None:
        self._began = time.monotonic()

    def save(self) -> None:
        self._path.write_text(str(round(self.seconds, 1)), encoding="ascii")
