"""Why a row failed, in one sentence: in full if it fits, else short, with the values first to survive a cut."""

from __future__ import annotations

import re

from rich.cells import cell_len

from harness.shared.codes import SHORT
from harness.shared.errors import Where
from harness.shared.results import CaseResult
from kernbench import render
from kernbench.events import BuildFailed
from kernbench.tui.state.board import Board, Row
from kernbench.tui.text.spans import Span, clean, clip

WHOLE_FROM = 96
"""Cells that nearly always hold a full sentence of the checks."""
_ASIDE = re.compile(r"( \([^()]*\))+$")
"""The tolerance and the seed, which the row page shows."""
_SHORTER = (
    (re.compile(r" differs at (\[[\d, ]*\]): got "), r"\1 "),
    (re.compile(r" is (\S+) at (\[[\d, ]*\])(?=, expected )"), r"\2 \1"),
    (re.compile(r" (?:differs: got|has(?= shape| strides)) ?"), " "),
    (re.compile(r", expected "), ", not "),
    (re.compile(r"\b(?:Accelerator|Runtime)Error: CUDA error: "), ""),
)
_PLACE_FIRST = re.compile(r"^(?P<place>[^:;]+\[[\d, ]*\]) (?P<values>\S+, not \S+)$")


def sentence(result: CaseResult) -> str:
    """The worker's sentence."""
    error = result.error
    if result.detail:
        return result.detail
    if error is not None and error.index is not None:
        return f"{place(error.output, error.index)}: got {error.got}, expected {error.expected}"
    return "no details"


def traceback(board: Board, selected: Row | None) -> tuple[str, list[list[Span]]] | None:
    """Title and lines for `t`: from the failed build, the selected row, or the first row with a traceback."""
    failure = board.failure
    if failure is not None:
        return (f"Traceback of {_build(failure)}", _lines(failure.traceback)) if failure.traceback else None
    for row in ([selected] if selected else []) + board.failed_rows():
        result = row.result
        if result is not None and result.traceback:
            title = f"Traceback of {clean(row.case.label)}: {render.STATUS_WORDS[result.status]}"
            return title, [*source_line(result.where), *_lines(result.traceback)]
    return None


def source_line(where: Where | None) -> list[list[Span]]:
    """The line of source that failed."""
    return [[(f"  {where.line or ''} | {clean(where.text)}", "strong")], []] if where and where.text else []


def _build(failure: BuildFailed) -> str:
    return clean(str(failure.where)) if failure.where else "the last build"


def _lines(text: str) -> list[list[Span]]:
    return [[(clean(line), "")] for line in text.splitlines()]


def brief(result: CaseResult, room: int) -> str:
    """Full or short by the width alone, so that all rows of a table read alike; the rest is cut."""
    whole = clean(render.place(result.where, sentence(result)))
    if result.reason in SHORT and cell_len(whole) > room:
        whole = SHORT[result.reason]
    return clip(whole if room >= WHOLE_FROM else _short(whole), room)


def place(output: str | None, index: tuple[int, ...]) -> str:
    """`out[3, 17]`."""
    return f"{output or 'output'}[{', '.join(str(part) for part in index)}]"


def _short(whole: str) -> str:
    """Shorten known sentences; others stay as they are."""
    short = _ASIDE.sub("", whole)
    for pattern, shorter in _SHORTER:
        short = pattern.sub(shorter, short)
    found = _PLACE_FIRST.match(short)
    return f"{found['values']} at {found['place']}" if found else short
