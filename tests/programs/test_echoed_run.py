"""A program that says that it runs other code than its own is stopped, and nothing is made of what was recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernbench.programs.searched_log import SIGNALS

RUN = """
import sys, time
print("loading", flush=True)
print("[WARN] {}", file=sys.stderr, flush=True)
import net
net.step()
if len(sys.argv) > 1:
    time.sleep(600)
"""
NET = """
import torch

def gated(x):
    return x.sigmoid() * x

class Net(torch.nn.Module):
    def forward(self, x):
        return gated(x)

def step():
    Net()(torch.ones(64, 64))
"""
SITE = ("--site", "net:gated", "--new", "gated")


@pytest.mark.parametrize(
    ("words", "signal"),
    [
        (("rank",), SIGNALS[0]),
        (("rank", "wait"), SIGNALS[1]),
        (("capture", *SITE), SIGNALS[2]),
        (("capture", "--all", "--into", "all"), SIGNALS[0]),
    ],
)
def test_a_command_that_falls_back_has_no_table_and_no_task(
    tmp_path: Path, words: tuple[str, ...], signal: str
) -> None:
    (tmp_path / "run.py").write_text(RUN.format(signal.capitalize()))
    (tmp_path / "net.py").write_text(NET)
    program = [sys.executable, "run.py", *(word for word in words if word == "wait")]
    mine = [word for word in words if word != "wait"]
    done = subprocess.run(
        [sys.executable, "-m", "kernbench", *mine, "--", *program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    line = f'"[WARN] {signal.capitalize()}" (line 2 of its log)'
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.splitlines()[-1] == f"kernbench: the command fell back to diffusers: {line}; pin its own backend"
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__"]
