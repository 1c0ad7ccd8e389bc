"""The reference.py of a captured task: the original function, and inputs drawn like those that were recorded.

`Captured("capture.json", globals())` reads the file next to a reference.py or solution.py. A tensor has the recorded
shape, dtype, strides and alignment, and values of the recorded mean, spread and range. Arguments that are objects, such
as a module with weights, are made by `setup`, from their class and their recorded attributes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from harness.inputs import tensor_layout

INPUTS = frozenset("plain float dtype device list tuple dict tensor".split())
"""Kinds that `make_inputs` may return."""
SEED = 42
STRUCTURED = 0.1
"""From this share on, zeros and infinities are drawn as such: a mask, or what a ReLU leaves."""


class Captured:
    def __init__(self, name: str, names: dict[str, Any]) -> None:
        self._path = os.path.join(os.path.dirname(names["__file__"]), name)
        with open(self._path, encoding="utf-8") as file:
            self._data: dict[str, Any] = json.load(file)
        names.get("__kernbench_reads__", list)([self._path])
        self.original = self._original()

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        form = self._data["forms"][case["form"]]
        draw = Draw(seed, device)
        made = {item["name"]: draw.made(item["value"]) for item in form["arguments"] if is_input(item["value"])}
        for first, *others in form["same"]:
            for name in others:
                if first in made and name in made:
                    made[name] = made[first]
        return made

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Callable[..., Any]) -> Any:
        """The call of a side, with the objects among its arguments; exact results want float64."""
        draw = Draw(SEED, device, dtype if dtype is torch.float64 else None)
        form = self._data["forms"][case["form"]]
        objects = {item["name"]: draw.made(item["value"]) for item in form["arguments"] if not is_input(item["value"])}

        def call(**inputs: Any) -> Any:
            return entry(**objects, **inputs)

        return call

    def _original(self) -> Callable[..., Any]:
        """By its name, from where the program found it."""
        module, _, path = self._data["site"].partition(":")
        folder = self._data["folder"]
        before = list(sys.path)
        try:
            if folder:
                sys.path.insert(0, folder)
            found: Any = importlib.import_module(module)
        except ImportError as problem:
            where = f" from {folder}" if folder else ""
            kind = ModuleNotFoundError if isinstance(problem, ModuleNotFoundError) else ImportError
            raise kind(f"cannot import {module}{where} (site in {self._path}): {problem}") from problem
        finally:
            sys.path[:] = before
            if folder and folder not in before:
                sys.path.append(folder)  # for what it imports later
        file = os.path.abspath(getattr(found, "__file__", None) or "")
        if folder and not file.startswith(os.path.join(folder, "")):
            raise ImportError(f"{module} is already imported from {file}, not from {folder} (site in {self._path})")
        for part in path.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]


def is_input(value: dict[str, Any]) -> bool:
    """Whether a value consists of tensors and plain data."""
    items = value.get("items", ())
    parts = items.values() if isinstance(items, dict) else items
    return value["kind"] in INPUTS and all(map(is_input, parts))


class Draw:
    """Makes values from their descriptions. `wide` replaces floating dtypes."""

    def __init__(self, seed: int, device: str, wide: torch.dtype | None = None) -> None:
        self._device, self._wide = device, wide
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._on_cpu = self if device == "cpu" else Draw(seed, "cpu", wide)
        """For tensors that a GPU's function gets from the CPU."""

    def made(self, value: dict[str, Any]) -> Any:
        kind = value["kind"]
        if kind == "plain":
            return value["value"]
        if kind == "float":
            return float(value["value"])
        if kind == "dtype":
            return getattr(torch, value["value"])
        if kind == "device":
            return torch.device(self._device)
        if kind == "dict":
            return {key: self.made(item) for key, item in value["items"].items()}
        if kind in ("list", "tuple"):
            items = [self.made(item) for item in value["items"]]
            return tuple(items) if kind == "tuple" else items
        if kind == "name":
            return _named(value["value"])
        if kind == "object":
            return self._object(value)
        return self._on_cpu._tensor(value) if value["device"] == "cpu" else self._tensor(value)

    def _object(self, value: dict[str, Any]) -> Any:
        kind = _named(value["class"])
        made = kind.__new__(kind)
        if isinstance(made, torch.nn.Module):
            torch.nn.Module.__init__(made)
        made.__dict__.update({key: self.made(item) for key, item in value["attributes"].items()})
        return made

    def _tensor(self, form: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, form["dtype"])
        size, stride = form["shape"], form["stride"]
        span = tensor_layout.span(size, stride)
        room = torch.empty(span + tensor_layout.ALIGNMENT // dtype.itemsize, dtype=dtype, device=self._device)
        behind = (form["alignment"] - room.data_ptr()) % tensor_layout.ALIGNMENT
        start = behind // dtype.itemsize
        room[start : start + span] = self._values(form["values"], span, dtype)
        made: torch.Tensor = room.as_strided(size, stride, start)
        if self._wide is not None and made.is_floating_point():
            made = made.to(self._wide)
        return torch.nn.Parameter(made, requires_grad=False) if form.get("parameter") else made

    def _values(self, about: dict[str, Any], count: int, dtype: torch.dtype) -> torch.Tensor:
        if not about or not count:
            return torch.zeros(count, dtype=dtype, device=self._device)
        if dtype == torch.bool:
            return torch.lt(self._uniform(count), about["ones"])
        if dtype.is_floating_point:
            return self._floats(about, count).to(dtype)
        if dtype.is_complex:
            return torch.complex(self._floats(about, count), self._floats(about, count)).to(dtype)
        low, high = about["low"], about["high"]
        if about["order"] == "steps":
            return torch.arange(low, low + count, dtype=dtype, device=self._device)
        drawn: torch.Tensor = torch.randint(low, high + 1, (count,), generator=self._generator, device=self._device)
        if about["order"] == "sorted":
            drawn = drawn.sort().values
            drawn[0], drawn[-1] = low, high
        return drawn.to(dtype)

    def _floats(self, about: dict[str, Any], count: int) -> torch.Tensor:
        """A bell curve within the recorded range; one that had a single sign keeps it."""
        if "mean" not in about:
            return torch.zeros(count, device=self._device)
        drawn: torch.Tensor = (
            torch.randn(count, generator=self._generator, device=self._device) * about["std"] + about["mean"]
        )
        low, high = about["low"], about["high"]
        if low > 0 or high < 0:
            drawn = drawn.abs() if low > 0 else -drawn.abs()
        drawn = drawn.clamp(low, high)
        for share, value in ((about["zeros"], 0.0), (about["infinite"], -float("inf"))):
            if share >= STRUCTURED:
                drawn = drawn.masked_fill(self._uniform(count) < share, value)
        return drawn

    def _uniform(self, count: int) -> torch.Tensor:
        return torch.rand(count, generator=self._generator, device=self._device)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
