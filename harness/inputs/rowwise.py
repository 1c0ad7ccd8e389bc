"""Truth a few rows at a time, where the task says that rows are independent.

float64 copies of a large case, with everything computed in between, take twenty times its own size. `rowwise = ["x"]`
in task.toml names the inputs whose rows go together: row i of every output depends on row i of those inputs alone. Rows
are counted along the first dimension of the largest of them that is longer than one; an input that has no such rows
(it is not named, or broadcasts) is given whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.load.failure import BadTask

Inputs = dict[str, Any]
Outputs = dict[str, torch.Tensor | None]

LARGE = 1 << 27
"""Elements of the largest row-wise input: a gigabyte in float64."""
PIECE = 1 << 24
"""Elements of it that are worked on at a time."""


def in_pieces(run: Callable[[Inputs], Outputs], inputs: Inputs, names: tuple[str, ...]) -> Outputs:
    """What `run` gives for the inputs; worked out piece by piece where they are large."""
    tensors = [inputs[name] for name in names if isinstance(inputs.get(name), torch.Tensor)]
    largest = max(tensors, key=lambda tensor: tensor.numel(), default=None)
    if largest is None or largest.numel() <= LARGE:
        return run(inputs)
    dimension = next(index for index, length in enumerate(largest.shape) if length > 1)
    count = largest.shape[dimension]
    step = max(1, PIECE * count // largest.numel())
    whole: Outputs = {}
    for start in range(0, count, step):
        length = min(step, count - start)
        piece = {
            name: value.narrow(dimension, start, length) if name in names and _has(value, dimension, count) else value
            for name, value in inputs.items()
        }
        for name, value in run(piece).items():
            if value is not None and not _has(value, dimension, length):
                raise BadTask(_no_rows(name, value, dimension, length))
            _put(whole, name, value, dimension, start, count)
    return whole


def _has(value: Any, dimension: int, count: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > dimension and value.shape[dimension] == count


def _no_rows(name: str, value: torch.Tensor, dimension: int, length: int) -> str:
    of = f"{length} rows gave {name} of shape {list(value.shape)}, which has not as many along dimension {dimension}"
    return f"task.toml: rowwise: {of}; leave rowwise out if rows are not independent"


def _put(whole: Outputs, name: str, value: torch.Tensor | None, dimension: int, start: int, count: int) -> None:
    if value is None:
        whole[name] = None
        return
    target = whole.get(name)
    if target is None:
        shape = [count if index == dimension else length for index, length in enumerate(value.shape)]
        target = whole[name] = value.new_empty(shape)
    target.narrow(dimension, start, value.shape[dimension]).copy_(value)
