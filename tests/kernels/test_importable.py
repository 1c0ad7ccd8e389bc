"""`kernbench.kernels`: every shipped kernel in one process, as a function and as an operator; torch only when asked."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kernbench import kernels
from kernbench.kernels import operators
from kernbench.task.lookup import shipped_tasks
from tests import ROOT
from tests.house import layout
from tests.kernels import processes

TOGETHER = """
import sys
import torch
sys.modules["solution"] = mine = type(sys)("solution")  # a program's own module of that name
from kernbench import kernels
from kernbench.kernels import fuse_scale_shift, group_norm_silu, norm_infer, operators, rotary_embedding, softmax_host

x = torch.randn(6, 64)
for norm in (norm_infer, operators.norm_infer):
    torch.testing.assert_close(norm(x, None, None, 1e-6, "rmsnorm"), torch.nn.functional.rms_norm(x, (64,), eps=1e-6))
torch.testing.assert_close(softmax_host(x), x.softmax(-1))
x, scale, shift = torch.randn(2, 3, 16), torch.randn(2, 3, 16), torch.randn(2, 3, 16)
for result in (fuse_scale_shift("scale_shift", x, scale, shift), operators.scale_shift(x, scale, shift)):
    torch.testing.assert_close(result, x * scale + shift)
image, gain = torch.randn(1, 8, 4, 4), torch.ones(8)
expected = torch.nn.functional.silu(torch.nn.functional.group_norm(image, 4, gain, gain, 1e-6))
torch.testing.assert_close(group_norm_silu(image, gain, gain, 4, 1e-6), expected)
assert sys.modules["solution"] is mine and "portable" not in sys.modules
assert kernels.norm_infer is norm_infer and norm_infer.__module__ == "kernbench.kernels._norm_infer.solution"
assert rotary_embedding.__globals__["turn"] is not fuse_scale_shift.__globals__["portable"]
"""


def test_every_shipped_kernel_has_its_name() -> None:
    assert set(dir(kernels)) == shipped_tasks().keys()
    defined = {}
    for name, folder in shipped_tasks().items():
        if (folder / "op.py").is_file():
            body = ast.parse((folder / "op.py").read_text()).body
            defined |= {item.name: name for item in body if isinstance(item, ast.FunctionDef) and item.name[0] != "_"}
    internal = {"plain", "residual_gate"}
    """Behind the operator norm_scale_shift, which chooses."""
    assert {name: family for name, family in defined.items() if name not in internal} == operators.FAMILIES


def test_several_work_together_and_a_programs_own_modules_stay(tmp_path: Path) -> None:
    processes.run(TOGETHER, tmp_path)


def test_nothing_is_loaded_before_a_name_is_asked_for() -> None:
    code = "import sys, kernbench.kernels.operators; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("module", [kernels, operators])
def test_a_name_that_is_not_there_is_answered_with_those_that_are(module: object) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'layer_norm'; it has .*norm_infer"):
        module.layer_norm  # type: ignore[attr-defined] # noqa: B018


def test_no_other_room_imports_it() -> None:
    room = "kernbench.kernels"
    outside = {name: taken for name, taken in layout.file_graph(ROOT).items() if not name.startswith(room)}
    assert [name for name, taken in outside.items() if any(other.startswith(room) for other in taken)] == []
