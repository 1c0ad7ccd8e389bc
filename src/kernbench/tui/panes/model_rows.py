"""The rows below the results: what a step of each model came to, and with which source. No Textual here."""

from __future__ import annotations

from harness.shared import format as fmt
from kernbench import render
from kernbench.events import ModelLine, ModelsChanged
from kernbench.tui.text.spans import Part, Span, clean, fit, spell

TITLE = " in a model "
ORDER = (4, 4, 1, 2, 4, 3, 1)
"""Which part is shortened next; the source stays."""


def count(models: ModelsChanged) -> int:
    return len(models.lines) + 1 if models.lines else 0


def lines(models: ModelsChanged, source: str, width: int, ascii_only: bool) -> list[list[Span]]:
    """A rule, then a line per model; dim if another source than the newest was in it."""
    rule = ("-" if ascii_only else "─") * 2
    head: list[Span] = [(f"{rule}{TITLE}{rule[0] * max(width - len(TITLE) - 2, 0)}"[:width], "dim")]
    widest = max((len(clean(line.model)) for line in models.lines), default=0)
    return [head, *(_line(line, source, width, widest, ascii_only) for line in models.lines)]


def _line(line: ModelLine, source: str, width: int, widest: int, ascii_only: bool) -> list[Span]:
    is_current = line.source == source
    ratio = line.ratio
    sign = f"{render.SIGNS[ratio.verdict]} " if ratio and line.word == ratio.verdict else ""
    style = "bad" if not line.kept else {"faster": "faster"}.get(line.word, "strong")
    steps = f"{fmt.microseconds(line.before_ms)} -> {fmt.microseconds(line.after_ms)} ms" if line.after_ms else ""
    expected = f"expected {fmt.exact(line.expected)}" if line.expected and "expected" not in line.word else ""
    not_kept = "" if line.kept else f"not kept: {clean(line.why)}" if line.why else "not kept"
    parts = [
        Part((clean(line.model).ljust(widest),), "strong"),
        Part((steps, "")),
        Part((fmt.speedup(ratio), fmt.times(ratio.speedup)) if ratio else ("",), style),
        Part((f"{sign}{clean(line.word)}", clean(line.word).partition(" (")[0]), style),
        Part((f"{expected}  {not_kept}".strip(), not_kept, "not kept" if not_kept else "", ""), "dim"),
        Part((_which(line, is_current),), "" if is_current else "warn"),
    ]
    found = fit(
        [Part(tuple(spell(form, ascii_only) for form in part.forms), part.style) for part in parts], width, ORDER
    )
    return found if is_current else [(text, "warn" if style == "warn" else "dim") for text, style in found]


def _which(line: ModelLine, is_current: bool) -> str:
    if line.number is not None:
        return f"of #{line.number}"
    return "of this source" if is_current else "of an older source"
