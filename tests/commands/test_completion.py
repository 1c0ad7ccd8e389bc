"""Completion in a shell: the words that belong there, from files alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

FORBIDDEN = ("torch", "triton", "textual", "pandas")
ASK = f"""
import sys
from kernbench.cli import main
try:
    main([])
finally:
    print([name for name in {FORBIDDEN} if name in sys.modules], file=sys.stderr)
"""
LOG = "# Iterations\n\n## 1 · slow · 1.00x · first\n\n## 2 · two words; $(more) · 2.00x · improved\n"


def complete(folder: Path, line: str, shell: str = "bash") -> list[str]:
    (folder / ".git").mkdir(exist_ok=True)  # else the tasks of other tests, in the folder above, belong there too
    words = line.split(" ")
    last = words[-1] if shell == "fish" else str(len(words) - 1)
    asked = {"COMP_WORDS": line, "COMP_CWORD": last, "_KERNBENCH_COMPLETE": f"{shell}_complete"}
    given = {**os.environ, **asked, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "[]\n"
    return done.stdout.strip().splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kernbench rest", ["restore"]),
        ("kernbench to", ["toy"]),
        ("kernbench run t", ["toy"]),
        ("kernbench run toy --case ", ["a", "b", "c"]),
        ("kernbench toy --grid --case ", ["a", "b", "c"]),
        ("kernbench show t", ["toy"]),
        ("kernbench show toy ", ["2", "1", "best", "last", "now"]),
        ("kernbench diff toy 1 b", ["best"]),
        ("kernbench export toy --after ", ["2", "1", "best", "last", "now"]),
        ("kernbench profile toy --against b", ["baseline", "best"]),
        ("kernbench run toy --baseline ", ["eager", "compile", "best", "reference.py", "solution.py"]),
        ("kernbench run nothing_of_that_name --case ", []),
    ],
)
def test_words_that_belong_there(folder: Path, line: str, expected: list[str]) -> None:
    (folder / "ITERATIONS.md").write_text(LOG)
    assert [item.partition(",")[2] for item in complete(folder.parent, line)] == expected


def test_a_shell_that_can_shows_what_an_iteration_was(folder: Path) -> None:
    (folder / "ITERATIONS.md").write_text(LOG)
    assert "plain,2\ttwo words; $(more) · 2.00x · improved" in complete(folder, "kernbench show ", "fish")
    assert complete(folder, "kernbench run --case a", "zsh") == ["plain", "a", "_"]


def test_a_path_for_a_baseline_is_left_to_the_shell(folder: Path) -> None:
    assert complete(folder, "kernbench run --baseline ../ol") == ["file,../ol"]


def test_a_task_that_cannot_be_read_completes_nothing(folder: Path) -> None:
    (folder / "task.toml").write_text("name = \n")
    assert complete(folder, "kernbench run --case ") == []
