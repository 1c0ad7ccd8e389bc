"""Questions to git. Nothing is changed, not even the index, and nothing that the repository names is run.

A repository can name programs: hooks, filters, a file system monitor, a pager, commands that fetch missing objects. The
folder may be a stranger's, so every call switches them all off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernbench.machine import tool

SECONDS = 20.0
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # for an older git, which does not know the line above
    "GIT_TERMINAL_PROMPT": "0",
}
SWITCHED_OFF = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "core.askPass=",
    "core.sshCommand=false",
    "core.alternateRefsCommand=false",
    "credential.helper=",
    "diff.external=",
    "gpg.program=false",
    "log.showSignature=false",
    "status.submoduleSummary=false",
)
DRIVERS = r"^filter\..*\.(clean|smudge|process|required)$|^diff\..*\.(command|textconv)$|^merge\..*\.driver$"
"""Programs by attribute, under names that the repository chooses."""


@dataclass(frozen=True)
class Git:
    root: Path
    """Any folder inside the repository."""

    def ask(self, *words: str, seconds: float = SECONDS, settings: Iterable[str] = SWITCHED_OFF) -> str | None:
        """What git answers, without the last newline; None when it fails, hangs or is missing."""
        set_here = [word for setting in settings for word in ("-c", setting)]
        try:
            command = ["git", "--no-pager", *set_here, "-C", str(self.root), *words]
            return tool.answer(command, seconds, {**os.environ, **ENVIRONMENT}).rstrip("\n")
        except tool.ToolError:
            return None

    def status(self, *words: str, seconds: float = SECONDS) -> str | None:
        """`git status --porcelain`, which hashes files that may have changed, and would run filters for that.

        Without its filter, a file that was touched counts as changed. Submodules have filters of their own: only the
        commit that is checked out there counts.
        """
        named = self.ask("config", "--null", "--name-only", "--get-regexp", DRIVERS, seconds=seconds) or ""
        drivers = [name for name in named.split("\0") if name]
        if any("=" in name for name in drivers):  # `-c` would set another name
            return None
        off = [f"{name}={'false' if name.endswith('.required') else ''}" for name in drivers]
        command = ("status", "--porcelain", "--ignore-submodules=dirty", *words)
        return self.ask(*command, seconds=seconds, settings=[*SWITCHED_OFF, *off])
