"""Which panes show, by the room there is.

Under 110 columns one pane shows and the tabs name the others; from 110 results and one other stand side by side; from
160 columns and 40 lines the right column is stacked.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDE, STACKED = 110, 160
"""Columns from which panes stand side by side, and from which the right side is stacked."""
TALL = 14
"""Lines from which tabs and hint have room."""
STACKED_LINES = 40
"""Lines from which the stacked side has room for every pane."""
PLOT_LINES, STACKED_PLOT_LINES = 22, 42
"""Lines from which the plot stands below the iterations."""
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
    """A single pane has the screen."""
    stacked: bool
    display: dict[str, bool]
    """Which widgets show, by their id."""


def choose(width: int, height: int, whole: bool, active: str, side: str, filtering: bool) -> Layout:
    """`whole` asks for one pane however wide the screen is; `side` is the one beside the results."""
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
