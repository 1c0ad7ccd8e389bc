"""The rows of runs, read from runs.jsonl on request: nothing keeps them in memory."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from harness.shared.lines import UNREADABLE
from harness.shared.results import CaseResult
from kernbench.log.runs import legacy
from kernbench.log.runs.runs_file import END, FINISHED, ROW, RunsFile, parse, parse_all

SAMPLES = re.compile(rb',"samples":\{(?:"\w+":\[[^\]]*\],?)*\}(?=,"run":"[^"\\]*"\}\s*$)')


def of_run(file: RunsFile, run: str, begin: int) -> dict[str, CaseResult]:
    """By case, the last row of each; the run's lines begin at `begin`."""
    found: dict[str, CaseResult] = {}
    wanted = json.dumps(run, ensure_ascii=False)[1:-1].encode()
    for _place, line in file.scan(begin):
        if line.startswith(ROW):
            data = parse(line) if _names(line)[0] == wanted else None
            if data is not None:
                with contextlib.suppress(*UNREADABLE):
                    found[str(data["id"])] = legacy.decode_row(data)
        elif (end := END.match(line)) and end[1] == wanted:
            break
    return found


def of_all(file: RunsFile, only: set[str] | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every finished run, or only those in `only`, with its rows as plain data, in one pass over the file.

    The last line of each case counts. Samples, most of a line, are left out.
    """
    rows: dict[bytes, dict[bytes, bytes]] = {}
    for _place, line in file.scan():
        if line.startswith(ROW):
            run, case = _names(line)
            rows.setdefault(run, {})[case] = line
        elif end := END.match(line):
            landed = rows.pop(end[1], {})
            run_id = end[1].decode()
            if line.startswith(FINISHED) and (only is None or run_id in only):
                yield run_id, _parse_rows(landed.values())


def _parse_rows(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [row for row in parse_all([_without_samples(line) for line in lines]) if "id" in row]


def _without_samples(line: bytes) -> bytes:
    begin = line.rfind(b',"samples":{')
    found = SAMPLES.match(line, begin) if begin > 0 else None
    return line[:begin] + line[found.end() :] if found else line


def _names(line: bytes) -> tuple[bytes, bytes]:
    """Run and case of a row, as written. An unescaped quote ends a name, so the numbers need not be parsed."""
    run, case = line.rfind(b',"run":"'), line.find(b',"status":')
    if run > 0 and case > 0:
        return line[run + 8 : line.rfind(b'"')], line[:case]
    data = parse(line) or {}
    return str(data.get("run")).encode(), str(data.get("id")).encode()
