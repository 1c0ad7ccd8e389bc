"""What ctrl+p offers: every action that works everywhere, and those of the selected row and entry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.binding import Binding

from kernbench.tui.pages.help import main_bindings

if TYPE_CHECKING:
    from kernbench.tui.app import Workbench


def commands(bench: Workbench) -> Iterator[SystemCommand]:
    for binding in main_bindings():
        run = partial(bench.run_action, binding.action, bench.main)
        yield SystemCommand(_name(binding), binding.tooltip, run)
    yield SystemCommand("row", "everything known of the selected row", bench.show_row)
    yield SystemCommand("entry", "the selected entry of ITERATIONS.md, its source and diff", bench.past.show_entry)
    yield SystemCommand("copy entry", "the selected entry as markdown", bench.copy_entry)
    yield SystemCommand("restore", "bring the selected iteration's source back", bench.past.restore_selected)
    yield SystemCommand("theme", "choose colours; ansi themes keep the terminal's own", bench.action_change_theme)


def _name(binding: Binding) -> str:
    """The key line's word for an action, and the settings' where that is another: somebody may look for either."""
    known = (binding.id or "").rpartition(".")[2].replace("_", " ")
    return binding.description if known in binding.description.casefold() else f"{binding.description} ({known})"
