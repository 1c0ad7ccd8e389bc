"""What opening needs of runs.jsonl, kept beside it: a cache that is thrown away at the first doubt and made again.

Most of runs.jsonl is rows. The index holds the other lines, with the place of each and, for a finished run, the place
where the run began; it covers the file up to an offset, and what was appended since is read from the file itself. It is
replaced as a whole and needs no lock: two workbenches at worst write the same one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.shared.lines import SCHEMA
from kernbench.atomic_write import written_aside
from kernbench.log.runs.runs_file import JournalError, RunsFile

MAGIC = b"kernbench-index 1"
WORTH_WRITING = 4 << 20
"""Bytes of runs.jsonl beyond the index that are worth a new one."""
ROW = b'{"event":"case"'
BEGIN = re.compile(rb'\{"event":"start","run":"([^"\\]*)"')
END = re.compile(rb'\{"event":"(?:finished|failed|cancelled)","run":"([^"\\]*)"')
VERSION = re.compile(rb',"schema":(\d+)')


@dataclass(frozen=True)
class IndexedLine:
    """A line that is not a row; of the starts, those of runs whose end was not seen."""

    place: int
    begin: int
    """Where the run that it ends began; 0 where that is not known."""
    line: bytes


def lines(file: RunsFile) -> Iterator[IndexedLine]:
    """Every line that is neither a row nor the start of a run, oldest first."""
    cached, covered = _load(file)
    starts = {found[1]: item for item in cached if (found := BEGIN.match(item.line))}
    kept = [item for item in cached if not BEGIN.match(item.line)]
    yield from kept
    scanned = 0
    for place, line in file.scan(covered):
        scanned += len(line)
        if line.startswith(ROW):
            continue
        begin, end = BEGIN.match(line), END.match(line)
        if begin:
            _refuse_newer(file, line)
            starts[begin[1]] = IndexedLine(place, place, line)
            continue
        first = starts.pop(end[1], None) if end else None
        item = IndexedLine(place, first.begin if first else 0, line)
        yield item
        if line.endswith(b"\n"):  # else torn, or being written this moment
            kept.append(item)
    if scanned > WORTH_WRITING:
        _save(file, sorted([*kept, *starts.values()], key=lambda item: item.place))


def _refuse_newer(file: RunsFile, line: bytes) -> None:
    version = VERSION.search(line)
    if version and int(version[1]) > SCHEMA:
        raise JournalError(
            f"{file.path} was written by a newer kernbench (schema {int(version[1])}); update this one to read it"
        )


def _path(file: RunsFile) -> Path:
    return file.path.with_suffix(".index")


def _load(file: RunsFile) -> tuple[list[IndexedLine], int]:
    """The cached lines and how far they reach; nothing when the file is not the one they were taken from."""
    try:
        magic, *rows = _path(file).read_bytes().split(b"\n")
        fields = (row.split(b" ", 2) for row in rows)
        kept = [IndexedLine(int(place), int(begin), line + b"\n") for place, begin, line in fields]
    except (OSError, ValueError):
        return [], 0
    if magic != MAGIC or not kept or not all(file.holds(item.place, item.line) for item in (kept[0], kept[-1])):
        return [], 0
    return kept, kept[-1].place + len(kept[-1].line)


def _save(file: RunsFile, kept: list[IndexedLine]) -> None:
    """Where it cannot be written, the next start reads more."""
    rows = [b"%d %d %s" % (item.place, item.begin, item.line.rstrip(b"\n")) for item in kept]
    with contextlib.suppress(OSError), written_aside(_path(file), b"\n".join([MAGIC, *rows])) as move:
        move()
