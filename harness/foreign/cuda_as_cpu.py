"""Runs code with "cuda" hard-coded on the CPU: other suites' problems say it wherever they make a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def read_as(device: str) -> Iterator[None]:
    """Reads "cuda" as the CPU if that is the device; on a GPU nothing is changed."""
    if device != "cpu":
        yield
        return
    usual = torch.Generator
    torch.Generator = _Generator  # type: ignore[misc]
    try:
        with _OnCpu():
            yield
    finally:
        torch.Generator = usual  # type: ignore[misc]


class _Generator(torch.Generator):
    """A class, so no mode sees where it is to be."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, _here(device))  # type: ignore[call-arg]


class _OnCpu(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        return function(*map(_here, args), **{name: _here(value) for name, value in (kwargs or {}).items()})


def _here(value: Any) -> Any:
    """A device; anything else as it is."""
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value
