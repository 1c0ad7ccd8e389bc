"""runs.jsonl: the machine's truth, one JSON line per thing that happened, appended at once and never rewritten.

A run is a `start` line, `case` lines as they land (the last one of a case counts), and `finished`, `failed` or
`cancelled`. `words` lines change the hypothesis or next step of an iteration; `controls` says that a task held against
itself; `floor` keeps an A/A floor. Reading skips a torn last line and anything it does not know. To open quickly, only
the lines that are needed are parsed: the cases of all but the last finished run are passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records import SCHEMA, CaseResult, Environment, UserError, decode, encode
from kernbench.events import BuildFailed, CaseLanded, RunCancelled, RunStarted, Summary


class JournalError(UserError):
    """The log cannot be written; one sentence."""


class Journal:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = state / "runs.jsonl"
        self.summaries: list[Summary] = []
        self.last_cases: dict[str, CaseResult] = {}
        """Results of the last finished run."""
        self.failed_builds = 0
        """Since the last finished run."""
        self.controls: set[str] = set()
        """Hashes of the tasks that held against themselves, with the device they were tried on."""
        self.floors: dict[str, float] = {}
        self._whole = True
        self._read()

    def iterations(self) -> list[Summary]:
        """Oldest first; a number that was taken twice (two machines) keeps both entries."""
        return [summary for summary in self.summaries if summary.iteration is not None]

    def highest(self) -> int:
        return max((summary.iteration or 0 for summary in self.summaries), default=0)

    def iteration_of(self, source: str) -> int | None:
        """Number of the newest iteration with this very source."""
        return next((item.iteration for item in reversed(self.iterations()) if item.source == source), None)

    def start(self, event: RunStarted, task: str, environment: Environment) -> None:
        self._append(encode("start", event, schema=SCHEMA, task=task, environment=environment.__dict__))

    def case(self, event: CaseLanded) -> None:
        self._append(encode("case", event.result, run=event.run))

    def finish(self, summary: Summary, results: Iterable[CaseResult]) -> None:
        self._append(encode("finished", summary))
        self.summaries.append(summary)
        self.last_cases = {result.id: result for result in results}
        self.failed_builds = 0

    def fail(self, event: BuildFailed) -> None:
        self._append(encode("failed", event))
        self.failed_builds += 1

    def cancel(self, event: RunCancelled) -> None:
        self._append(encode("cancelled", event))

    def hold(self, task_hash: str) -> None:
        self._append(encode("controls", task_hash=task_hash))
        self.controls.add(task_hash)

    def keep_floor(self, key: str, floor: float) -> None:
        self._append(encode("floor", key=key, floor=floor))
        self.floors[key] = floor

    def words(self, iteration: int, hypothesis: str, next_step: str) -> None:
        self._append(encode("words", iteration=iteration, hypothesis=hypothesis, next=next_step))
        self._reword(iteration, hypothesis, next_step)

    def cases_of(self, run: str) -> dict[str, CaseResult]:
        """Results of any run, read from the file."""
        found: dict[str, CaseResult] = {}
        for line in self._lines():
            if line.startswith(b'{"event":"case"'):
                data = _parse(line)
                if data and data.get("run") == run:
                    found[str(data["id"])] = decode(CaseResult, data)
        return found

    def _append(self, line: str) -> None:
        data = ("" if self._whole else "\n") + line + "\n"
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                raw = data.encode()
                self._whole = os.write(handle, raw) == len(raw)
            finally:
                os.close(handle)
        except OSError as problem:
            raise JournalError(f"{self.path} cannot be written: {problem.strerror}; the run is not recorded") from None
        if not self._whole:
            raise JournalError(f"{self.path} cannot be written: the disk is full; the run is not recorded")

    def _lines(self) -> Sequence[bytes]:
        try:
            return self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return ()
        except OSError as problem:
            raise JournalError(f"{self.path} cannot be read: {problem.strerror}") from None

    def _read(self) -> None:
        lines = self._lines()
        self._whole = not lines or lines[-1] == b""
        pending: list[bytes] = []
        last: list[bytes] = []
        for line in lines:
            if line.startswith(b'{"event":"case"'):
                pending.append(line)
                continue
            data = _parse(line) if line else None
            if data is None:
                continue
            kind = data.get("event")
            if kind == "finished":
                last, pending = [item for item in pending if _run_of(item) == data.get("run")], []
            self._fold(str(kind), data)
        rows = (decode(CaseResult, data) for data in map(_parse, last) if data)
        self.last_cases = {row.id: row for row in rows}

    def _fold(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "finished":
            self.summaries.append(decode(Summary, data))
            self.failed_builds = 0
        elif kind == "failed":
            self.failed_builds += 1
        elif kind == "words":
            self._reword(int(data["iteration"]), str(data.get("hypothesis", "")), str(data.get("next", "")))
        elif kind == "controls":
            self.controls.add(str(data.get("task_hash")))
        elif kind == "floor":
            self.floors[str(data.get("key"))] = float(data["floor"])

    def _reword(self, iteration: int, hypothesis: str, next_step: str) -> None:
        for index in range(len(self.summaries) - 1, -1, -1):
            if self.summaries[index].iteration == iteration:
                self.summaries[index] = replace(self.summaries[index], hypothesis=hypothesis, next=next_step)
                return


def _run_of(line: bytes) -> str | None:
    data = _parse(line)
    return None if data is None else data.get("run")


def _parse(line: bytes) -> dict[str, Any] | None:
    """A line as data; None when it is torn or not ours."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None
