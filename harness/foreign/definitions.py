"""A definition of SOL-ExecBench or flashinfer-bench: axes, inputs, outputs and a `reference` in Python, in JSON.

As in these suites, every side is called with the inputs in order. A solution may return the outputs or, if it has a
parameter for each of them, fill those that it is given. An input comes from the workload (a number, a tensor in a
safetensors file), from the definition's own code, or from a generator that suits its name.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
from collections.abc import Callable
from typing import Any

import torch

from harness.foreign.random_inputs import drawn, generated

STORED = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The dtypes of a safetensors file."""
PACKED = {"float4_e2m1": "float4_e2m1fn_x2"}
"""Names that torch spells another way."""
RETURNS_NOTHING = "-> None"
"""In the docstring of a C++ function that fills its destinations."""


class Definition:
    """The file next to a reference.py, whose global names these are. A case's axes are sizes, and `inputs` that are
    not random."""

    def __init__(self, name: str, names: dict[str, Any]) -> None:
        path = os.path.join(os.path.dirname(names["__file__"]), name)
        with open(path, encoding="utf-8") as file:
            self._data = json.load(file)
        names.get("__kernbench_reads__", list)([path])
        text, shown = self._data["reference"], f"{path}:reference"
        lines = text.splitlines(keepends=True)
        linecache.cache[shown] = (len(text), None, lines, shown)  # for tracebacks, and for Triton
        self._scope: dict[str, Any] = {"__name__": "reference", "__file__": path}
        exec(compile(text, shown, "exec", dont_inherit=True), self._scope)
        self.run = self._scope["run"]

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        sources, sizes = case.get("inputs", {}), self._sizes(case)
        known = {name: about["value"] for name, about in sources.items() if about["type"] == "scalar"}
        if any(about["type"] == "custom" for about in sources.values()):
            make = self._scope[self._data["custom_inputs_entrypoint"]]
            own = make({**sizes, **known}, torch.device(device))
            known |= {name: own[name] for name, about in sources.items() if about["type"] == "custom"}
        made = {}
        for name, about in self._data["inputs"].items():
            value = known[name] if name in known else self._made(name, about, sources.get(name, {}), sizes, device)
            made[name] = value.to(device) if isinstance(value, torch.Tensor) else value
        return made

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Callable[..., Any]) -> Any:
        """The call of a side: every side pays for the same one, and one that fills destinations for making them."""
        if not self._fills(entry):
            return lambda **inputs: entry(*inputs.values())
        forms = [
            (self._shape(about, self._sizes(case)) or [], _dtype(about)) for about in self._data["outputs"].values()
        ]

        def call(**inputs: Any) -> Any:
            outputs = [torch.empty(shape, dtype=kind, device=device) for shape, kind in forms]
            entry(*inputs.values(), *outputs)
            return outputs

        return call

    def _fills(self, entry: Callable[..., Any]) -> bool:
        """Whether a side has a parameter for each input and each output."""
        try:
            parameters = inspect.signature(entry).parameters.values()
        except ValueError:  # compiled: only its docstring says what it takes
            return RETURNS_NOTHING in (entry.__doc__ or "")
        usual = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = sum(item.kind in usual and item.default is item.empty for item in parameters)
        return required == len(self._data["inputs"]) + len(self._data["outputs"])

    def _sizes(self, case: dict[str, Any]) -> dict[str, int]:
        """Of all axes: from the case or, if they do not vary, from the definition."""
        axes = self._data["axes"].items()
        sizes = {name: case.get(name, axis["value"]) for name, axis in axes if axis["type"] == "const"}
        sizes |= {name: case[name] for name, axis in axes if axis["type"] == "var"}
        for name, axis in axes:
            if axis["type"] == "expr":
                sizes[name] = _number(axis["expression"], sizes)
        return sizes

    def _shape(self, about: dict[str, Any], sizes: dict[str, int]) -> list[int] | None:
        """None for a number."""
        return None if about["shape"] is None else [_number(part, sizes) for part in about["shape"]]

    def _made(
        self, name: str, about: dict[str, Any], source: dict[str, Any], sizes: dict[str, int], device: str
    ) -> Any:
        if source.get("type") == "safetensors":
            return _stored(source["path"], source["tensor_key"])
        shape, dtype = self._shape(about, sizes), _dtype(about)
        if source.get("type") == "generated":
            told = source["generator"]
            bounds = {key: _number(told[key], sizes) for key in ("low", "high") if isinstance(told.get(key), str)}
            options = {**told, **bounds}
            value = generated(options, shape or [], dtype, device)
        else:
            value = drawn(name, shape or [], dtype, device, about.get("description") or "")
        return value.item() if shape is None else value


def _number(expression: str, sizes: dict[str, int]) -> int:
    """An axis, a number, or arithmetic with both."""
    return int(eval(expression, {"__builtins__": {}}, sizes))


def _dtype(about: dict[str, Any]) -> torch.dtype:
    found: torch.dtype = getattr(torch, PACKED.get(about["dtype"], about["dtype"]))
    return found


def _stored(path: str, key: str) -> torch.Tensor:
    """A tensor of a safetensors file: the length of a JSON header, the header, and the bytes that it describes."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(length))[key]
        first, last = about["data_offsets"]
        file.seek(8 + length + first)
        data = bytearray(file.read(last - first))
    dtype = STORED[about["dtype"]]
    return (
        torch.frombuffer(data, dtype=dtype).reshape(about["shape"])
        if data
        else torch.empty(about["shape"], dtype=dtype)
    )
