"""A workbench in a real terminal, over the fake harness, and the task it has open.

The harness reads what to do from the solution: TIME_US is what a call takes against a baseline of 100, DO a mistake.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests import ROOT
from tests.terminal.pane import Pane

FAKE = ROOT / "tests" / "fake" / "harness"
TASK = """
name = "toy"
entry = "toy"
device = "cpu"
[[case]]
id = "a_16x16_m[bf16]"
label = "a m[bf16]"
axes = { rows = 16 }
[[case]]
id = "b_32x32"
label = "b 32x32"
axes = { rows = 32 }
[[case]]
id = "c_64x64"
label = "c 64x64"
axes = { rows = 64 }
[grid]
rows = [1, 2, 3]
"""
_numbers = itertools.count()


class Terminal(Pane):
    """A shell, in which the workbench is started."""

    def __init__(
        self, folder: Path, width: int, height: int, *words: str, through_make: bool = False, **exported: str
    ) -> None:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        given = "".join(f"{name}={value} " for name, value in exported.items())
        command = f"{given}{sys.executable} -m kernbench {folder} {' '.join(words)}".strip()
        if through_make:
            (folder.parent / "Makefile").write_text(f"demo:\n\t@{command}\n")
            command = f"make -C {folder.parent} demo"
        # An interactive shell has job control, which ctrl+z needs.
        environ = {"PYTHONPATH": paths, "KERNBENCH_HARNESS": FAKE, "XDG_CONFIG_HOME": folder.parent, "PS1": "$ "}
        shell = ["env", *[f"{name}={value}" for name, value in environ.items()], "bash", "--norc", "--noprofile", "-i"]
        super().__init__(f"kernbench-tour-{os.getpid()}-{next(_numbers)}", width, height, *shell)
        self.press(f"cd {folder.parent}; {command}; echo left with $?", "Enter")


Opens = Callable[..., Terminal]


def save(folder: Path, *lines: str) -> None:
    (folder / "solution.py").write_text("\n".join(["def toy(): ...", *lines, ""]))
