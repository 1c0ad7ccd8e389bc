"""A page of Markdown as lines for a terminal: prose wrapped, tables aligned or spelled out, code indented. Pure.

It knows what the guide uses: headings, paragraphs, lists, tables and fenced code. Comments are left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len

Kind = Literal["title", "head", "columns", "code", "text"]
"""`columns` are the names above a table."""
LEAST_WIDTH = 30
_HEADING = re.compile(r"(#+) (.*)")
_ITEM = re.compile(r"(?P<mark>- |\d+\. )(?P<text>.*)")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")
_BAR = re.compile(r"(?<!\\)\|")


class Line(NamedTuple):
    text: str
    kind: Kind = "text"


def lines(text: str, width: int) -> list[Line]:
    found: list[Line] = []
    for block in _blocks(text.splitlines()):
        if found:
            found.append(Line(""))
        found += _block(block, max(width, LEAST_WIDTH))
    return found


def _blocks(given: Sequence[str]) -> Iterator[list[str]]:
    """Runs of lines that belong together; code is one, with its blank lines."""
    block: list[str] = []
    in_code = False
    for line in given:
        fence = line.startswith("```")
        ends = not in_code and (not line or fence or line.startswith("<!--") or _HEADING.match(line))
        if ends and block:
            yield block
            block = []
        if fence and in_code:
            yield [*block, line]
            block = []
        elif in_code or fence or (line and not line.startswith("<!--")):
            block.append(line)
        in_code ^= fence
        if not in_code and block and _HEADING.match(line):
            yield block
            block = []
    if block:
        yield block


def _block(block: list[str], width: int) -> Iterator[Line]:
    if block[0].startswith("```"):
        yield from (Line(f"    {line}".rstrip(), "code") for line in block[1:-1])
    elif heading := _HEADING.match(block[0]):
        yield from (Line(part, "title" if heading[1] == "#" else "head") for part in _wrapped(heading[2], width))
    elif len(block) > 1 and _RULE.fullmatch(block[1]):
        yield from _table([_cells(line) for line in (block[0], *block[2:])], width)
    else:
        for paragraph in _paragraphs(block):
            item = _ITEM.match(paragraph)
            indent = " " * len(item["mark"]) if item else ""
            yield from map(Line, _wrapped(paragraph, width, indent))


def _paragraphs(block: list[str]) -> list[str]:
    """List items, or the one paragraph."""
    found: list[str] = []
    for line in block:
        if found and not _ITEM.match(line):
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return found


def _table(rows: list[list[str]], width: int) -> Iterator[Line]:
    """Aligned if that fits; otherwise each row's first cell, with the others below it."""
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(rows[0]))]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        for number, row in enumerate(rows):
            text = "  ".join(f"{cell}{' ' * (size - cell_len(cell))}" for cell, size in zip(row, widths, strict=True))
            if number or text.strip():
                yield Line(text.rstrip(), "text" if number else "columns")
        return
    titles = rows[0]
    for row in rows[1:]:
        yield from map(Line, _wrapped(row[0], width))
        for title, cell in list(zip(titles, row, strict=True))[1:]:
            if cell:
                said = f"    {title}: {cell}" if title and len(titles) > 2 else f"    {cell}"
                yield from map(Line, _wrapped(said, width, "    "))


def _cells(row: str) -> list[str]:
    inside = row.strip().removeprefix("|").removesuffix("|")
    return [_plain(cell.strip().replace("\\|", "|")) for cell in _BAR.split(inside)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        _plain(text), width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    ) or [""]


def _plain(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"\1", text)
