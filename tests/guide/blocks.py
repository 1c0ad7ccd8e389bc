"""Finds every code block of the README and the guide, and plays those of a page in order, as a reader would.

A block whose first line is a comment with a file's name is that file; settings are also read. Any other `sh` block is
typed, any other `python` block is run, and a `json` block is parsed. `<!-- needs: gpu -->` above a block says what it
cannot do without.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner
from textual.theme import BUILTIN_THEMES

from kernbench import settings
from kernbench.cli import cli
from kernbench.tui.pages import user_keys
from kernbench.tui.theme import KERNBENCH
from tests import ROOT

GUIDE = ROOT / "src" / "kernbench" / "guide"
PAGES = [ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md", *sorted(GUIDE.glob("*.md"))]
LANGUAGES = ("sh", "python", "toml", "cpp", "yaml", "json")
NEEDS = {
    "gpu": "needs a GPU",
    "network": "needs the network",
    "terminal": "needs a terminal",
    "another machine": "needs another machine",
    "another repository": "needs another repository",
    "an install": "installs or builds this checkout",
}
_FENCE = re.compile(r"^```(?P<language>\S*)$")
_NEED = re.compile(r"^<!-- needs: (?P<what>.+) -->$")
_FILE = re.compile(r"^(?:#|//) (?P<name>[\w./~-]+\.(?:py|toml|cpp|cu|json))$")
_SHELL = re.compile(r"[|<>$;&*]|^\w+=")
"""What only a shell understands."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    needs: str = ""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the block is the text of."""
        found = _FILE.match(self.text.partition("\n")[0])
        return found["name"] if found else None

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block without their comments; a backslash joins two."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def blocks(page: Path) -> list[Block]:
    found, opened, body, need = [], None, [], ""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, body = Block(page, number, fence["language"], "", need), []
        elif opened is not None and line == "```":
            found.append(Block(page, opened.line, opened.language, "\n".join(body) + "\n", opened.needs))
            opened = None
        elif opened is not None:
            body.append(line)
        need = said["what"] if (said := _NEED.match(line)) else ""
    assert opened is None, f"{opened} is never closed"
    return found


class Reader:
    """Plays blocks in a folder, with the commands in this process where it can."""

    def __init__(self, folder: Path, is_real: bool) -> None:
        self.folder, self._is_real = folder, is_real

    def play(self, block: Block) -> None:
        if block.file is not None:
            self._write(block, block.file)
        elif block.language == "sh":
            for command in block.commands:
                self._type(block, command)
        elif block.language == "python":
            path = self.folder / f"block_{block.line}.py"
            path.write_text(block.text, encoding="utf-8")
            runpy.run_path(str(path))
        elif block.language == "json":
            json.loads(block.text)
        else:
            raise AssertionError(f"{block}: which file is it? Name it in the first line")

    def _write(self, block: Block, name: str) -> None:
        path = Path(name).expanduser() if name.startswith("~") else self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if path == settings.place(os.environ):
            chosen = settings.load(path)
            user_keys.check(chosen, [*BUILTIN_THEMES, KERNBENCH.name])
            assert not user_keys.doubtful(chosen), f"{block}: {user_keys.doubtful(chosen)}"

    def _type(self, block: Block, command: str) -> None:
        if self._is_real and "--sanitize" not in command:  # how fast this machine is says nothing about the page
            command = command.replace("kernbench run ", "kernbench run --allow-slower ")
        words = shlex.split(command)
        if words[0] == "cd":
            self.folder = (self.folder / words[1]).resolve()
            os.chdir(self.folder)
        elif _SHELL.search(re.sub(r"'[^']*'", "", command)) or words[0] != "kernbench":
            programs = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(
                ["bash", "-ec", command], env=programs, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, f"{block}: {command}\n{done.stdout}{done.stderr}"
        else:
            self._run(block, words[1:])

    def _run(self, block: Block, words: list[str]) -> None:
        """In this process."""
        done = CliRunner().invoke(cli, words)
        if "the workbench needs a terminal" in done.output:  # after it has found the task
            return
        assert done.exit_code == 0, f"{block}: kernbench {shlex.join(words)}\n{done.output}\n{done.exception!r}"
