"""runs.jsonl: the machine's truth, one JSON line per thing that happened, appended at once and never rewritten.

A run is a `start` line, `case` lines as they land (the last one of a case counts), and `finished`, `failed` or
`cancelled`. `words` lines change the hypothesis or next step of an iteration; `controls` says that a task held against
itself; `floor` keeps an A/A floor. Reading skips torn lines and anything it does not know. Opening reads no rows but
those of the last finished run.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records import SCHEMA, CaseResult, Environment, decode, encode, to_dict
from kernbench import runindex
from kernbench.events import BuildFailed, CaseLanded, RunCancelled, RunStarted, Summary
from kernbench.runsfile import JournalError as JournalError
from kernbench.runsfile import RunsFile

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
SAMPLES = re.compile(rb',"samples":\{(?:"\w+":\[[^\]]*\],?)*\}(?=,"run":"[^"\\]*"\}\s*$)')


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
        self._file = RunsFile(self.path)
        self._highest = 0
        self._environments: dict[str, Environment] = {}
        self._begins: dict[str, int] = {}
        """Where the lines of each run begin."""
        self._read()

    def iterations(self) -> list[Summary]:
        """Oldest first; a number that was taken twice (two machines) keeps both entries."""
        return [summary for summary in self.summaries if summary.iteration is not None]

    def highest(self) -> int:
        """The highest number that an iteration has; kept, so that a long log costs no more than a short one."""
        return self._highest

    def iteration_of(self, source: str) -> int | None:
        """Number of the newest iteration with this very source."""
        found = (item.iteration for item in reversed(self.summaries) if item.source == source and item.iteration)
        return next(found, None)

    def start(self, event: RunStarted, task: str, environment: Environment) -> None:
        line = encode("start", event, schema=SCHEMA, task=task, environment=environment.__dict__)
        self._begins[event.run] = self._file.append(line)

    def case(self, event: CaseLanded) -> None:
        self._file.append(encode("case", event.result, run=event.run))

    def finish(self, summary: Summary, results: Iterable[CaseResult]) -> None:
        self._file.append(encode("finished", summary))
        self._add(self._lasting(summary))
        self.last_cases = {result.id: result for result in results}
        self.failed_builds = 0

    def fail(self, event: BuildFailed) -> None:
        self._file.append(encode("failed", event))
        self.failed_builds += 1

    def cancel(self, event: RunCancelled) -> None:
        self._file.append(encode("cancelled", event))

    def hold(self, key: str) -> None:
        self._file.append(encode("controls", task_hash=key))
        self.controls.add(key)

    def keep_floor(self, key: str, floor: float) -> None:
        self._file.append(encode("floor", key=key, floor=floor))
        self.floors[key] = floor

    def words(self, new: Summary) -> None:
        """What an iteration is now said to have been about; `new` is its summary with the changed words."""
        self._file.append(
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
        for index in range(len(self.summaries) - 1, -1, -1):
            if self.summaries[index].run == new.run:
                self.summaries[index] = new
                return

    def cases_of(self, run: str) -> dict[str, CaseResult]:
        """Results of any run, read from the file."""
        found: dict[str, CaseResult] = {}
        wanted = json.dumps(run, ensure_ascii=False)[1:-1].encode()
        for _place, line in self._file.scan(self._begins.get(run, 0)):
            if line.startswith(runindex.ROW):
                data = parse(line) if _names(line)[0] == wanted else None
                if data is not None:
                    _take_row(found, data)
            elif (end := runindex.END.match(line)) and end[1] == wanted:
                break
        return found

    def runs(self, only: set[str] | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Every finished run, or those asked for, with its rows as plain data, in one pass over the file.

        Of each case the last line counts; the samples, most of a line, are left out.
        """
        rows: dict[bytes, dict[bytes, bytes]] = {}
        for _place, line in self._file.scan():
            if line.startswith(runindex.ROW):
                run, case = _names(line)
                rows.setdefault(run, {})[case] = line
            elif end := runindex.END.match(line):
                landed = rows.pop(end[1], {})
                run_id = end[1].decode()
                if line.startswith(b'{"event":"finished"') and (only is None or run_id in only):
                    yield run_id, _parse_rows(landed.values())

    def _read(self) -> None:
        found = list(runindex.lines(self._file))
        for kept, data in zip(found, _parse_all([item.line for item in found]), strict=True):
            with contextlib.suppress(*UNREADABLE):
                self._fold(str(data["event"]), data, kept.begin)
        if self.summaries:
            self.last_cases = self.cases_of(self.summaries[-1].run)

    def _summary(self, data: dict[str, Any]) -> Summary:
        """Machines change rarely: equal environments are one object."""
        about = str(data.get("environment"))
        if about not in self._environments:
            self._environments[about] = decode(Environment, data.get("environment") or {})
        return decode(Summary, {**data, "environment": self._environments[about]})

    def _lasting(self, summary: Summary) -> Summary:
        """The same record in half the room: it stays for as long as the workbench is open, and a day has hundreds."""
        words = {name: sys.intern(value) for name, value in summary.__dict__.items() if isinstance(value, str)}
        return self._summary({**summary.__dict__, **words, "environment": to_dict(summary.environment)})

    def _add(self, summary: Summary) -> None:
        self.summaries.append(summary)
        self._highest = max(self._highest, summary.iteration or 0)

    def _fold(self, kind: str, data: dict[str, Any], begin: int) -> None:
        if kind == "finished":
            summary = self._summary(data)
            self._add(summary)
            self._begins[summary.run] = begin
            self.failed_builds = 0
        elif kind == "failed":
            self.failed_builds += 1
        elif kind == "words":
            self._reword(data)
        elif kind == "controls":
            self.controls.add(str(data.get("task_hash")))
        elif kind == "floor":
            self.floors[str(data.get("key"))] = float(data["floor"])

    def _reword(self, data: dict[str, Any]) -> None:
        """A `words` line names the run, or (as the first files did) only the iteration."""
        said = {
            name: str(data[name])
            for name in ("hypothesis", "next", "hypothesis_by", "hypothesis_at", "move")
            if data.get(name) is not None
        }
        for index in range(len(self.summaries) - 1, -1, -1):
            old = self.summaries[index]
            if old.iteration == int(data["iteration"]) and data.get("run", old.run) == old.run:
                self.summaries[index] = replace(old, **said)  # type: ignore[arg-type]
                return


def parse(line: bytes) -> dict[str, Any] | None:
    """A line as data; None when it is torn or not ours."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None


def _parse_rows(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Rows as data, without their samples."""
    return [row for row in _parse_all([_without_samples(line) for line in lines]) if "id" in row]


def _parse_all(lines: list[bytes]) -> list[dict[str, Any]]:
    """Each line as data, an empty table for one that is torn; in one go where none is, which is half the time."""
    try:
        data = json.loads(b"[%s]" % b",".join(lines))
    except ValueError:
        data = []
    if len(data) != len(lines):
        return [parse(line) or {} for line in lines]
    return [item if isinstance(item, dict) else {} for item in data]


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
        found[str(data["id"])] = decode(CaseResult, data)
    except UNREADABLE:
        return
