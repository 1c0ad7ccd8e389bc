"""How far the output of a side is from the original's, and both from the same weights in a wider dtype.

The distance to the original alone cannot tell which of two roundings is nearer to the truth.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from harness.shared.model_step import OutputGap
from harness.transfer.loaded_model import LoadedModel
from harness.transfer.sites import ModelProblem, Patches


def kept(result: Any) -> Any:
    """The output's tensors as one flat copy, in the widest dtype among them; the next step may overwrite the output."""
    import torch

    found = [tensor.flatten() for tensor in _tensors(result) if tensor.is_floating_point()]
    if not found:
        raise TypeError("the model's output has no floating-point tensor to compare")
    return torch.cat(found).clone()


def gap(side: str, output: Any, original: Any, wide: Any | None) -> OutputGap:
    import torch

    if output.shape != original.shape:
        raise ValueError(f"{side} returns {tuple(output.shape)} values, the step as it is {tuple(original.shape)}")
    is_finite = bool(torch.isfinite(output).all())
    bit_exact = bool(torch.equal(output, original))
    own, other = output.double(), original.double()
    apart = (own - other).abs()
    rms, span = apart.square().mean().sqrt().item(), (other.max() - other.min()).item()
    return OutputGap(
        side=side,
        max_abs=apart.max().item(),
        relative_l2=_relative(own, other),
        psnr_db=20 * math.log10(span / rms) if rms > 0 and span > 0 else None,
        bit_exact=bit_exact,
        is_finite=is_finite,
        wide_l2=None if wide is None else _relative(own, wide.double()),
        original_wide_l2=None if wide is None else _relative(other, wide.double()),
    )


def drift(model: LoadedModel, ours: Patches, steps: int, has_wide: bool) -> list[OutputGap]:
    """Of each step, every one going on from the output of the one before: as it is, with the entries, and wider."""
    advance = model.optional("advance")
    if advance is None:
        raise ModelProblem(f"--steps: {model.about.program} has no advance(inputs, output), the next step's inputs")
    sides: list[list[Any]] = [[model.module, model.inputs], [model.module, model.inputs]]
    if has_wide:
        sides.append(list(model.widened()[:2]))
    found = []
    for _ in range(steps):
        outputs = []
        for number, side in enumerate(sides):
            module, inputs = side
            with ours.applied() if number == 1 else contextlib.nullcontext():
                output = module(**inputs)
            outputs.append(kept(output))
            side[1] = advance(inputs, output)
        own, other, *wide = outputs
        found.append(gap("ours", other, own, next(iter(wide), None)))
    return found


def _relative(output: Any, truth: Any) -> float:
    return float((output - truth).norm() / truth.norm())


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (list, tuple)) else []
