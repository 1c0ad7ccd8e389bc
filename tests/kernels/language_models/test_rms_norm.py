"""rms_norm beyond its cases: what it refuses, layouts, and nothing to do."""

from __future__ import annotations

from tests import ROOT
from tests.kernels import processes

CODE = """
import torch
import reference
from solution import rms_norm

def right(x, weight):
    exact = reference.rms_norm(x.double(), weight.double(), 1e-6)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6).double(), exact, atol=1e-5, rtol=1e-5)

x, weight = torch.randn(6, 5, 64), torch.randn(128)
right(x, weight[::2]), right(x.transpose(0, 1), weight[:64]), right(x[0], weight[:1].expand(64))
right(x[:0], weight[:64]), right(x[..., :0], weight[:0])
for wrong in (weight, weight[:63], weight[:1], weight.view(2, 64)):
    try:
        rms_norm(x, wrong, 1e-6)
    except ValueError as problem:
        assert str(problem) == f"weight of shape {list(wrong.shape)}: rows of 64 take one as long", problem
    else:
        raise AssertionError(wrong.shape)
"""


def test_weights_have_to_be_as_long_as_rows_and_any_layout_is_taken() -> None:
    processes.run(CODE, ROOT / "kernels" / "rms_norm")
