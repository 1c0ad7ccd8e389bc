"""Checks the user's keys and theme before the screen opens: one sentence names a mistake."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import replace
from difflib import get_close_matches

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from harness.shared import format as fmt
from harness.shared.taskfile.values import shown
from kernbench.settings import Settings, SettingsError
from kernbench.tui.pages.help import list_bindings, main_bindings, named_bindings, page_bindings
from kernbench.tui.textual_private import key_of

RENAMED = {"pane.log": "pane.output"}
"""Old names of actions, which still work in config.toml."""
MODIFIERS = {"ctrl", "shift", "alt", "super", "hyper", "meta"}


def renamed(settings: Settings) -> Settings:
    """The same settings with current action names."""
    keys = {RENAMED.get(name, name): key for name, key in settings.keys.items()}
    now = {name: key for name, key in settings.keys.items() if name not in RENAMED}
    return replace(settings, keys={**keys, **now})


def check(settings: Settings, themes: Collection[str]) -> None:
    """Errors list the valid names, since the help page is not open yet."""
    if settings.theme is not None and settings.theme not in themes:
        there = ", ".join(sorted(themes))
        raise SettingsError(settings.path, f"unknown theme {shown(settings.theme)}; choose from {there}")
    for name in settings.keys.keys() & named_bindings():
        strange = [key for key in settings.keys[name].split(",") if not _is_key(key)]
        if strange:
            what = f"{shown(strange[0])} is not a key; use one such as f5, ctrl+r or R"
            raise SettingsError(settings.path, f"keys.{name}: {what}")
    _check_clashes(settings)


def _is_key(key: str) -> bool:
    """Whether a terminal can send it: a character, its name, or a named key, with modifiers."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if not set(modifiers) <= MODIFIERS:
        return False
    if len(last) == 1 or last in KEY_NAME_REPLACEMENTS.values() or last in {known.value for known in Keys}:
        return True
    try:
        return bool(unicodedata.lookup(last.replace("_", " ")))
    except KeyError:
        return False


def _check_clashes(settings: Settings) -> None:
    """Two actions that work at the same time must not share a key."""
    taken: dict[str, str] = {}
    for binding in [*list_bindings(), *main_bindings()]:
        name = binding.id or binding.description
        for key in _keys(settings, binding):
            other = taken.get(key, name)
            if other != name and (name in settings.keys or other in settings.keys):
                changed, other = (name, other) if name in settings.keys else (other, name)
                raise SettingsError(settings.path, f"keys.{changed} uses the same key as {other}; change one of them")
            taken[key] = name


def doubtful(settings: Settings) -> str:
    """A warning about a setting or an action that does not exist, which a newer version may have renamed, or about a
    user's key that means something else on a page."""
    if settings.unknown:
        return f"{settings.path}: unknown setting {shown(settings.unknown[0])}; expected theme, bell or [keys]"
    known = named_bindings()
    for name in sorted(settings.keys.keys() - known):
        near = fmt.joined(get_close_matches(name[:40], known, 3, 0.3) or ["rerun"], "or")
        what = f"unknown action {shown(name)} in [keys]; did you mean {near}?"
        return f"{settings.path}: {what} The help page (?) lists all actions"
    own = {key: binding.id for binding in main_bindings() if binding.id in settings.keys
           for key in _keys(settings, binding)}  # fmt: skip
    for page, binding in page_bindings():
        for key in _keys(settings, binding):
            if own.get(key) and own[key] != binding.id and binding.id not in settings.keys:
                meaning = f"in {page} it means {binding.description} (rebind keys.{binding.id})"
                return f"{key} is bound to {own[key]}, but {meaning}"
    return ""


def _keys(settings: Settings, binding: Binding) -> list[str]:
    """The binding's keys as Textual spells them."""
    keys = settings.keys.get(binding.id or "", binding.key).split(",")
    return [key_of(key) if len(key) == 1 else key for key in keys]
