"""Reads a full report back without the GPU: ncu's sections and rules, and the source lines where warps wait.

`read` asks ncu for two pages of the .ncu-rep at once. Lines come from Triton's or nvcc's line info: file, text,
samples, the leading stall and the machine code below it. Lines that do not parse are left out, never guessed.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernbench.ncu import nsight

DETAILS = ("--page", "details")
SOURCE = ("--page", "source", "--csv", "--print-source", "cuda,sass")
_NO_SOURCE = "<Unable to open source file>"
_NOT_WAITING = ("stall_selected", "stall_not_selected")


@dataclass(frozen=True)
class HotLine:
    file: str
    """Relative to the task's folder if it is inside."""
    line: int
    text: str
    samples: int
    share: float
    """Share of the kernel's samples, 0 to 1."""
    stall: str
    """The most common stall on this line; empty if there is none."""
    kernel: str = ""
    sass: tuple[str, ...] = ()
    """The line's machine code: at most eight instructions, most sampled first."""


@dataclass(frozen=True)
class Drilldown:
    details: str = ""
    """ncu's sections and rules, as it prints them."""
    lines: tuple[HotLine, ...] = ()
    """Hottest first."""


async def read(tool: Path, report: Path, snapshot: Path | None = None) -> Drilldown:
    """Empty if the report is gone or ncu cannot read it."""
    details, source = await asyncio.gather(
        nsight.read(tool, "--import", str(report), *DETAILS), nsight.read(tool, "--import", str(report), *SOURCE)
    )
    return Drilldown(_tidy(details), hot_lines(source, snapshot))


def hot_lines(text: str, snapshot: Path | None = None, most: int = 20) -> tuple[HotLine, ...]:
    """The hottest lines, from the source page as csv."""
    found: list[HotLine] = []
    for file, kernel, rows in _files(text):
        found += _lines(file, kernel, rows, snapshot)
    whole = sum(line.samples for line in found) or 1
    ranked = sorted((line for line in found if line.samples), key=lambda line: -line.samples)[:most]
    return tuple(
        HotLine(line.file, line.line, line.text, line.samples, line.samples / whole, line.stall, line.kernel, line.sass)
        for line in ranked
    )


def _files(text: str) -> Iterator[tuple[str, str, list[dict[str, str]]]]:
    file = kernel = ""
    header: list[str] = []
    rows: list[dict[str, str]] = []
    for cells in _cells(text):
        if cells[0] in ("File Path", "File Name") and len(cells) > 1:
            if rows:
                yield file, kernel, rows
            file, header, rows = cells[1], [], []
        elif cells[0] in ("Function Name", "Kernel Name") and len(cells) > 1:
            kernel = cells[1]
        elif cells[0] == "Line No":
            header = _unique(cells)
        elif header and len(cells) == len(header):
            rows.append(dict(zip(header, cells, strict=True)))
    if rows:
        yield file, kernel, rows


def _cells(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        with contextlib.suppress(csv.Error, StopIteration):
            cells = next(csv.reader([line]))
            if cells:
                yield cells


def _unique(header: list[str]) -> list[str]:
    """Number repeated names: `Source` appears for the line and for the instruction."""
    seen: dict[str, int] = {}
    names = []
    for name in header:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return names


def _lines(file: str, kernel: str, rows: list[dict[str, str]], snapshot: Path | None) -> Iterator[HotLine]:
    at, origin = 0, _Origin(file, snapshot)
    while at < len(rows):
        row, below = rows[at], at + 1
        while below < len(rows) and not rows[below]["Line No"]:
            below += 1
        samples = _int(row.get("# Samples"))
        if row["Line No"].isdigit() and samples is not None:
            code = sorted(rows[at + 1 : below], key=lambda item: -(_int(item.get("# Samples")) or 0))
            sass = tuple(item.get("Source 2", "").strip() for item in code[:8])
            line = int(row["Line No"])
            name, words = origin.line(line, row["Source"].strip())
            yield HotLine(name, line, words, samples, 0.0, _stall(row), kernel, sass)
        at = below


def _stall(row: dict[str, str]) -> str:
    counts = {
        name: _int(value) or 0
        for name, value in row.items()
        if name.startswith("stall_") and "Not Issued" not in name and name not in _NOT_WAITING
    }
    most = max(counts, key=lambda name: counts[name], default="")
    return most.removeprefix("stall_") if most and counts[most] else ""


class _Origin:
    """A file that a report names, mapped to the user's file.

    Triton caches compiled kernels, so a report may name the path of an earlier snapshot, which may be gone. The code
    and its lines are the same: the kernel's first line is part of Triton's cache key. A file of the same name from
    another folder counts as the user's only if ncu read the same text in it.
    """

    def __init__(self, file: str, snapshot: Path | None) -> None:
        self._file, self._inside = file, _inside(file, snapshot)
        self._own: list[str] = []
        if snapshot is not None:
            with contextlib.suppress(OSError):
                path = snapshot / (self._inside or Path(file).name)
                self._own = path.read_text(encoding="utf-8", errors="replace").splitlines()

    def line(self, number: int, text: str) -> tuple[str, str]:
        """The file's name and the text of one line."""
        own = self._own[number - 1].strip() if number <= len(self._own) else ""
        if self._inside:
            return self._inside, own if text == _NO_SOURCE else text
        known = "" if text == _NO_SOURCE else text
        return Path(self._file).name if known and own == known else self._file, known


def _inside(file: str, snapshot: Path | None) -> str | None:
    """The path inside this or an earlier snapshot; None if it is outside."""
    earlier = re.search(r"/sources/[0-9a-f]{64}/(.+)$", file)
    if earlier:
        return earlier[1]
    if snapshot is not None:
        with contextlib.suppress(ValueError):
            return str(Path(file).relative_to(snapshot))
    return None


def _tidy(details: str) -> str:
    return "\n".join(line.rstrip() for line in details.splitlines()).strip()


def _int(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
