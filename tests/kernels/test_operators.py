"""The operators in a compiled graph, on a CPU: one graph, one more for other sizes, and nothing copied around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels import processes

COMPILED = """
import torch
from torch._dynamo.backends.common import aot_autograd
from kernbench.kernels import operators

COPIES = ("clone", "copy_", "contiguous", "auto_functionalized")
graphs = []

def keep(graph, inputs):
    graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward

def rows(n, *shape):
    return torch.randn(2, n, *shape)

def heads(n):
    table = torch.randn(n, 32)
    places = torch.arange(n)
    return rows(n, 2, 64)[0], rows(n, 2, 64)[0], torch.ones(64), torch.ones(64), table, places, False, 1e-6

def image(n):
    x = torch.randn(2, 8, n, 6).contiguous(memory_format=torch.channels_last)
    return x, torch.ones(8), torch.ones(8), 4, 1e-6

one, gate = torch.randn(2, 64), torch.randn(1, 1, 256)
CALLS = {
    "attention_choice": lambda n: torch.randn(3, 2, n, 4, 64).transpose(2, 3).unbind(),
    "attention_concat_copy": lambda n: (rows(n, 2, 64), rows(3, 2, 64), "concat_sequence", "BA"),
    "bias_residual_add": lambda n: (torch.randn(1, 8, n, 6), one[0, :8], torch.randn(1, 8, n, 6), 1.0),
    "causal_conv3d_cat_pad": lambda n: (torch.randn(1, 4, 2, n, 6), torch.randn(1, 4, 1, n, 6), [1, 1, 1, 1, 2, 0]),
    "self_attention_adaln": lambda n: (rows(n, 64), torch.ones(64), *torch.randn(2, 1, 1, 64)),
    "attention_residual_mlp_adaln": lambda n: (
        rows(n, 64), rows(n, 64), torch.randn(1, 1, 64), torch.ones(64), *torch.randn(2, 1, 1, 64)
    ),
    "mlp_residual_gate": lambda n: (rows(n, 64), rows(n, 64), torch.randn(1, 1, 64)),
    "scale_shift": lambda n: (rows(n, 64), rows(n, 64), rows(n, 64)),
    "fused_add_rms_norm": lambda n: (rows(n, 64), rows(n, 64), torch.ones(64), 1e-6),
    "gelu_concat": lambda n: (rows(n, 32), rows(n, 64)),
    "group_norm_silu": image,
    "ltx2_qknorm_split_rope": lambda n: (
        rows(n, 128), rows(3, 128), torch.ones(128), torch.ones(128),
        *torch.randn(2, 2, 2, n, 32), *torch.randn(2, 2, 2, 3, 32), 1e-6,
    ),
    "ltx2_dual_modulate": lambda n: (rows(n, 64), *torch.randn(4, 2, 1, 64), 1e-6),
    "ltx2_dual_modulate_from_temb": lambda n: (rows(n, 64), torch.randn(2, 1, 256), torch.randn(4, 64), 1e-6),
    "ltx2_rms_adaln": lambda n: (rows(n, 64), rows(n, 64), rows(n, 64), 1e-6),
    "norm_infer": lambda n: (rows(n, 64)[0], torch.ones(64), None, 1e-6, "rmsnorm"),
    "norm_scale_shift": lambda n: (
        rows(n, 64), rows(n, 64), one, None, None, one, one, "residual_gate_norm_scale_shift", "layer", 1e-6
    ),
    "norm_tanh_mul_add": lambda n: (rows(n, 256), torch.ones(256), None, gate, rows(n, 256), "rms", 1e-5),
    "qknorm_rope": heads,
    "residual_gate_add": lambda n: (rows(n, 64)[:1], rows(n, 64)[:1], torch.randn(1, 1, 64)),
    "broadcast_add_4d": lambda n: (torch.randn(1, 1, 3, 64), torch.randn(1, n, 3, 64)),
    "rotary_embedding": lambda n: (rows(n, 2, 64), torch.randn(n, 32), torch.randn(n, 32), "standard"),
    "silu_and_mul": lambda n: (rows(n, 64),),
    "wan_vae_rmsnorm_silu": lambda n: (torch.randn(1, 4, n, 6, 8).movedim(-1, 1), torch.ones(8, 1, 1, 1)),
}

for name, made in CALLS.items():
    operator = getattr(operators, name)

    def step(x, *more):
        found = operator(torch.relu(x), *more)
        return [torch.relu(each) for each in (found if isinstance(found, (list, tuple)) else (found,))]

    graphs.clear()
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    with torch.no_grad():
        for n in (5, 9, 12):
            values = made(n)
            for result, wanted in zip(compiled(*values), step(*values), strict=True):
                torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-5)
                assert result.stride() == wanted.stride(), (name, result.stride(), wanted.stride())
    assert 1 <= len(graphs) <= 2, (name, len(graphs))
    for targets in graphs:
        assert sum("kernbench" in target or "scale_shift" in target for target in targets) == 1, (name, targets)
        assert not [target for target in targets if any(word in target for word in COPIES)], (name, targets)
"""


def test_a_graph_holds_every_operator_without_copies_and_for_all_sizes(tmp_path: Path) -> None:
    processes.run(COMPILED, tmp_path)


BETWEEN_CONVOLUTIONS = """
import sys
import torch
from kernbench.kernels import operators
from torch._inductor import config

config.force_disable_caches = True
layouts = []

def spied(name):
    operator = getattr(operators, name)
    module = sys.modules[f"kernbench.kernels._{name}.op"]
    direct = module.direct

    def seen(x, *arguments, **options):
        layouts.append((name, x.is_contiguous(memory_format=torch.channels_last)))
        return direct(x, *arguments, **options)

    module.direct = seen
    return operator

group_norm, rms_norm = spied("group_norm_silu"), spied("wan_vae_rmsnorm_silu")
width = 128 if device == "cuda" else 64  # fewer leave Inductor's convolutions on a GPU as they are
first, second, third = (torch.nn.Conv2d(width, width, 3, padding=1, device=device) for _ in range(3))
x, gain = torch.randn(1, width, 16, 16, device=device), torch.ones(width, device=device)

def step(x):
    x = second(group_norm(first(x), gain, gain - 1, 32, 1e-6))
    return third(rms_norm(x, gain.view(-1, 1, 1)))

with torch.no_grad():
    wanted = step(x)
    assert [is_last for _, is_last in layouts] == [False, False]  # contiguous in eager
    layouts.clear()
    torch.testing.assert_close(torch.compile(step)(x), wanted, atol=1e-2, rtol=1e-2)
assert layouts == [("group_norm_silu", True), ("wan_vae_rmsnorm_silu", True)], layouts
"""


@pytest.mark.long
def test_inductor_passes_the_layout_on(tmp_path: Path) -> None:
    """It makes convolutions channels-last; what keeps its input's layout needs no copies between them."""
    processes.run(f"device = 'cpu'\n{BETWEEN_CONVOLUTIONS}", tmp_path)


@pytest.mark.gpu
def test_inductor_passes_the_layout_on_in_cuda(tmp_path: Path) -> None:
    processes.run(f"device = 'cuda'\n{BETWEEN_CONVOLUTIONS}", tmp_path, interpreted=False)
