"""Questions to git. Nothing is changed, not even the index, and nothing that the repository names is run.

A repository can name programs: hooks, filters, a file system monitor, a pager, commands that fetch missing objects. The
folder may be a stranger's, so every call switches them all off.
"""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernbench.machine import tool
from kernbench.machine.plain_text import one_line

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
OF_A_HOOK = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})
"""What git sets for a hook: its own repository, seen from its own folder. Every question here names a folder."""
DRIVERS = r"^filter\..*\.(clean|smudge|process|required)$|^diff\..*\.(command|textconv)$|^merge\..*\.driver$"
"""Programs by attribute, under names that the repository chooses."""


@dataclass(frozen=True)
class Git:
    root: Path
    """Any folder inside the repository."""

    def ask(self, *words: str, seconds: float = SECONDS, settings: Iterable[str] = SWITCHED_OFF) -> str | None:
        """What git answers, without the last newline; None when it fails, hangs or is missing."""
        try:
            return tool.answer(self._command(words, settings), seconds, _environment()).rstrip("\n")
        except tool.ToolError:
            return None

    def read(self, *words: str, given: bytes = b"", seconds: float = SECONDS) -> bytes:
        """What git answers to `given`, byte for byte; raises ToolError."""
        done = tool.run_bytes(self._command(words), seconds, _environment(), given)
        if done.returncode != 0:
            said = os.fsdecode(done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
            raise tool.ToolError(f"git failed: {one_line(said[0])}")
        return done.stdout

    def _command(self, words: Iterable[str], settings: Iterable[str] = SWITCHED_OFF) -> list[str]:
        set_here = [word for setting in settings for word in ("-c", setting)]
        return ["git", "--no-pager", *set_here, "-C", str(self.root), *words]

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


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OF_A_HOOK} | ENVIRONMENT


@functools.cache
def author(folder: Path) -> str:
    """The user's name, as commits in this folder would have it, in one line of valid UTF-8."""
    name = os.fsencode(os.environ.get("GIT_AUTHOR_NAME", ""))
    name = name or os.fsencode((Git(folder).ask("config", "user.name", seconds=2) or "").strip())
    try:
        name = name or os.fsencode(getpass.getuser())
    except (OSError, KeyError):  # the system does not know this user
        return ""
    return one_line(name.decode(errors="replace"))
