"""How scale, shift and gate lie over the rows of [B, S, D]: any of the layouts as four numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch

LAYOUTS = "[1], [D], [1|B, D], [1|B, 1|S, D] or [1|B, F, 1, D]"


class Spread(NamedTuple):
    """The value for (batch, token, column) lies at batch * .batch + token // .tokens * .frame + column * .column."""

    batch: int
    frame: int
    tokens: int
    column: int

    @property
    def shared(self) -> bool:
        """Whether every row takes the same vector."""
        return self.batch == 0 and self.frame == 0


def spread(name: str, operand: torch.Tensor, batch: int, tokens: int, cols: int) -> Spread:
    shape, stride = operand.shape, operand.stride()
    if shape == (1,):
        return Spread(0, 0, 1, 0)
    allowed = {1: (), 2: ((1, batch),), 3: ((1, batch), (1, tokens)), 4: ((1, batch), shape[1:2], (1,))}
    leading = allowed.get(len(shape))
    if leading is None or shape[-1] != cols or any(n not in fit for n, fit in zip(shape, leading, strict=False)):
        raise ValueError(f"{name} of shape {list(shape)} is none of {LAYOUTS} for [{batch}, {tokens}, {cols}]")
    rows = shape[0] if len(shape) > 1 else 1
    frames = shape[1] if len(shape) > 2 else 1
    if frames != tokens and (frames == 0 or tokens % frames):
        raise ValueError(f"{name}: {tokens} tokens are no multiple of {frames} frames")
    return Spread(
        batch=stride[0] if rows > 1 else 0,
        frame=stride[1] if frames > 1 else 0,
        tokens=tokens // max(frames, 1),
        column=stride[-1],
    )
