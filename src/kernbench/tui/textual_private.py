"""Every private name of Textual that the screens use, each with a fallback for a Textual without it.

Textual is imported inside the functions only; `kernbench doctor` calls them to name the fallbacks in use.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

_OF_APPS = ("_fatal_error", "_exception", "_close_messages_no_wait")
_OF_KEYS = ("_character_to_key",)


def fallbacks() -> list[str]:
    """The private names that the installed Textual lacks: fallbacks replace them."""
    from textual import keys
    from textual.app import App

    app: App[None] = App()  # `_exception` is set on the instance, not the class
    missing = [f"textual.app.App.{name}" for name in _OF_APPS if not hasattr(app, name)]
    return missing + [f"textual.keys.{name}" for name in _OF_KEYS if not hasattr(keys, name)]


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
