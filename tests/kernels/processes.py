"""Kernels tried in processes by themselves: whether Triton interprets is settled when it is first imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.forked import Forked

IMPORTS = ("torch", "torch._dynamo", "triton", "triton.language")
LONGEST = 4000


def run(code: str, task: Path, interpreted: bool = True) -> None:
    """Runs to its end, with the task's files to import."""
    if interpreted:
        settings = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        forked = Forked(code, environment=settings, path=[str(task), str(ROOT)], imports=IMPORTS, interpreted=True)
        _, errors = forked.communicate(timeout=300)
        assert forked.returncode == 0, errors[-LONGEST:] or f"exit code {forked.returncode}"
        return
    path = [str(task), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    settings.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-LONGEST:]
