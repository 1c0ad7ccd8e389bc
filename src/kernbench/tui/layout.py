"""Which panes show at a given screen size.

Below 110 columns one pane shows and the tabs name the others; from 110 the results share the screen with one other
pane; from 160 columns and 40 lines the right column stacks all the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WIDE, STACKED = 110, 160
"""Columns from which panes show side by side, and from which the right side is stacked."""
TALL = 14
"""Lines from which tabs and hint fit."""
STACKED_LINES = 40
"""Lines from which every pane fits in the stacked side."""
PLOT_LINES = 22
"""Lines of the screen from which the plot shows below the iterations."""
LEAST_PLOT, MOST_PLOT = 8, 30
OUTPUT, OUTPUT_OF_A_FAILURE = 5, 12
MOST_LINES = {"gpu": 14, "profile": 14, "iterations": 16}
"""Of a pane's content, where panes share a column."""
LEAST_LINES = {"iterations": 5, "profile": 4, "gpu": 3, "output": 2}
"""What a pane keeps when there is too little room; the first gives lines away first."""
PANES = (
    ("results", "Results"),
    ("gpu", "GPU"),
    ("profile", "Profile"),
    ("iterations", "Iterations"),
    ("output", "Output"),
)
SIDE = PANES[1:]
LEAST_WIDE_PLOT = 9
"""Lines of the plot below the results, with its title."""


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
        "main": not one or active == "results",
        "results": not one or active == "results",
        "side": not one or active != "results",
        **panes,
        "plot": (stacked or side != "output") and height >= PLOT_LINES,
        "tabs": one and height >= TALL,
        "side-tabs": not one and not stacked,
        "hint": height >= TALL and not filtering,
    }
    return Layout(one, stacked, display)


def share_main(total: int, results: int, least: int, most: int, has_plot: bool) -> dict[str, int]:
    """The heights of the results and what is below them, by name: only lines that the results do not need.

    `least` and `most` are the lines of use to the heat map; the plot gets what both leave, if it is enough.
    """
    left = total - results
    heat = min(left, most) if left >= least else 0
    plot = left - heat if has_plot and left - heat >= LEAST_WIDE_PLOT else 0
    return {"results": results if heat or plot else total, "heat": heat, "wide-plot": plot}


def share(
    total: int,
    wanted: Mapping[str, int],
    stacked: bool,
    is_failed: bool,
    has_plot: bool = True,
    is_only_plot: bool = True,
) -> dict[str, int]:
    """The heights of panes in one column, by name, from the lines of their content.

    What they do not need goes to the plot, to the iterations (or the only pane) if the plot is large enough, and to the
    output while something is wrong. If there is another plot, no pane gives up a line for this one.
    """
    title = 1 if stacked else 0
    heights = {name: min(lines, MOST_LINES.get(name, lines)) + title for name, lines in wanted.items()}
    if stacked and "output" in wanted:
        heights["output"] = (OUTPUT_OF_A_FAILURE if is_failed else OUTPUT) + title
    for name, least in LEAST_LINES.items():
        missing = (LEAST_PLOT if is_only_plot and "iterations" in wanted else 0) - (total - sum(heights.values()))
        if name in heights and missing > 0:
            heights[name] = max(heights[name] - missing, min(heights[name], least + title))
    left = total - sum(heights.values())
    plot = min(left, MOST_PLOT) if left >= LEAST_PLOT and has_plot else 0
    heights["iterations" if stacked else next(iter(wanted))] += max(left - plot, 0)
    return {**heights, "plot": plot}
