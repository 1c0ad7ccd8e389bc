"""Random inputs of definitions: by name, as SOL-ExecBench draws them, or from a distribution that a workload names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.foreign.random_inputs import drawn, generated

SHAPE = (64, 64)
LOWEST = torch.finfo(torch.bfloat16).min


def made(name: str, dtype: torch.dtype = torch.bfloat16, description: str = "") -> torch.Tensor:
    torch.manual_seed(0)
    value = drawn(name, SHAPE, dtype, "cpu", description)
    assert (value.dtype, value.shape) == (dtype, SHAPE)
    return value


@pytest.mark.parametrize(
    ("name", "description", "low", "high"),
    [
        ("input_layernorm_weight", "", 1, 1),
        ("q_norm2_bias", "", 0, 0),
        ("causal_mask", "", LOWEST, 0),
        ("key_mask", "Binary mask", 0, 1),
        ("rope_cos", "", -1, 1),
        ("rstd1", "", 0.1, 9),
        ("A_log", "", -5, -1),
        ("scores", "the output of a softmax", 0, 1),
        ("o_proj", "", -1, 1),
        ("hidden_states", "", -9, 9),
    ],
)
def test_a_name_decides_the_range(name: str, description: str, low: float, high: float) -> None:
    value = made(name, description=description).double()
    assert low <= value.min() <= value.max() <= high


def test_weights_are_divided_by_the_root_of_their_width_and_masks_are_triangles() -> None:
    assert made("q_proj", torch.float32).std() == pytest.approx(1 / 8, rel=0.1)
    assert made("weight3", torch.float32).std() == pytest.approx(1 / 8, rel=0.1)
    assert made("states", torch.float32).std() == pytest.approx(1, rel=0.1)
    mask = made("attention_mask", torch.float16)
    assert int(mask.count_nonzero()) == 64 * 63 // 2
    assert bool((mask.tril() == 0).all())


def test_integers_and_small_formats_do_not_look_at_the_name() -> None:
    assert made("norm_weight", torch.int8).min() < -100
    assert made("norm_weight", torch.int32).max() < 1024
    assert made("attention_mask", torch.bool).any()
    assert made("norm_weight", torch.float8_e4m3fn).float().abs().max() == 2
    packed = drawn("w", SHAPE, torch.float4_e2m1fn_x2, "cpu", "")
    assert packed.shape == (64, 32)


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({"type": "normal", "std": 0.1}, -1, 1),
        ({"type": "uniform", "low": 2.0, "high": 3.0}, 2, 3),
        ({"type": "constant", "value": 0.5}, 0.5, 0.5),
        ({"type": "bernoulli", "probability": 0.5}, 0, 1),
        ({"type": "simplex", "axis": 0, "temperature": 2.0}, 0, 1),
    ],
)
def test_a_workload_may_name_the_distribution(options: dict[str, Any], low: float, high: float) -> None:
    value = generated(options, SHAPE, torch.float32, "cpu")
    assert low <= value.min() <= value.max() <= high
    if options["type"] == "simplex":
        assert torch.allclose(value.sum(0), torch.ones(64))
