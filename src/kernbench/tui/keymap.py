"""The user's keys and theme, held against what the screen has: a mistake is said in one sentence before it opens."""

from __future__ import annotations

from collections.abc import Container
from difflib import get_close_matches

from textual.keys import _character_to_key

from kernbench.settings import Settings, SettingsError
from kernbench.tui.help import main_bindings, named_bindings


def check(settings: Settings, themes: Container[str]) -> None:
    if settings.theme is not None and settings.theme not in themes:
        raise SettingsError(
            f"{settings.path}: there is no theme {settings.theme!r}; ctrl+p lists them, ansi-dark is one"
        )
    known = named_bindings()
    for name in settings.keys:
        if name not in known:
            near = get_close_matches(name, known, 1) or ["rerun"]
            raise SettingsError(f"{settings.path}: keys.{name} is no action; ? lists them, {near[0]} is one")
    _check_clashes(settings)


def _check_clashes(settings: Settings) -> None:
    """Two actions that work everywhere may not share a key."""
    taken: dict[str, str] = {}
    for binding in main_bindings():
        name = binding.id or binding.description
        for key in settings.keys.get(name, binding.key).split(","):
            key = _character_to_key(key) if len(key) == 1 else key
            if key in taken and (name in settings.keys or taken[key] in settings.keys):
                changed, other = (name, taken[key]) if name in settings.keys else (taken[key], name)
                raise SettingsError(
                    f"{settings.path}: keys.{changed} is the key of {other} too; give one of them another"
                )
            taken[key] = name
