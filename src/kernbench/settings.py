"""The settings in ~/.config/kernbench/config.toml: keys, theme, bell. All are optional.

    theme = "ansi-dark"        # any theme that ctrl+p lists
    bell = 10                  # ring when a run of at least 10 seconds ends; 0 or absent: never
    [keys]
    rerun = "f5,ctrl+r"        # other keys for an action; the help page (?) lists the actions

Errors are reported in one sentence before anything starts; an unknown name is only a warning on the screen. The screen
knows the themes and actions, so it checks that those named here exist.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from harness.shared.taskfile.values import TaskError, one_line, shown, toml


class SettingsError(UserError):
    """The settings are invalid; the message is one sentence."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {one_line(problem)}")


@dataclass(frozen=True)
class Settings:
    path: Path = Path("config.toml")
    theme: str | None = None
    bell: float = 0.0
    """Ring when a run of at least this many seconds ends; 0 means never."""
    keys: dict[str, str] = field(default_factory=dict)
    """Keys by action name; several keys are separated by commas."""
    unknown: tuple[str, ...] = ()
    """Names that another version may know: the screen opens and warns."""


def place(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home(), ".config")
    return Path(base, "kernbench", "config.toml")


def remembered(environ: Mapping[str, str], name: str) -> Path:
    """A file of what kernbench itself remembers; it may be deleted at any time."""
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home(), ".local", "state")
    return Path(base, "kernbench", name)


def load(path: Path | None = None) -> Settings:
    path = path or place(os.environ)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Settings(path)
    except OSError as problem:
        raise SettingsError(path, f"cannot be read: {problem.strerror}") from None
    try:
        data = toml(path)
    except TaskError as problem:
        raise SettingsError(path, f"{problem.key}: {problem.problem}" if problem.key else problem.problem) from None
    unknown = tuple(sorted(set(data) - {"theme", "bell", "keys"}))
    return Settings(path, _theme(path, data), _bell(path, data), _keys(path, data), unknown)


def _theme(path: Path, data: dict[str, Any]) -> str | None:
    theme = data.get("theme")
    if theme is not None and not isinstance(theme, str):
        raise SettingsError(path, f'theme is {shown(theme)}; expected a name in quotes, such as "ansi-dark"')
    return theme


def _bell(path: Path, data: dict[str, Any]) -> float:
    bell = data.get("bell", 0)
    if isinstance(bell, bool) or not isinstance(bell, int | float) or not 0 <= bell < math.inf:
        raise SettingsError(path, f"bell is {shown(bell)}; expected seconds, such as 10, or 0 for never")
    return float(bell)


def _keys(path: Path, data: dict[str, Any]) -> dict[str, str]:
    keys = data.get("keys", {})
    if not isinstance(keys, dict):
        raise SettingsError(path, f'keys is {shown(keys)}; expected a table, [keys], with lines such as rerun = "f5"')
    for name, key in keys.items():
        if not isinstance(key, str) or not all(part.strip() for part in key.split(",")):
            raise SettingsError(path, f'keys.{name} is {shown(key)}; expected a key in quotes, such as "f5"')
    return {name: ",".join(part.strip() for part in key.split(",")) for name, key in keys.items()}
