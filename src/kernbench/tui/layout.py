"""Which panes show at a given screen size.

Below 110 columns one pane shows and the tabs name the others; from 110 the results share the screen with one other
pane; from 160 columns and 40 lines the right column stacks all the others.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDE, STACKED = 110, 160
"""Columns from which panes show side by side, and from which the right side is stacked."""
TALL = 14
"""Lines from which tabs and hint fit."""
STACKED_LINES = 40
"""Lines from which every pane fits in the stacked side."""
PLOT_LINES, STACKED_PLOT_LINES = 22, 42
"""Lines from which the plot shows below the iterations."""
PANES = (
    ("results", "Results"),
    ("gpu", "GPU"),
    ("profile", "Profile"),
    ("iterations", "Iterations"),
    ("output", "Output"),
)
SIDE = PANES[1:]


@dataclass(frozen=True)
class Layout:
    one: bool
    """One pane fills the screen."""
    stacked: bool
    display: dict[str, bool]
    """Which widgets show, by id."""


def choose(width: int, height: int, whole: bool, active: str, side: str, filtering: bool) -> Layout:
    """`whole` asks for one pane at any width; `side` is the pane next to the results."""
    one = whole or width < WIDE
    stacked = width >= STACKED and height >= STACKED_LINES and not one
    panes = {name: stacked or side == name for name, _ in SIDE}
    display = {
        "results": not one or active == "results",
        "side": not one or active != "results",
        **panes,
        "plot": panes["iterations"] and height >= (STACKED_PLOT_LINES if stacked else PLOT_LINES),
        "tabs": one and height >= TALL,
        "side-tabs": not one and not stacked,
        "hint": height >= TALL and not filtering,
    }
    return Layout(one, stacked, display)
