"""Draws the workbench at the end of a recorded run, at any size and after any keys.

    python -m tests.measure.draw_screen RECORDING OUT.svg [WIDTH HEIGHT [KEY...]]

The real screen gets what record_screen.py recorded, and its clock shows the time at which the recording ended: the same
recording always gives the same picture. The README's is .github/screen.svg, drawn from tests/measure/screen.jsonl.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.shared.lines import decode
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench.diagnosis.counters import Profile
from kernbench.diagnosis.rules import diagnose
from kernbench.events import Event, ProfileReady, PulledEntry, Summary
from kernbench.log.entries.entry_list import EntryList, key_of
from kernbench.log.runs.series import Series
from kernbench.machine.telemetry import Sample
from kernbench.tui.app import Workbench
from tests.tui.scene import OWN_COLOURS, FakeEngine, export_svg, feel, settle

SIZE = (160, 48)
"""Columns and lines from which every pane shows."""
Tagged = dict[str, Any]
"""A record as JSON data, with the name of its class as `event`."""
KINDS: dict[str, type[Any]] = {it.__name__: it for it in (*typing.get_args(Event), Summary, PulledEntry, Sample)}


@dataclass(frozen=True)
class Opened:
    """The first line of a recording: what the screen asks its engine, besides the events."""

    now: str
    """When the recording ended: UTC, ISO 8601."""
    task: Task
    baseline: str
    solution: str
    """Name of the file that the user edits."""
    before: Tagged | None
    """The run before the recorded one, and its rows."""
    results: tuple[CaseResult, ...]
    entries: tuple[Tagged, ...]
    """Of the log when the recording ended, as are `series` and `best`."""
    rows: dict[str, tuple[CaseResult, ...]]
    """Of the entries in the heat map, by `name_of`."""
    series: Series | None
    best: Tagged | None
    tried: dict[str, tuple[str, ...]]
    profiles: tuple[Tagged, ...] = ()
    """Kept from before."""


class Replay(FakeEngine):
    """An engine that answers as the recorded one did."""

    def __init__(self, recording: Path) -> None:
        super().__init__(fresh=True)
        first, *rest = map(json.loads, recording.read_text(encoding="utf-8").splitlines())
        opened = decode(Opened, first)
        said = list(map(_read, rest))
        self.now = datetime.fromisoformat(opened.now)
        self.task, self.baseline, self.solution = opened.task, opened.baseline, opened.solution
        self.next_step, self.known = "", opened.tried
        self.results = {row.id: row for row in opened.results}
        self._before: Summary | None = _read(opened.before)
        self._best: Summary | None = _read(opened.best)
        entries = list(map(_read, opened.entries))
        self._rows = opened.rows
        pulled = [entry for entry in entries if isinstance(entry, PulledEntry)]
        made = [entry for entry in entries if not isinstance(entry, PulledEntry)]
        best = key_of(self._best) if self._best else None
        self._entries = EntryList(made, pulled, lambda: best, series=opened.series)
        self._kept = {profile.case: profile for profile in map(_read, opened.profiles)}
        self.samples = [item for item in said if isinstance(item, Sample)]
        self.events = [item for item in said if not isinstance(item, Sample)]

    def iterations(self) -> Sequence[Summary]:
        return self._entries

    def numbers(self) -> Sequence[int]:
        return self._entries.numbers()

    def best_now(self) -> Summary | None:
        return self._best

    def last_summary(self) -> Summary | None:
        return self._before

    def rows(self, entry: Summary) -> Mapping[str, CaseResult]:
        return {row.id: row for row in self._rows.get(name_of(entry), ())}

    def profiles(self) -> Mapping[str, ProfileReady]:
        return self._kept

    @property
    def case(self) -> str | None:
        """The case that was profiled last."""
        return next((said.case for said in reversed(self.events) if isinstance(said, ProfileReady)), None)


def name_of(entry: Summary) -> str:
    return " ".join(map(str, key_of(entry)))


def _read(data: Tagged | None) -> Any:
    """A diagnosis is made anew, as the workbench does with a profile that it kept."""
    if data is None:
        return None
    kind = KINDS[data["event"]]
    if kind is ProfileReady:
        data = {**data, "diagnosis": diagnose(decode(Profile, data["profile"]))}
    return decode(kind, data)


async def draw(recording: Path, width: int, height: int, keys: Sequence[str] = ()) -> str:
    """The screen as SVG at the end of the recording, after these keys, with the cursor on the row that was profiled."""
    engine = Replay(recording)
    app = Workbench(engine, settings=OWN_COLOURS, now=lambda: engine.now)
    app.board.solution = engine.solution
    async with app.run_test(size=(width, height)) as pilot:
        await settle(pilot)
        shown = [case.id for case in app.main.results.cases]
        app.main.results.move_to(shown.index(engine.case) if engine.case in shown else 0)
        engine.say(*engine.events)
        await settle(pilot)
        feel(app, engine.samples)
        await pilot.press(*keys)
        await settle(pilot)
        await settle(pilot)  # a scroll bar may come or go
        # Fonts would be fetched from outside.
        return re.sub(r"@font-face \{.*?\}", "", export_svg(app), flags=re.DOTALL)


if __name__ == "__main__":
    size = [int(word) for word in sys.argv[3:5]] or SIZE
    picture = asyncio.run(draw(Path(sys.argv[1]), size[0], size[1], sys.argv[5:]))
    Path(sys.argv[2]).write_text(picture, encoding="utf-8")
