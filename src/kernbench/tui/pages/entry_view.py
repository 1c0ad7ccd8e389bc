"""An entry of ITERATIONS.md as a page: title, facts with their names, aligned tables with colored verdicts.

Anything else in the entry shows as it is.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from kernbench.tui.text.spans import Span, clean, pad, spell

NAMES = 12
"""Cells of a fact's name."""
LEAST_WIDTH = 20
_FACT = re.compile(r"- (?:(?P<name>when|with) |(?P<key>[a-z][a-z ]{0,20}): )(?P<said>.*)")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")
_BAR = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([|<>\\`*_\[\]#])")
VERDICTS = {
    "faster": "faster",
    "slower": "slower",
    "unclear": "warn",
    "WRONG": "bad",
    "crashed": "bad",
    "timeout": "bad",
}
Line = list[Span]


def lines(text: str, width: int, ascii_only: bool = False) -> list[Line]:
    found = _lines([clean(line) for line in text.splitlines() if not line.startswith("<!--")], max(width, LEAST_WIDTH))
    return [[(spell(part, ascii_only), style) for part, style in line] for line in found]


def _lines(given: Sequence[str], width: int) -> Iterator[Line]:
    at, is_code = 0, False
    while at < len(given):
        line = given[at]
        is_code ^= line.startswith("```")
        rows = _table(given[at:]) if not is_code else []
        if rows:
            yield from _aligned(rows, given[at + 1])
            at += len(rows) + 1
            continue
        at += 1
        if is_code or line.startswith("```"):
            yield [(line, "dim")]
        elif line.startswith("## "):
            yield from _title(line[3:], width)
        elif (fact := _FACT.fullmatch(line)) is not None:
            yield from _fact(fact["name"] or fact["key"], fact["said"], width)
        else:
            yield from ([(part, "")] for part in textwrap.wrap(_unescaped(line), width) or [""])


def _title(text: str, width: int) -> Iterator[Line]:
    for index, part in enumerate(textwrap.wrap(_unescaped(text), width)):
        yield [(part, "head" if index == 0 else "strong")]
    yield []


def _fact(name: str, said: str, width: int) -> Iterator[Line]:
    """A result of several parts has a line for each."""
    parts = said.split("; ") if name == "result" else [said]
    shown = [line for part in parts for line in textwrap.wrap(_code(_unescaped(part)), width - NAMES) or [""]]
    for index, line in enumerate(shown or [""]):
        style = "strong" if name == "hypothesis" else _style(line) if name == "result" and index else ""
        yield [(pad(name if index == 0 else "", NAMES), "dim"), (line, style)]


def _style(part: str) -> str:
    return "warn" if part.startswith(("undecided", "not best", "findings", "refused")) else ""


def _table(given: Sequence[str]) -> list[list[str]]:
    """The rows of a table that begins here, its head first; empty if none does."""
    if len(given) < 2 or not given[0].startswith("|") or _RULE.fullmatch(given[1]) is None:
        return []
    rows = [given[0]]
    for line in given[2:]:
        if not line.startswith("|"):
            break
        rows.append(line)
    return [[_unescaped(cell.strip()) for cell in _cells(row)] for row in rows]


def _cells(row: str) -> list[str]:
    return _BAR.split(row.strip().removeprefix("|").removesuffix("|"))


def _code(text: str) -> str:
    """Without the backticks, if all of it is one piece of code."""
    return text[1:-1] if re.fullmatch(r"`[^`]+`", text) else text


def _aligned(rows: list[list[str]], rule: str) -> Iterator[Line]:
    rights = [cell.strip().endswith(":") for cell in _cells(rule)]
    count = max(map(len, rows))
    rows = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(count)]
    for number, row in enumerate(rows):
        yield [
            (
                pad(cell, widths[index], index < len(rights) and rights[index]) + ("  " if index < count - 1 else ""),
                "head" if number == 0 else _verdict(cell),
            )
            for index, cell in enumerate(row)
        ]


def _verdict(cell: str) -> str:
    return next((style for word, style in VERDICTS.items() if word in cell.split()), "")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
