"""runs.jsonl: the machine-readable log, one JSON line per event, appended at once and never rewritten.

A run is a `start` line, `case` lines as they land (the last one of a case counts), and `finished`, `failed` or
`cancelled`. A `finished` run that is to have an entry is marked `unwritten`; `entered` follows once ITERATIONS.md has
the entry, and gives its number. A run without that line is found at the next start, and its entry is written then.
`words` lines change the hypothesis or next step of an iteration; `dropped` keeps the text of an entry that
was removed from ITERATIONS.md, `undropped` puts it back; `corrected` changes rows of a run that has ended; `confirmed`
says what came of a run that would be best; `controls` records that a task passed its controls; `floor` keeps an A/A
floor; `kept` names a source that a restore stored; `task` records the hash that older versions gave a task. Reading
skips torn lines and anything it does not know. Opening keeps the Summary of every run and skips rows by their first
bytes; run_rows.py reads the rows of a run on request.
"""

from __future__ import annotations

import contextlib
import copy
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from harness.shared import format as fmt
from harness.shared.lines import SCHEMA, UNREADABLE, decode_checked, encode, to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import BuildFailed, CaseLanded, Confirmed, NotBestCode, RunCancelled, RunStarted, Summary
from kernbench.log.runs import corrections, legacy, run_rows
from kernbench.log.runs.runs_file import (
    BEGIN,
    CONFIRMED,
    ENTERED,
    FINISHED,
    VERSION,
    JournalError,
    RunsFile,
    parse_all,
)
from kernbench.log.runs.series import Series, best_of, series_of
from kernbench.machine.freed_memory import no_collections

FLOORS = 3
"""Measurements of one floor, each in a different idle time."""
PARSED_AT_ONCE = 500
MOST_ITERATIONS = 1 << 63
REASONS = frozenset((None, *get_args(NotBestCode)))
SHARED = ("verdict", "baseline", "baseline_hash", "task_hash", "command", "version", "hypothesis_by")
NAMES = ("id", "label")
"""Words that most runs of a log have in common; 66,000 runs keep one of each."""
WORDS = ("hypothesis", "next", "hypothesis_by", "hypothesis_at", "move")
DROPS = (b'{"event":"dropped"', b'{"event":"undropped"')


@dataclass(frozen=True)
class DroppedEntry:
    """An entry that was taken out of ITERATIONS.md."""

    iteration: int
    text: str
    run: str = ""
    """Empty where no run here made it."""
    encoding: str = "utf-8"
    """Of the file's bytes in `text`; latin-1 where they are not UTF-8."""


class Journal:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = state / "runs.jsonl"
        self.summaries: list[Summary] = []
        """Every finished run, oldest first."""
        self.last_cases: dict[str, CaseResult] = {}
        """Results of the last finished run."""
        self.failed_builds = 0
        """Since the last finished run."""
        self._old_hashes: dict[str, set[str]] = {}
        """Hashes that older versions gave a task, by its current hash."""
        self.controls: set[str] = set()
        """Tasks that passed their controls: hash and device."""
        self.floors: dict[str, float] = {}
        """A/A floors, each the median of its measurements, so that one disturbed moment does not last."""
        self._floors: dict[str, list[float]] = {}
        self._file = RunsFile(self.path)
        self.dropped: list[DroppedEntry] = []
        """Those not put back since, oldest first."""
        self._corrections = corrections.Corrections()
        self.waiting: dict[str, int] = {}
        """Runs whose entry is not known to be in ITERATIONS.md, each with its index in `summaries`."""
        self.confirmations: dict[str, Confirmed] = {}
        """By run."""
        self._begins: dict[str, int] = {}
        """Offset of each run's first line."""
        self._environment: tuple[dict[str, Any], Environment] = {}, Environment()
        """The last environment read, as written and as decoded: most runs share it."""
        self._taken_in = 0
        """Offset up to which every line is known."""
        self.awaited: set[str] = set()
        """Runs that this process finished and is to confirm: no other one can, because a source can append a line."""
        self._is_shorter = self._is_claimed = False
        self._read()

    @property
    def unwritten(self) -> str:
        """What waits for ITERATIONS.md, in words."""
        waiting = fmt.plural(len(self.waiting), "entry waits", "entries wait")
        return f"{waiting} for ITERATIONS.md; the next run tries again" if self.waiting else ""

    def old_hashes(self, task: Task) -> frozenset[str]:
        """Hashes that older versions gave this task, by its files now or as a run recorded them."""
        return frozenset(self._old_hashes.get(task.hash, set()) | ({task.old_hash} - {""}))

    def note_old_hash(self, task: Task) -> None:
        """Records the old hash once if runs have it, so that they stay in the series when a comment changes."""
        known = self._old_hashes.setdefault(task.hash, set())
        if task.old_hash in known or not any(run.task_hash == task.old_hash for run in self.summaries):
            return
        self._append(encode("task", task_hash=task.hash, old=task.old_hash))
        known.add(task.old_hash)

    def series(self, wanted: Series) -> list[Summary]:
        """The runs of a series."""
        return series_of(self.summaries, wanted)

    def best(self, series: Series) -> Summary | None:
        return best_of(self.series(series))

    def summary(self, run: str) -> Summary | None:
        return next((item for item in reversed(self.summaries) if item.run == run), None)

    def numbered(self) -> list[Summary]:
        """The runs that made an iteration; two machines may have used the same number."""
        return [run for run in self.summaries if run.iteration is not None]

    def highest(self) -> int:
        """The highest number that an iteration has, or had: a dropped entry's is never given again."""
        made = [run.iteration or 0 for run in self.summaries]
        return max([*made, *(entry.iteration for entry in self.dropped)], default=0)

    def iteration_of(self, source: str) -> int | None:
        """Number of the first iteration with this source; later ones refer to it."""
        return next((run.iteration for run in self.numbered() if run.source == source), None)

    def iteration_with(self, series: Series, code: str, code_of: Callable[[str], str]) -> int | None:
        """Number of the first iteration of the series with this code; `code_of` returns that of a stored source, for
        runs of older versions, which did not record it."""
        made = (run for run in self.series(series) if run.iteration is not None)
        return next((run.iteration for run in made if code and (run.code or code_of(run.source)) == code), None)

    def start(self, event: RunStarted, task: str, environment: Environment) -> None:
        line = encode("start", event, schema=SCHEMA, task=task, environment=to_dict(environment))
        self._begins[event.run] = self._append(line)

    def case(self, event: CaseLanded) -> None:
        row = replace(event.result, samples=None) if _lands_again(event.result) else event.result
        self._append(encode("case", row, run=event.run))

    def _append(self, line: str) -> int:
        place = self._file.append(line)
        self._is_shorter |= place < self._taken_in
        return place

    def finish(self, summary: Summary, results: Iterable[CaseResult], unwritten: bool = False) -> None:
        """Appends a run. A row that did not land again, as after a crash, is written with its samples now.

        `unwritten`: its entry is still to be written to ITERATIONS.md.
        """
        rows = {result.id: result for result in results}
        for row in filter(_lands_again, rows.values()):
            self._append(encode("case", row, run=summary.run))
        self._append(encode("finished", summary, **({"unwritten": True} if unwritten else {})))
        if unwritten:
            self.waiting[summary.run] = len(self.summaries)
        if summary.is_unsettled:
            self.awaited.add(summary.run)
        self.summaries.append(self._shared(summary))
        self.last_cases = rows
        self.failed_builds = 0

    def _shared(self, run: Summary) -> Summary:
        """The run with the words, environment and counts of the one before it: a day of saves keeps one of each."""
        alike: dict[str, Any] = {name: sys.intern(getattr(run, name)) for name in SHARED if getattr(run, name)}
        for name in ("environment", "counts") if self.summaries else ():
            before = getattr(self.summaries[-1], name)
            alike |= {name: before} if before == getattr(run, name) else {}
        return replace(run, **alike)

    def enter(self, run: str, number: int) -> None:
        """ITERATIONS.md has the entry of a run that was waiting for it."""
        self._append(encode("entered", run=run, iteration=number))
        self._take_entry(run, number)

    def _take_entry(self, run: str, number: int) -> None:
        place = self.waiting.pop(run, None)
        if place is not None and self.summaries[place].iteration != number:
            self._change(place, "iteration", number)

    def _change(self, place: int, name: str, value: object) -> None:
        changed = copy.copy(self.summaries[place])
        object.__setattr__(changed, name, value)  # `replace` checks 50 fields, for every run of a long log
        self.summaries[place] = changed

    def confirm(self, event: Confirmed) -> None:
        self._append(encode("confirmed", event))
        self.awaited.discard(event.run)
        self._take_confirmation(event)

    def _take_confirmation(self, event: Confirmed) -> None:
        if event.run in self.confirmations and not self.confirmations[event.run].confirmed:
            return  # what was refused stays refused: a source can append to the file
        if event.confirmed and event.run in self.awaited:
            self._is_claimed = True
            return
        self.confirmations[event.run] = event
        places = (place for place in reversed(range(len(self.summaries))) if self.summaries[place].run == event.run)
        if (place := next(places, None)) is not None:
            self._change(place, "confirmed", event.confirmed)

    def fail(self, event: BuildFailed) -> None:
        self._append(encode("failed", event))
        self.failed_builds += 1

    def cancel(self, event: RunCancelled) -> None:
        self._append(encode("cancelled", event))

    def drop(self, entry: DroppedEntry) -> None:
        self._append(encode("dropped", entry))
        self._take_drop(entry)

    def undrop(self, entry: DroppedEntry) -> None:
        self._append(encode("undropped", iteration=entry.iteration, run=entry.run))
        self.dropped = [item for item in self.dropped if item != entry]

    def is_dropped(self, run: str) -> bool:
        return bool(run) and any(entry.run == run for entry in self.dropped)

    def listed(self) -> list[Summary]:
        """The runs whose entries are in the log."""
        gone = {entry.run for entry in self.dropped}
        return [run for run in self.numbered() if run.run not in gone]

    def _take_drop(self, entry: DroppedEntry) -> None:
        self.dropped = [*(item for item in self.dropped if item != entry), entry]

    def keep_controls(self, key: str) -> None:
        self._append(encode("controls", task_hash=key))
        self.controls.add(key)

    def keep_floor(self, key: str, floor: float) -> None:
        self._append(encode("floor", key=key, floor=floor))
        self._take_floor(key, floor)

    def wants_floor(self, *keys: str) -> bool:
        return sum(len(self._floors.get(key, ())) for key in keys) < FLOORS

    def _take_floor(self, key: str, floor: float) -> None:
        measured = self._floors.setdefault(key, [])
        measured.append(floor)
        self.floors[key] = statistics.median(measured)

    def words(self, new: Summary) -> None:
        """Changes the words of an iteration; `new` is its summary with them."""
        words = {name: getattr(new, name) for name in WORDS}
        line = {"iteration": new.iteration, **words, "run": new.run}
        self._append(encode("words", **line))
        self._reword(line)

    def correct(self, run: str, rows: Iterable[CaseResult]) -> None:
        """Changes the sentences and findings of a finished run's rows."""
        line = corrections.line_of(run, rows)
        self._append(encode("corrected", **line))
        self._take_correction(line)

    def _take_correction(self, data: dict[str, Any]) -> None:
        self._corrections.take(data)
        if self.summaries and self.summaries[-1].run == data["run"]:
            self.last_cases = self._corrections.applied(data["run"], self.last_cases)

    def cases_of(self, run: str) -> dict[str, CaseResult]:
        """Results of any run, read from the file."""
        return self._corrections.applied(run, self.landed_in(run))

    def landed_in(self, run: str) -> dict[str, CaseResult]:
        """The same as they landed, without later corrections."""
        return run_rows.of_run(self._file, run, self._begins.get(run, 0))

    def runs(self, only: set[str] | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Every finished run, or only those in `only`, with its rows as plain data, in one pass over the file."""
        for run, rows in run_rows.of_all(self._file, only):
            yield run, self._corrections.applied_to_data(run, rows)

    def read_new(self) -> bool:
        """Reads the runs that other processes have finished or confirmed since; returns whether there were any."""
        before = len(self.summaries), len(self.confirmations)
        for line in self._new_lines():
            if line.startswith((FINISHED, ENTERED, CONFIRMED, corrections.CORRECTED, *DROPS)):
                with contextlib.suppress(*UNREADABLE):
                    data = json.loads(line)
                    if data["event"] != "finished" or not self._knows(data["run"]):
                        self._fold(data["event"], data)
        if len(self.summaries) > before[0]:
            self.last_cases = self.cases_of(self.summaries[-1].run)
        return (len(self.summaries), len(self.confirmations)) != before

    @property
    def problems(self) -> list[str]:
        """What other processes have done to the file, in sentences."""
        kept = "earlier runs are kept in memory until you quit, but are no longer on disk"
        claim = "has another process's confirmation of a run that waits here for its own: it is ignored"
        found = ((self._is_shorter, f"was emptied or removed: {kept}"), (self._is_claimed, claim))
        return [f"{self.path} {what}" for is_so, what in found if is_so]

    def _knows(self, run: str) -> bool:
        return any(item.run == run for item in reversed(self.summaries))

    def _read(self) -> None:
        lines = self._lines_to_open()
        with no_collections():
            while batch := list(islice(lines, PARSED_AT_ONCE)):
                for data in parse_all(batch):
                    try:
                        self._fold(str(data["event"]), data)
                    except UNREADABLE:
                        continue
        if self.summaries:
            self.last_cases = self.cases_of(self.summaries[-1].run)

    def _lines_to_open(self) -> Iterator[bytes]:
        """All lines but rows and starts; a start shows whether a newer version wrote the file."""
        for line in self._new_lines():
            if not BEGIN.match(line):
                yield line
            elif (version := VERSION.search(line)) and int(version[1]) > SCHEMA:
                newer = f"a newer kernbench (schema {int(version[1])})"
                raise JournalError(f"{self.path} was written by {newer}; update kernbench to read it")

    def _new_lines(self) -> Iterator[bytes]:
        """The lines since the last read, without rows; a torn or unfinished line is read again."""
        size = self._file.size()
        self._is_shorter |= size < self._taken_in
        self._taken_in = min(self._taken_in, size)
        for place, line in self._file.scan(self._taken_in, rows=False):
            if line.endswith(b"\n"):
                self._taken_in = place + len(line)
            if begin := BEGIN.match(line):
                self._begins[begin[1].decode()] = place
            yield line

    def _fold(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "finished":
            run = self._decode(data)
            if data.get("unwritten"):
                self.waiting[run.run] = len(self.summaries)
            self.summaries.append(run)
            self.failed_builds = 0
        elif kind == "entered":
            self._take_entry(str(data["run"]), int(data["iteration"]))
        elif kind == "failed":
            self.failed_builds += 1
        elif kind == "words":
            self._reword(data)
        elif kind == "corrected":
            self._take_correction(data)
        elif kind == "confirmed":
            self._take_confirmation(decode_checked(Confirmed, data))
        elif kind == "dropped":
            self._take_drop(decode_checked(DroppedEntry, data))
        elif kind == "undropped":
            named = int(data["iteration"]), str(data["run"])
            self.dropped = [item for item in self.dropped if (item.iteration, item.run) != named]
        elif kind == "task":
            self._old_hashes.setdefault(str(data["task_hash"]), set()).add(str(data["old"]))
        elif kind == "controls":
            self.controls.add(str(data.get("task_hash")))
        elif kind == "floor":
            self._take_floor(str(data.get("key")), float(data["floor"]))

    def _reword(self, data: dict[str, Any]) -> None:
        """A `words` line names the run, or (as the first files did) only the iteration."""
        run, iteration = data.get("run"), data["iteration"]
        for index in reversed(range(len(self.summaries))):
            item = self.summaries[index]
            if item.run == run if run is not None else item.iteration == int(iteration):
                said = {name: str(data[name]) for name in WORDS if data.get(name) is not None}
                self.summaries[index] = replace(item, **said)  # type: ignore[arg-type]
                return

    def _decode(self, data: dict[str, Any]) -> Summary:
        """Raises if a value in the line would fail later."""
        about = data.get("environment") or {}
        if about != self._environment[0]:
            self._environment = about, legacy.decode_environment(about)
        data = legacy.with_codes(data)
        data["environment"] = self._environment[1]
        for part, names in ((data, SHARED), (data.get("worst") or {}, NAMES), (data.get("fastest") or {}, NAMES)):
            for name in names:
                if type(word := part.get(name)) is str:
                    part[name] = sys.intern(word)
        if data.get("not_best_code") not in REASONS:  # of a newer version
            data["not_best_code"] = None
        run = decode_checked(Summary, data)
        if "/" in run.source or "\0" in run.source or run.source in (".", ".."):
            raise ValueError("not the name of a source")
        if run.iteration is not None and run.iteration >= MOST_ITERATIONS:
            raise ValueError("not a number that an entry can have")
        return run


def _lands_again(row: CaseResult) -> bool:
    """Whether the row comes again after the slow checks: samples are most of a row and only written once."""
    return row.samples is not None and row.checked < 2
