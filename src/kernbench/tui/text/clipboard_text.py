"""The text that `y` copies: a row or the table as markdown, ready for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from harness.shared import format as fmt
from kernbench import render
from kernbench.events import Summary
from kernbench.log.entries.entry_text import cells
from kernbench.tui.state.board import Row

_TITLES = ["case", "baseline us", "solution us", "speedup", "verdict", "error"]


def row(shown: Row) -> str:
    return "\n".join([*_head(), _line(shown), ""])


def table(rows: Sequence[Row], summary: Summary | None) -> str:
    lines = [*_head(), *[_line(shown) for shown in rows], ""]
    if summary is not None and summary.ratio is not None:
        where = ", ".join(part for part in (summary.environment.device_name, summary.environment.condition) if part)
        counts = render.counts(summary, [shown.result for shown in rows if shown.result])
        lines += [f"geomean {render.geomean(summary)}, {counts} ({where})", ""]
    return "\n".join(lines)


def _head() -> list[str]:
    return [cells(_TITLES), "| --- | ---: | ---: | ---: | --- | ---: |"]


def _line(shown: Row) -> str:
    result = shown.result
    if result is None:
        return cells([shown.case.label, *[fmt.DASH] * 5])
    return cells(
        [
            shown.case.label,
            fmt.microseconds(result.baseline_us),
            fmt.microseconds(result.solution_us),
            fmt.speedup(result.ratio),
            render.verdict(result) + ("" if shown.fresh else " (earlier run)"),
            fmt.error(result.error.max if result.error else None),
        ]
    )
