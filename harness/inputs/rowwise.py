"""Computes truth a few rows at a time, if the task declares its rows independent.

For a large case, float64 copies and intermediate results take twenty times its size. `rowwise = ["x"]` in task.toml
names the inputs whose rows correspond: row i of every output depends only on row i of those inputs. Rows run along the
first dimension longer than one of the largest of these inputs. An input without such rows (because it is not named or
broadcasts) is passed whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.load.failure import BadTask
from harness.shared import format as fmt

Inputs = dict[str, Any]
Outputs = dict[str, torch.Tensor | None]

LARGE = 1 << 27
"""Work in pieces if the largest row-wise input has more elements: a gigabyte in float64."""
PIECE = 1 << 24
"""Elements of that input per piece."""


def in_pieces(run: Callable[[Inputs], Outputs], inputs: Inputs, names: tuple[str, ...]) -> Outputs:
    """The outputs of `run`, computed piece by piece if the inputs are large."""
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
    gave = f"{fmt.plural(length, 'row')} gave {name} of shape {list(value.shape)}"
    expected = f"expected {length} along dimension {dimension}"
    return f"task.toml: rowwise: {gave}, {expected}; remove rowwise if rows are not independent"


def _put(whole: Outputs, name: str, value: torch.Tensor | None, dimension: int, start: int, count: int) -> None:
    if value is None:
        whole[name] = None
        return
    target = whole.get(name)
    if target is None:
        shape = [count if index == dimension else length for index, length in enumerate(value.shape)]
        target = whole[name] = value.new_empty(shape)
    target.narrow(dimension, start, value.shape[dimension]).copy_(value)
