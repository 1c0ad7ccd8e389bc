"""One line of the terminal: styled spans, clipped by cell width, shortened by priority to fit.

A span is text plus the *name* of a style; the theme defines its look. Text is never parsed as markup, so a label such
as `m[bf16]` prints as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from kernbench.machine.plain_text import plain
from kernbench.worker.log_limit import ESCAPES

Span = tuple[str, str]
"""Text and the name of its style: a key of STYLES."""

ROW_STYLES = {
    "": "",
    "strong": "bold",
    "dim": "$text-muted",
    "head": "bold $text-primary",
    "faster": "$text-success",
    "slower": "$text-warning",
    "warn": "$text-warning",
    "bad": "bold $text-error",
    "accent": "$text-accent",
}
"""Those of a pane's rows. Textual computes each for every pane before the first paint."""
STYLES = ROW_STYLES | {
    "tab": "bold reverse $text-primary",
    "keyword": "$text-primary",
    "string": "$text-success",
    "number": "$text-accent",
    "comment": "italic $text-muted",
    "added": "$text-success",
    "removed": "$text-error",
    "added-part": "bold reverse $text-success",
    "removed-part": "bold reverse $text-error",
}
"""The others are for tabs and source code."""

_ASCII = str.maketrans({"±": "+-", "✓": "ok"} | dict(zip("▲▼…·█▌▐░│", "^v~-###.|", strict=True)))


def clean(text: str) -> str:
    """Make a kernel's text fit one line: no escape sequences, no control characters, tabs as spaces."""
    return plain(ESCAPES.sub("", text)).expandtabs(4).replace("\r", "").replace("\n", " ")


def spell(text: str, ascii_only: bool) -> str:
    """Our signs, in ASCII if the terminal has nothing else."""
    return text.translate(_ASCII) if ascii_only else text


def clip(text: str, width: int) -> str:
    """At most `width` cells; cut text ends in an ellipsis."""
    if cell_len(text) <= width:
        return text
    return "" if width < 1 else set_cell_size(text, width - 1).rstrip() + "…"


def pad_name(text: str, width: int) -> str:
    """Exactly `width` cells; a longer name is cut in its middle: names of cases differ at their ends."""
    if not cell_len(text) > width > 2:
        return pad(text, width)
    end = text[-((width - 1) // 2) :]
    while cell_len(end) > (width - 1) // 2:  # wide characters
        end = end[1:]
    return pad(set_cell_size(text, width - 1 - cell_len(end)).rstrip() + "…" + end, width)


def pad(text: str, width: int, right: bool = False) -> str:
    """Exactly `width` cells."""
    text = clip(text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def content(spans: Iterable[Span], ansi: bool = False) -> Content:
    """Spans as Textual's Content. An ansi theme has no gray: there dim is an attribute."""
    styles = STYLES | {"dim": "dim"} if ansi else STYLES
    return Content.assemble(*[(text, styles[style]) for text, style in spans])


@dataclass(frozen=True)
class Part:
    """Part of a line in several lengths, longest first; an empty form omits it."""

    forms: tuple[str, ...]
    style: str = ""

    def form(self, level: int) -> str:
        return self.forms[min(level, len(self.forms) - 1)]


def fit(parts: Sequence[Part], width: int, order: Sequence[int], gap: str = "  ") -> list[Span]:
    """The parts on one line; while they are too wide, the next part in `order` takes its next shorter form."""
    levels = [0] * len(parts)

    def shown() -> list[Span]:
        texts = [(part.form(level), part.style) for part, level in zip(parts, levels, strict=True)]
        return [span for span in texts if span[0]]

    def size(spans: list[Span]) -> int:
        return sum(cell_len(text) for text, _ in spans) + len(gap) * max(len(spans) - 1, 0)

    for index in order:
        if size(shown()) <= width:
            break
        levels[index] += 1
    for index in reversed(order):
        # A later, larger cut may leave room to undo an earlier, smaller one.
        levels[index] = max(levels[index] - 1, 0)
        if size(shown()) > width:
            levels[index] += 1
    return _joined(shown(), gap, width)


def _joined(spans: list[Span], gap: str, width: int) -> list[Span]:
    joined: list[Span] = []
    left = width
    for position, (text, style) in enumerate(spans):
        text = clip((gap if position else "") + text, left)
        left -= cell_len(text)
        joined.append((text, style))
    return joined
