"""The colors, all from the 256-color palette, so that SSH without truecolor shows the same screen.

Text in another theme's colors is darkened or lightened until it is readable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from textual.color import Color
from textual.theme import Theme

from harness.shared.regular_file import NotRegular, read_text
from kernbench import settings
from kernbench.atomic_write import written_aside

READABLE = 4.5
"""The contrast that text needs: WCAG's AA."""
BEHIND_TEXT = ("background", "surface", "panel")
TEXT_COLORS = ("primary", "success", "warning", "error", "accent")
STEPS = 40
LONGEST = 1000
"""Of a file that names a theme."""
LINE = 0.3
"""Of the way from the background to the text."""
_OWN = {
    "primary": "#5fafff",
    "success": "#5fd787",
    "warning": "#ffaf5f",
    "error": "#ff5f5f",
    "accent": "#5fd7d7",
}
KERNBENCH = Theme(
    name="kernbench",
    primary=_OWN["primary"],
    secondary="#87afd7",
    success=_OWN["success"],
    warning=_OWN["warning"],
    error=_OWN["error"],
    accent=_OWN["accent"],
    foreground="#d0d0d0",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    dark=True,
    variables={f"text-{name}": color for name, color in _OWN.items()} | {"text-muted": "#949494", "line": "#4e4e4e"},
)


def remembered(environ: Mapping[str, str]) -> Path:
    """Has the theme that was last chosen on the screen."""
    return settings.remembered(environ, "theme")


def remember(path: Path, name: str) -> str:
    """Returns why it cannot; empty if it can."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, f"{name}\n".encode()) as move:
            move()
    except OSError as problem:
        return f"the theme is not remembered: {path} cannot be written: {problem.strerror}"
    return ""


def default(environ: Mapping[str, str], themes: Container[str]) -> str:
    """The theme last chosen, or else our colors on a 256-color terminal; with 16 colors or NO_COLOR the terminal's
    colors, which are readable."""
    if environ.get("NO_COLOR"):
        return "ansi-dark"
    with contextlib.suppress(OSError, UnicodeDecodeError, NotRegular):
        if (name := read_text(remembered(environ), LONGEST).strip()) in themes:
            return name
    many = environ.get("COLORTERM") or "256color" in environ.get("TERM", "") or "direct" in environ.get("TERM", "")
    return KERNBENCH.name if many or environ.get("TEXTUAL_COLOR_SYSTEM", "") in ("256", "truecolor") else "ansi-dark"


def readable(variables: Mapping[str, str], dark: bool) -> dict[str, str]:
    """A theme's variables, with text colors that are readable on all that we put behind text, and a color for lines
    between panes."""
    found = {"line": variables["panel-lighten-1"], **variables}
    if "ansi" in variables["background"]:  # the terminal's colors; its blue is hard to read on black
        return found | ({"text-primary": "ansi_bright_blue"} if dark else {})
    behind = [Color.parse(variables[name]) for name in BEHIND_TEXT]
    plain = Color.parse(variables["foreground"])
    muted = found["text-muted"]
    found["text-muted"] = behind[0].blend(plain, 0.6).hex if muted.startswith("auto") else muted
    for name in ("muted", *TEXT_COLORS):
        found[f"text-{name}"] = _until_readable(Color.parse(found[f"text-{name}"]), behind, dark).hex
    found["line"] = variables.get("line", behind[0].blend(plain, LINE).hex)
    found["foreground"] = _until_readable(plain, behind, dark).hex
    return found


def _until_readable(color: Color, behind: Sequence[Color], dark: bool) -> Color:
    end = Color(255, 255, 255) if dark else Color(0, 0, 0)
    steps = (color.blend(end, step / STEPS) for step in range(STEPS))
    return next((found for found in steps if all(contrast(found, back) >= READABLE for back in behind)), end)


def contrast(one: Color, other: Color) -> float:
    """From 1, the same, to 21, black on white."""
    light, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dim + 0.05)


def _luminance(color: Color) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def own_colours_only(environ: Mapping[str, str]) -> bool | None:
    """True under NO_COLOR: Textual then strips colors instead of turning them to grays (ansi colors to black)."""
    return True if environ.get("NO_COLOR") else None
