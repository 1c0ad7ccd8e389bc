"""The colors, all from the 256-color palette, so that SSH without truecolor shows the same screen."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

KERNBENCH = Theme(
    name="kernbench",
    primary="#5fafff",
    secondary="#87afd7",
    accent="#5fd7d7",
    success="#5fd787",
    warning="#ffaf5f",
    error="#ff5f5f",
    foreground="#d0d0d0",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    dark=True,
    variables={"text-muted": "#8a8a8a", "panel-lighten-1": "#4e4e4e", "panel-lighten-2": "#626262"},
)


def default(environ: Mapping[str, str]) -> str:
    """Our colors on a 256-color terminal; with 16 colors or NO_COLOR the terminal's colors, which are readable."""
    if environ.get("NO_COLOR"):
        return "ansi-dark"
    many = environ.get("COLORTERM") or "256color" in environ.get("TERM", "") or "direct" in environ.get("TERM", "")
    return KERNBENCH.name if many or environ.get("TEXTUAL_COLOR_SYSTEM", "") in ("256", "truecolor") else "ansi-dark"


def own_colours_only(environ: Mapping[str, str]) -> bool | None:
    """True under NO_COLOR: Textual then strips colors instead of turning them to grays (ansi colors to black)."""
    return True if environ.get("NO_COLOR") else None
