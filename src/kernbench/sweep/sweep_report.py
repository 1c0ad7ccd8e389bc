"""A sweep as a table, as a heat map over two constants, and as Markdown, html and JSON. Pure, except for `write`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.lines import SCHEMA, encode, to_dict
from kernbench.export.formats import ExportError
from kernbench.export.html_page import page
from kernbench.log.entries.entry_text import cells
from kernbench.machine.plain_text import one_line
from kernbench.report import columns
from kernbench.sweep.halving import Standing
from kernbench.sweep.variants import NOW

SHADES = (" ", "░", "▒", "▓", "█")
ASCII_SHADES = (" ", ".", ":", "+", "#")
MOST_TRIED = 40
"""Rows of the table in an entry."""
NOTE = 48
"""Characters of a reason in the table; the html and the JSON have all of it."""


@dataclass(frozen=True)
class SweepReport:
    task: str
    names: tuple[str, ...]
    """Of the constants; `variant` if the variants are files."""
    standings: Sequence[Standing]
    """The fastest first."""
    winner: Standing | None
    over: str
    device: str = ""
    seconds: float = 0.0
    is_over: bool = True
    """False if it was stopped before its end."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [self.cells(place, item) for place, item in enumerate(self.standings, 1)]

    @property
    def titles(self) -> tuple[str, ...]:
        return "#", *self.names, "us", "speedup", "verdict", "timed", ""

    def cells(self, place: int, item: Standing) -> tuple[str, ...]:
        is_right = item.score is not None
        verdict = item.ratio.verdict if is_right and item.ratio is not None and not item.variant.is_now else ""
        note = "the winner" if item is self.winner and self.is_over else item.detail
        number = f"{place}" if is_right else ""
        speed = NOW if is_right and item.variant.is_now else fmt.speedup(item.ratio)
        return number, *item.variant.values, fmt.microseconds(item.us), speed, verdict, item.word, note

    @property
    def sentence(self) -> str:
        """The outcome."""
        count = fmt.plural(len(self.standings), "variant")
        took = f"{count} in {fmt.seconds(self.seconds)}" + (f" on {self.device}" if self.device else "")
        if not self.is_over:
            known = sum(item.status != "waiting" for item in self.standings)
            return f"stopped before its end: {known} of {took}"
        if self.winner is None:
            return f"no variant is right and timed: {took}"
        name = self.winner.variant.name
        if self.winner.variant.is_now:
            return f"nothing is faster than the source as it is: {took}"
        doubt = "" if self.is_better else ", which is within the noise"
        return f"{name} is the fastest: {fmt.speedup(self.winner.ratio)} over {self.opponent}{doubt}; {took}"

    @property
    def opponent(self) -> str:
        return "the source as it is" if self.over == NOW else self.over

    @property
    def is_better(self) -> bool:
        """Whether the winner is faster than the source as it is, beyond the noise, or that one is not right."""
        won = self.winner
        if won is None or won.ratio is None or won.variant.is_now:
            return False
        return self.over != NOW or won.ratio.verdict == "faster"


def table(found: SweepReport) -> list[str]:
    short = [tuple(cell if len(cell) <= NOTE else cell[: NOTE - 3] + "..." for cell in row) for row in found.rows]
    left = {place for place, title in enumerate(found.titles) if title in ("verdict", "timed", "", "variant")}
    return [line.rstrip() for line in columns([found.titles, *short], left=left)]


def markdown_table(found: SweepReport) -> list[str]:
    rules = ["---" if title in ("verdict", "timed", "", "variant") else "---:" for title in found.titles]
    return [cells(list(found.titles)), cells(rules), *(cells(list(row)) for row in found.rows)]


@dataclass(frozen=True)
class HeatMap:
    """The best score at each pair of values of the two constants that have several."""

    down: str
    across: str
    downs: tuple[str, ...]
    acrosses: tuple[str, ...]
    items: dict[tuple[str, str], Standing]

    def share(self, item: Standing) -> float:
        """0 for the slowest of the map, 1 for the fastest."""
        scores = [score for other in self.items.values() if (score := other.score) is not None]
        low, high = min(scores), max(scores)
        return 1.0 if high == low or item.score is None else (item.score - low) / (high - low)


def heat_map(found: SweepReport) -> HeatMap | None:
    """None if there are not exactly two such constants."""
    grid = [item for item in found.standings if len(item.variant.values) == len(found.names)]
    values = [
        tuple(dict.fromkeys(item.variant.values[place] for item in sorted(grid, key=_order)))
        for place in range(len(found.names))
    ]
    several = [place for place, options in enumerate(values) if len(options) > 1]
    if len(several) != 2 or all(item.score is None for item in grid):
        return None
    first, second = several
    items: dict[tuple[str, str], Standing] = {}
    for item in grid:  # the fastest first
        items.setdefault((item.variant.values[first], item.variant.values[second]), item)
    return HeatMap(found.names[first], found.names[second], values[first], values[second], items)


def _order(item: Standing) -> list[tuple[float, str]]:
    """Numbers by size, after what is none."""
    keys = []
    for value in item.variant.values:
        try:
            keys.append((float(value), ""))
        except ValueError:
            keys.append((-1.0, value))
    return keys


def heat_text(found: SweepReport, ascii_only: bool = False) -> list[str]:
    if (chart := heat_map(found)) is None:
        return []
    shades = ASCII_SHADES if ascii_only else SHADES
    rows = [(f"{chart.down} \\ {chart.across}", *chart.acrosses)]
    for down in chart.downs:
        line = [down]
        for across in chart.acrosses:
            item = chart.items.get((down, across))
            if item is None:
                line.append("-")
            elif item.score is None:
                line.append(item.word)
            else:
                mark = "*" if item is found.winner else ""
                line.append(f"{mark}{fmt.exact(item.score)} {shades[round(chart.share(item) * (len(shades) - 1))]}")
        rows.append(tuple(line))
    return [line.rstrip() for line in columns(rows, left=())]


def tried(found: SweepReport, command: str) -> str:
    """For the log's entry."""
    lines = [f"Tried by `{one_line(command)}`, timed against {found.opponent}:", "", *markdown_table(found)]
    more = len(lines) - 4 - MOST_TRIED
    rest = ["", f"{fmt.plural(more, 'slower variant')} more."] if more > 0 else []
    return "\n".join([*lines[: 4 + MOST_TRIED], *rest])


def markdown(found: SweepReport, command: str) -> str:
    lines = [f"# Sweep of {found.task}", "", found.sentence, "", f"`{command}`", "", *markdown_table(found), ""]
    chart = heat_text(found)
    return "\n".join([*lines, *(["```text", *chart, "```", ""] if chart else [])])


def html(found: SweepReport, command: str) -> str:
    place = Path(__file__).parent / "sweep_page.html"
    return page(place, f"Sweep of {found.task}", found=found, command=command, chart=heat_map(found))


def json_line(stage: str, item: Standing) -> str:
    return encode("variant", stage=stage, **_told(item))


def json_end(found: SweepReport, command: str, wrote: str = "", entry: int | None = None) -> str:
    won = found.winner.variant.name if found.winner is not None else None
    about: dict[str, Any] = {"schema": SCHEMA, "task": found.task, "command": command, "over": found.over}
    about |= {
        "complete": found.is_over,
        "device": found.device,
        "seconds": found.seconds,
        "winner": won,
        "better": found.is_better,
    }
    ranking = [_told(item) for item in found.standings]
    return encode("sweep", **about, entry=entry, wrote=wrote, sentence=found.sentence, variants=ranking)


def _told(item: Standing) -> dict[str, Any]:
    data: dict[str, Any] = {"variant": item.variant.name, "values": list(item.variant.values), "status": item.status}
    data |= {"detail": item.detail, "ratio": to_dict(item.ratio) if item.ratio else None, "us": item.us}
    return data | {"round": item.round, "full": item.is_full, "seconds": round(item.seconds, 3)}


def write(folder: Path, found: SweepReport, command: str) -> list[Path]:
    """report.md, report.json and, where Jinja2 is installed, report.html; returns their paths."""
    texts = {"report.md": markdown(found, command), "report.json": json_end(found, command) + "\n"}
    with contextlib.suppress(ExportError):
        texts["report.html"] = html(found, command)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
