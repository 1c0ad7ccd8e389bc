"""The help page and the palette's list, made from the bindings themselves."""

from __future__ import annotations

from collections.abc import Callable

from textual.binding import Binding, BindingType

from kernbench.tui.iterations import Iterations
from kernbench.tui.log import Log
from kernbench.tui.results import Results
from kernbench.tui.rows import RowView
from kernbench.tui.screen import MainScreen
from kernbench.tui.spans import Span

KEY_WIDTH = 14


def main_bindings() -> list[Binding]:
    """The keys that work everywhere."""
    return _bindings(MainScreen.BINDINGS)


def key_lines(display: Callable[[Binding], str]) -> list[list[Span]]:
    groups = [
        ("Everywhere", main_bindings()),
        ("In a list", _bindings(RowView.BINDINGS)),
        ("Results", _bindings(Results.BINDINGS)),
        ("Iterations", _bindings(Iterations.BINDINGS)),
        ("Log", _bindings(Log.BINDINGS)),
    ]
    lines: list[list[Span]] = []
    for title, bindings in groups:
        lines.append([(title, "head")])
        lines += [_line(binding, display) for binding in bindings]
        lines.append([])
    lines.append([("ctrl+p".ljust(KEY_WIDTH), "strong"), ("everything, by name", "")])
    return lines


def _line(binding: Binding, display: Callable[[Binding], str]) -> list[Span]:
    keys = binding.key_display or ", ".join(display(Binding(key, binding.action)) for key in binding.key.split(","))
    return [(f"{keys:<{KEY_WIDTH}}", "strong"), (binding.tooltip or binding.description, "")]


def _bindings(declared: list[BindingType]) -> list[Binding]:
    return [binding for binding in declared if isinstance(binding, Binding)]
