"""Every private name of Textual that the screens use, each with a plain fallback for a Textual that lacks it.

Nothing here imports Textual before it is asked to: `kernbench doctor` names the fallbacks in use.
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
    """The private names that the installed Textual lacks, so that a fallback does their work."""
    from textual import keys
    from textual.app import App

    app: App[None] = App()  # `_exception` is set on an app and not on its class
    missing = [f"textual.app.App.{name}" for name in _OF_APPS if not hasattr(app, name)]
    return missing + [f"textual.keys.{name}" for name in _OF_KEYS if not hasattr(keys, name)]


def on_fatal_error(app: App[Any], take: Callable[[BaseException], bool]) -> None:
    """Call `take` at the first exception that nobody caught; where it returns true, the app leaves without a word.

    Otherwise, or where Textual has no `_fatal_error`, Textual shows its own page with the traceback.
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


def key_of(character: str) -> str:
    """The name by which Textual knows the key of a character: `slash` for `/`."""
    from textual import keys

    name_of = getattr(keys, "_character_to_key", None)
    if name_of is not None:
        return str(name_of(character))
    if character.isalnum():
        return character
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return keys.KEY_NAME_REPLACEMENTS.get(name, name)
