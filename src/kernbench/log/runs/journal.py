"""runs.jsonl: the machine's truth, one JSON line per thing that happened, appended at once and never rewritten.

A run is a `start` line, `case` lines as they land (the last one of a case counts), and `finished`, `failed` or
`cancelled`. `words` lines change the hypothesis or next step of an iteration; `dropped` keeps the text of an entry that
was taken out of ITERATIONS.md, `undropped` puts it back; `controls` says that a task passed its controls; `floor` keeps
an A/A floor; `task` notes what older versions called a task. Reading skips torn lines and
anything it does not know. Opening reads no rows but those of the last finished run. In memory there are numbers of each
run (run_table.py); its record is read from the file when somebody asks (run_records.py).
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from harness.shared.lines import SCHEMA, decode, encode, to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import BuildFailed, CaseLanded, RunCancelled, RunStarted, Summary
from kernbench.log.runs import legacy, runs_index
from kernbench.log.runs.run_records import UNREADABLE, RunRecords
from kernbench.log.runs.run_table import RunTable
from kernbench.log.runs.runs_file import PARSED_AT_ONCE, RunsFile, parse, parse_all
from kernbench.log.runs.series import Series, best_of

FLOORS = 3
"""Measurements of one floor, each in another pause of the work."""
FINISHED = b'{"event":"finished"'
DROPS = (b'{"event":"dropped"', b'{"event":"undropped"')
SAMPLES = re.compile(rb',"samples":\{(?:"\w+":\[[^\]]*\],?)*\}(?=,"run":"[^"\\]*"\}\s*$)')


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
        self.last_cases: dict[str, CaseResult] = {}
        """Results of the last finished run."""
        self.failed_builds = 0
        """Since the last finished run."""
        self._old_hashes: dict[str, set[str]] = {}
        """By the hash of a task, those that older versions gave it."""
        self.controls: set[str] = set()
        """Hashes of the tasks that held against themselves, with the device they were tried on."""
        self.floors: dict[str, float] = {}
        """A/A floors: the median of what was measured, so that one disturbed moment is not kept for good."""
        self._floors: dict[str, list[float]] = {}
        self._file = RunsFile(self.path)
        self.summaries = RunRecords(self._file)
        """Read from the file one by one; `table` has what is asked of many of them."""
        self.dropped: list[DroppedEntry] = []
        """Those that were not put back since, oldest first."""
        self._highest = 0
        self._begun: dict[str, int] = {}
        """Where the lines of the runs begin that have not ended."""
        self._taken_in = 0
        """Up to here every line is known."""
        self._read()

    @property
    def table(self) -> RunTable:
        return self.summaries.table

    def old_hashes(self, task: Task) -> frozenset[str]:
        """What older versions called this task, as its files are now or as a run has noted it."""
        return frozenset(self._old_hashes.get(task.hash, set()) | ({task.old_hash} - {""}))

    def note_old_hash(self, task: Task) -> None:
        """Once, where runs of older versions are of this task: it keeps them when a comment in it changes later."""
        known = self._old_hashes.setdefault(task.hash, set())
        if task.old_hash in known or not any(run.about.series.task_hash == task.old_hash for run in self.table.all()):
            return
        self._file.append(encode("task", task_hash=task.hash, old=task.old_hash))
        known.add(task.old_hash)

    def best(self, series: Series) -> Summary | None:
        best = best_of(self.table.series(series))
        return self.summaries[best.position] if best else None

    def made_entry(self, run: str) -> bool:
        index = self.table.find(run)
        return index is not None and self.table.iteration(index) is not None

    def highest(self) -> int:
        """The highest number that an iteration has; kept, so that a long log costs no more than a short one."""
        return self._highest

    def iteration_of(self, source: str) -> int | None:
        """Number of the first iteration with this very source: later ones name it, so no chain is followed."""
        made = self.table.numbered().indices
        return next((self.table.iteration(index) for index in made if self.table.source(index) == source), None)

    def iteration_with(self, series: Series, code: str, code_of: Callable[[str], str]) -> int | None:
        """Number of the first iteration of the series with this code; `code_of` gives that of a stored source, for the
        runs of older versions, which do not know theirs."""
        for run in self.table.series(series):
            if run.iteration is None:
                continue
            if self.table.may_have_code(run.position, code) and self.summaries[run.position].code == code:
                return run.iteration
            if not self.table.has_code(run.position) and code_of(run.source) == code:
                return run.iteration
        return None

    def start(self, event: RunStarted, task: str, environment: Environment) -> None:
        line = encode("start", event, schema=SCHEMA, task=task, environment=to_dict(environment))
        self._begun[event.run] = self._file.append(line)

    def case(self, event: CaseLanded) -> None:
        self._file.append(encode("case", event.result, run=event.run))

    def finish(self, summary: Summary, results: Iterable[CaseResult]) -> None:
        place = self._file.append(encode("finished", summary))
        self.summaries.add(summary, place, self._begun.pop(summary.run, 0))
        self._highest = max(self._highest, summary.iteration or 0)
        self.last_cases = {result.id: result for result in results}
        self.failed_builds = 0

    def fail(self, event: BuildFailed) -> None:
        self._file.append(encode("failed", event))
        self._begun.pop(event.run, None)
        self.failed_builds += 1

    def cancel(self, event: RunCancelled) -> None:
        self._file.append(encode("cancelled", event))
        self._begun.pop(event.run, None)

    def drop(self, entry: DroppedEntry) -> None:
        self._file.append(encode("dropped", entry))
        self._take_drop(entry)

    def undrop(self, entry: DroppedEntry) -> None:
        self._file.append(encode("undropped", iteration=entry.iteration, run=entry.run))
        self.dropped = [item for item in self.dropped if item != entry]

    def is_dropped(self, run: str) -> bool:
        return bool(run) and any(entry.run == run for entry in self.dropped)

    def listed(self) -> list[int]:
        """Places of the runs whose entries are in the log."""
        gone = {entry.run for entry in self.dropped}
        made = self.table.numbered().indices
        return [index for index in made if not gone or self.summaries[index].run not in gone]

    def _take_drop(self, entry: DroppedEntry) -> None:
        self.dropped = [*(item for item in self.dropped if item != entry), entry]
        self._highest = max(self._highest, entry.iteration)  # its number is never given again

    def keep_controls(self, key: str) -> None:
        self._file.append(encode("controls", task_hash=key))
        self.controls.add(key)

    def keep_floor(self, key: str, floor: float) -> None:
        self._file.append(encode("floor", key=key, floor=floor))
        self._take_floor(key, floor)

    def wants_floor(self, *keys: str) -> bool:
        return sum(len(self._floors.get(key, ())) for key in keys) < FLOORS

    def _take_floor(self, key: str, floor: float) -> None:
        measured = self._floors.setdefault(key, [])
        measured.append(floor)
        self.floors[key] = statistics.median(measured)

    def words(self, new: Summary) -> None:
        """What an iteration is now said to have been about; `new` is its summary with the changed words."""
        place = self._file.append(
            encode(
                "words",
                iteration=new.iteration,
                hypothesis=new.hypothesis,
                next=new.next,
                hypothesis_by=new.hypothesis_by,
                hypothesis_at=new.hypothesis_at,
                move=new.move,
                run=new.run,
            )
        )
        index = self.table.find(new.run)
        if index is not None:
            self.summaries.reword(index, place)

    def cases_of(self, run: str) -> dict[str, CaseResult]:
        """Results of any run, read from the file."""
        found: dict[str, CaseResult] = {}
        wanted = json.dumps(run, ensure_ascii=False)[1:-1].encode()
        begin = self._begun.get(run) or self.table.begin(run) or 0
        for _place, line in self._file.scan(begin):
            if line.startswith(runs_index.ROW):
                data = parse(line) if _names(line)[0] == wanted else None
                if data is not None:
                    _take_row(found, data)
            elif (end := runs_index.END.match(line)) and end[1] == wanted:
                break
        return found

    def runs(self, only: set[str] | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Every finished run, or those asked for, with its rows as plain data, in one pass over the file.

        Of each case the last line counts; the samples, most of a line, are left out.
        """
        rows: dict[bytes, dict[bytes, bytes]] = {}
        for _place, line in self._file.scan():
            if line.startswith(runs_index.ROW):
                run, case = _names(line)
                rows.setdefault(run, {})[case] = line
            elif end := runs_index.END.match(line):
                landed = rows.pop(end[1], {})
                run_id = end[1].decode()
                if line.startswith(FINISHED) and (only is None or run_id in only):
                    yield run_id, _parse_rows(landed.values())

    def read_new(self) -> bool:
        """Takes in the runs that other processes have finished since, and says whether there were any."""
        before = len(self.table)
        self._taken_in = min(self._taken_in, self._file.size())
        for place, line in self._file.scan(self._taken_in):
            if not line.endswith(b"\n"):  # being written this moment
                break
            self._taken_in = place + len(line)
            if line.startswith(DROPS):
                with contextlib.suppress(*UNREADABLE):
                    data = json.loads(line)
                    self._fold(data["event"], data, runs_index.IndexedLine(place, 0, line))
            elif begin := runs_index.BEGIN.match(line):
                self._begun.setdefault(begin[1].decode(), place)
            elif end := runs_index.END.match(line):
                began = self._begun.pop(end[1].decode(), 0)
                if line.startswith(FINISHED) and self.table.find(end[1].decode()) is None:
                    with contextlib.suppress(*UNREADABLE):
                        self._fold("finished", json.loads(line), runs_index.IndexedLine(place, began, line))
        more = len(self.table) > before
        if more:
            self.last_cases = self.cases_of(self.summaries[-1].run)
        return more

    def _read(self) -> None:
        self._taken_in = self._file.size()
        lines = runs_index.lines(self._file)
        while batch := list(islice(lines, PARSED_AT_ONCE)):
            for kept, data in zip(batch, parse_all([item.line for item in batch]), strict=True):
                with contextlib.suppress(*UNREADABLE):
                    self._fold(str(data["event"]), data, kept)
        if self.summaries:
            self.last_cases = self.cases_of(self.summaries[-1].run)

    def _fold(self, kind: str, data: dict[str, Any], kept: runs_index.IndexedLine) -> None:
        if kind == "finished":
            summary = self.summaries.add_from_line(data, kept.place, kept.begin)
            self._highest = max(self._highest, summary.iteration or 0)
            self.failed_builds = 0
        elif kind == "failed":
            self.failed_builds += 1
        elif kind == "words":
            self._reword(data, kept.place)
        elif kind == "dropped":
            self._take_drop(decode(DroppedEntry, data))
        elif kind == "undropped":
            named = int(data["iteration"]), str(data["run"])
            self.dropped = [item for item in self.dropped if (item.iteration, item.run) != named]
        elif kind == "task":
            self._old_hashes.setdefault(str(data["task_hash"]), set()).add(str(data["old"]))
        elif kind == "controls":
            self.controls.add(str(data.get("task_hash")))
        elif kind == "floor":
            self._take_floor(str(data.get("key")), float(data["floor"]))

    def _reword(self, data: dict[str, Any], place: int) -> None:
        """A `words` line names the run, or (as the first files did) only the iteration."""
        run, iteration = data.get("run"), int(data["iteration"])
        for index in reversed(range(len(self.table))):
            if self.table.iteration(index) == iteration and (run is None or self.table.is_of(index, run)):
                self.summaries.reword(index, place)
                return


def _parse_rows(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Rows as data, without their samples."""
    return [row for row in parse_all([_without_samples(line) for line in lines]) if "id" in row]


def _without_samples(line: bytes) -> bytes:
    begin = line.rfind(b',"samples":{')
    found = SAMPLES.match(line, begin) if begin > 0 else None
    return line[:begin] + line[found.end() :] if found else line


def _names(line: bytes) -> tuple[bytes, bytes]:
    """Run and case of a row, as they are written: an unescaped quote ends a name, so the numbers need no reading."""
    run, case = line.rfind(b',"run":"'), line.find(b',"status":')
    if run > 0 and case > 0:
        return line[run + 8 : line.rfind(b'"')], line[:case]
    data = parse(line) or {}
    return str(data.get("run")).encode(), str(data.get("id")).encode()


def _take_row(found: dict[str, CaseResult], data: dict[str, Any]) -> None:
    try:
        found[str(data["id"])] = legacy.decode_row(data)
    except UNREADABLE:
        return
