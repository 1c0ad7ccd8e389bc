"""The ctrl+p palette: every global action, and the actions on the selected row and entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from textual.app import SystemCommand
from textual.binding import Binding

from kernbench.tui.pages.help import main_bindings

Run = Callable[[], Any]
"""Textual awaits the result if it is awaitable."""


def commands(
    run_action: Callable[[str], Any],
    *,
    show_row: Run,
    show_entry: Run,
    copy_entry: Run,
    restore_entry: Run,
    drop_entry: Run,
    change_theme: Run,
) -> Iterator[SystemCommand]:
    """`run_action` runs the action that a key of the main screen is bound to."""
    for binding in main_bindings():
        yield SystemCommand(_name(binding), binding.tooltip, partial(run_action, binding.action))
    yield SystemCommand("row", "details of the selected row", show_row)
    yield SystemCommand("entry", "the selected entry of ITERATIONS.md, its source and diff", show_entry)
    yield SystemCommand("copy entry", "the selected entry as Markdown", copy_entry)
    yield SystemCommand("restore", "restore the selected iteration's source", restore_entry)
    yield SystemCommand("drop", "drop the selected entry from ITERATIONS.md; undo puts it back", drop_entry)
    yield SystemCommand("theme", "choose colors; ansi themes use the terminal's colors", change_theme)


def _name(binding: Binding) -> str:
    """The key line's name for an action, plus its name in config.toml if that differs: users search for either."""
    known = (binding.id or "").rpartition(".")[2].replace("_", " ")
    return binding.description if known in binding.description.casefold() else f"{binding.description} ({known})"
