"""A solution that builds itself with torch's `load_inline`: shown as compiling, built once, and never in the way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench import render
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, Progress, Summary
from kernbench.worker.deadlines import Deadlines
from tests.harness.child import write_task
from tests.sessions import PATIENT, Watched

pytestmark = [
    pytest.mark.skipif(not (shutil.which("c++") and shutil.which("ninja")), reason="no C++ compiler or ninja"),
    pytest.mark.long,
]

TENSORS = """
import torch
from torch.utils.cpp_extension import load_inline

CODE = "torch::Tensor scale(torch::Tensor x, double factor) { return x * factor; }"
module = load_inline("scaling", CODE, functions=["scale"])

def scale(x, factor):
    return module.scale(x, factor)
"""
"""As most published CUDA solutions are: with torch's headers, which take the compiler half a minute."""
PLAIN = """
import ctypes, torch
from torch.utils.cpp_extension import load_inline

CODE = 'extern "C" double twice() { return 2.0; }'
library = ctypes.CDLL(load_inline("twice", CODE, is_python_module=False, no_implicit_headers=True))
library.twice.restype = ctypes.c_double

def scale(x, factor):
    return x * library.twice()
"""
HELD = """#!/bin/sh
[ "$1" = --version ] || while [ -e {hold} ]; do sleep 0.05; done
exec {compiler} "$@"
"""
"""A compiler that does not end while a file exists."""


class Inline:
    """One task; each session over it starts a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_task(folder)
        self.built = self.folder / ".kernbench" / "build" / "extensions"

    async def run(self, source: str, deadlines: Deadlines = PATIENT) -> tuple[object, list[Progress]]:
        """How a run of this source ends, and what was said on the way."""
        (self.folder / "solution.py").write_text(source)
        state = self.folder / ".kernbench"
        session = Session(taskfile.load(self.folder), state, Options(deadlines=deadlines, spares=False))
        it = Watched(session)
        try:
            outcome = await session.run_once(iteration=False)
        finally:
            await session.close()
        return outcome, [event for event in it.events if isinstance(event, Progress)]

    def names(self) -> list[str]:
        return sorted(os.listdir(self.built))


@pytest.fixture
def inline(tmp_path: Path) -> Inline:
    return Inline(tmp_path / "task")


def is_right(outcome: object) -> bool:
    return isinstance(outcome, Summary) and outcome.right


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_with_torchs_headers_it_is_shown_as_compiling_and_built_once(inline: Inline) -> None:
    outcome, said = await inline.run(TENSORS)
    assert is_right(outcome)
    compilers = {event.compiler for event in said if event.compiler}
    assert compilers & {"g++", "c++"}
    words = [render.progress(event) for event in said]
    assert words.index(next(word for word in words if word.startswith("compiling ("))) < words.index(
        "checking 1/2 small"
    )
    (built,) = inline.names()
    stamp = next((inline.built / built).glob("*.so")).stat().st_mtime_ns
    again, said = await inline.run("# another comment\n" + TENSORS.replace("module.scale(x", "module.scale(1 * x"))
    assert is_right(again)
    assert not [event for event in said if event.compiler]
    assert inline.names() == [built]
    assert next((inline.built / built).glob("*.so")).stat().st_mtime_ns == stamp


@pytest.mark.anyio
async def test_a_compile_that_is_stopped_at_its_deadline_holds_nobody_up(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, hold = tmp_path / "bin" / "c++", tmp_path / "hold"
    compiler.parent.mkdir()
    compiler.write_text(HELD.format(hold=hold, compiler=shutil.which("c++")))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    hold.touch()
    outcome, said = await inline.run(PLAIN, Deadlines(build=2.0, look=0.1, compile=6.0))
    assert isinstance(outcome, BuildFailed)
    assert (outcome.status, outcome.message) == ("timeout", "timed out after 6 s while loading")
    assert any(event.compiler for event in said)
    hold.unlink()
    (left,) = inline.names()
    assert (inline.built / left / "lock").exists()  # torch's, which it would wait for
    outcome, _said = await inline.run("# the next save\n" + PLAIN)
    assert is_right(outcome)
    (built,) = inline.names()
    assert built.startswith("twice-")
    assert not (inline.built / built / "lock").exists()
