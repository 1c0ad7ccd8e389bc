"""Arguments as plain data: tensors by form and value statistics, objects by class and attributes.

The same data later makes arguments of the same form with values from the same range (`captured`). Nothing here reads
more than a sample of a tensor, and nothing changes one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

Described = dict[str, Any]
SAMPLE = 1 << 20
"""Values that the statistics of one tensor are about, at most."""
ALIGNMENT = 128
DEEPEST = 8
MOST_LEAVES = 2000
"""Values inside of one argument; a module with more is too large to be made again."""
MODULE_KEYS = ("_parameters", "_buffers", "_modules", "training")
"""What is kept of the state that torch gives every module."""


class Describer:
    """Describes the arguments of one call; `values` says whether tensors are read."""

    def __init__(self, torch: Any, values: bool) -> None:
        self._torch, self._values, self._leaves = torch, values, 0

    def of(self, value: Any, depth: int = 0) -> Described:
        torch = self._torch
        self._leaves += 1
        if depth > DEEPEST or self._leaves > MOST_LEAVES:
            return _unknown(value)
        if value is None or type(value) in (bool, int, str):
            return {"kind": "plain", "value": value}
        if type(value) is float:
            is_finite = math.isfinite(value)
            return {"kind": "plain", "value": value} if is_finite else {"kind": "float", "value": repr(value)}
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return {"kind": "dtype", "value": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"kind": "device"}
        if type(value) in (list, tuple):
            return {"kind": type(value).__name__, "items": [self.of(item, depth + 1) for item in value]}
        if type(value) is dict and all(type(key) is str for key in value):
            return {"kind": "dict", "items": {key: self.of(item, depth + 1) for key, item in value.items()}}
        if place := importable(value):
            return {"kind": "name", "value": place}
        return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Described:
        place, attributes = importable(type(value)), getattr(value, "__dict__", None)
        if place is None or attributes is None or isinstance(value, type(sys)):
            return _unknown(value)
        if isinstance(value, self._torch.nn.Module):
            internal = frozenset(vars(self._torch.nn.Module()))
            attributes = {key: item for key, item in attributes.items() if key in MODULE_KEYS or key not in internal}
            for key in MODULE_KEYS[:3]:
                attributes[key] = dict(attributes[key])
        described = {key: self.of(item, depth + 1) for key, item in attributes.items()}
        left_out = [key for key, item in described.items() if item["kind"] == "unknown"]
        kept = {key: item for key, item in described.items() if key not in left_out}
        return {"kind": "object", "class": place, "attributes": kept, "left_out": left_out}

    def _tensor(self, tensor: Any) -> Described:
        torch = self._torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            return _unknown(tensor)
        form = {
            "kind": "tensor",
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "stride": list(tensor.stride()),
            "device": tensor.device.type,
        }
        if type(tensor) is torch.nn.Parameter:
            form["parameter"] = True
        if self._values:
            size = tensor.element_size()
            form["alignment"] = tensor.data_ptr() % ALIGNMENT // size * size
            form["values"] = statistics(torch, tensor)
        return form


def _unknown(value: Any) -> Described:
    return {"kind": "unknown", "type": f"{type(value).__module__}.{type(value).__qualname__}"}


def importable(value: Any) -> str | None:
    """MODULE:NAME of a function or class that every process finds there."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is value else None


def statistics(torch: Any, tensor: Any) -> dict[str, Any]:
    """Of a sample of the values; empty for a tensor without any."""
    count = tensor.numel()
    if count == 0:
        return {}
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)[:: max(1, count // SAMPLE)]
        if tensor.dtype == torch.bool:
            return {"ones": float(flat.float().mean())}
        if tensor.is_complex():
            return _spread(torch, torch.view_as_real(flat.resolve_conj()).reshape(-1).double())
        if tensor.is_floating_point():
            return _spread(torch, flat.double())
        steps = flat.long().diff() if tensor.dim() == 1 and count <= SAMPLE else flat.new_tensor([-1])
        order = "steps" if bool((steps == 1).all()) else "sorted" if bool((steps >= 0).all()) else ""
        return {"low": int(flat.min()), "high": int(flat.max()), "order": order}


def _spread(torch: Any, values: Any) -> dict[str, Any]:
    """`zeros` and `infinite` are shares of all values; the rest is about the others."""
    finite = values[torch.isfinite(values)]
    others = finite[finite != 0]
    found: dict[str, Any] = {
        "zeros": float((values == 0).double().mean()),
        "infinite": float(torch.isneginf(values).double().mean()),
        "not_finite": float((~torch.isfinite(values)).double().mean()),
    }
    if others.numel():
        found |= {"mean": float(others.mean()), "std": float(others.std(correction=0))}
        found |= {"low": float(others.min()), "high": float(others.max())}
    return found


def tensors(name: str, value: Any, torch: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of an argument, each with its path such as `caches.0`."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors(f"{name}.{index}", item, torch)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(f"{name}.{key}", item, torch)
