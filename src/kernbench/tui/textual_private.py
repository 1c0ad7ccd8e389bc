"""Every private name of Textual that the screens use, each with a fallback for a Textual without it.

Textual is imported inside the functions only; `kernbench doctor` calls them to name the fallbacks in use.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.segment import Segment
    from textual.app import App

_OF_APPS = ("_fatal_error", "_exception", "_close_messages_no_wait", "_display")
_OF_KEYS = ("_character_to_key",)
_OF_UPDATES = ("CompositorUpdate", "LayoutUpdate", "ChopsUpdate")
Piece = tuple[int, int, "Iterable[Segment]"]
"""Part of a line: y, x and its text."""


def fallbacks() -> list[str]:
    """The private names that the installed Textual lacks: fallbacks replace them."""
    from textual import keys
    from textual.app import App

    app: App[None] = App()  # `_exception` is set on the instance, not the class
    missing = [f"textual.app.App.{name}" for name in _OF_APPS if not hasattr(app, name)]
    missing += [f"textual.keys.{name}" for name in _OF_KEYS if not hasattr(keys, name)]
    updates = _updates()
    return missing + [f"textual._compositor.{name}" for name in _OF_UPDATES if not hasattr(updates, name)]


def on_fatal_error(app: App[Any], take: Callable[[BaseException], bool]) -> None:
    """Call `take` with the first uncaught exception; if it returns true, the app exits silently.

    Otherwise, or if Textual has no `_fatal_error`, Textual shows its page with the traceback.
    """
    shows_page = getattr(app, "_fatal_error", None)
    if shows_page is None:
        return

    def fatal_error() -> None:
        problem = getattr(app, "_exception", None) or sys.exc_info()[1]
        if problem is None or not take(problem):
            shows_page()
            return
        close = getattr(app, "_close_messages_no_wait", None)
        if close is not None:
            close()
        else:
            app.exit(return_code=1)

    app._fatal_error = fatal_error  # type: ignore[method-assign]


def on_paint(app: App[Any], encode: Callable[[tuple[int, int], Iterable[Piece], bool, ColorSystem], str]) -> None:
    """Let `encode` turn each paint into what is sent, from the screen's size, its pieces and whether they are all.

    Without Textual's own types for a paint, every paint is sent as Textual writes it.
    """
    updates, display = _updates(), getattr(app, "_display", None)
    if display is None or not all(hasattr(updates, name) for name in _OF_UPDATES):
        return
    from rich.color import ColorSystem

    class Paint(updates.CompositorUpdate):  # type: ignore[misc, name-defined]
        def __init__(self, update: Any) -> None:
            self._update = update

        def render_segments(self, console: Any) -> str:
            """Called only if the paint is sent."""
            whole = isinstance(self._update, updates.LayoutUpdate)
            pieces = _pieces_of_all(self._update) if whole else _pieces(self._update)
            systems = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT}
            size = app.screen.outer_size
            system = systems.get(console.color_system, ColorSystem.TRUECOLOR)
            return encode((size.width, size.height), pieces, whole, system)

    def displayed(screen: Any, update: Any) -> None:
        known = isinstance(update, updates.LayoutUpdate | updates.ChopsUpdate)
        display(screen, Paint(update) if known else update)

    app._display = displayed  # type: ignore[method-assign, assignment]


def _updates() -> Any:
    try:
        from textual import _compositor
    except ImportError:
        return None
    return _compositor


def _pieces_of_all(update: Any) -> Iterator[Piece]:
    for y, strips in enumerate(update.strips, update.region.y):
        x = update.region.x
        for strip in strips:
            yield y, x, strip
            x += strip.cell_length


def _pieces(update: Any) -> Iterator[Piece]:
    """Of the lines' parts that changed; Textual may not have rendered the others."""
    for y, begin, end in update.spans:
        for stop, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x < end and stop > begin:
                first = max(begin - x, 0)
                yield y, x + first, strip.crop(first, min(stop, end) - x)


def forget_closed_widgets() -> None:
    """Drop what Textual painted for widgets that no longer exist: a cache holds all their lines, up to 1 MB a page.

    A Textual without this cache has nothing to drop.
    """
    from textual import widget

    cached = getattr(getattr(widget, "StylesCache", None), "get_inner_outer", None)
    if clear := getattr(cached, "cache_clear", None):
        clear()


def key_of(character: str) -> str:
    """Textual's key name for a character: `slash` for `/`."""
    from textual import keys

    name_of = getattr(keys, "_character_to_key", None)
    if name_of is not None:
        return str(name_of(character))
    if character.isalnum():
        return character
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return keys.KEY_NAME_REPLACEMENTS.get(name, name)
