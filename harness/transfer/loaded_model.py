"""A model: its program loaded and built once, its step, and the same in a wider dtype.

There is one set of weights. Every side of the step runs on it; sites are switched between two steps.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from harness.shared import format as fmt
from harness.shared.model_step import ModelFile
from harness.transfer.sites import ModelProblem
from harness.transfer.wired import Wired


class LoadedModel(Wired):
    def __init__(self, about: ModelFile, device: str, seed: int) -> None:
        import torch

        missing = [name for name in about.needs if importlib.util.find_spec(name) is None]
        if missing:
            what = f"it needs {fmt.joined(missing)}, which {sys.executable} does not have"
            raise ModelProblem(f"{what}; install it with `pip install 'kernbench[models]'`")
        super().__init__(about)
        self.device, self.seed = device, seed
        self.dtype = getattr(torch, about.dtype)
        build = self.side.entry(about.program, "build")
        self.module, self.inputs = build(device=device, dtype=self.dtype, seed=seed, **about.config)

    def step(self) -> Any:
        return self.module(**self.inputs)

    def optional(self, name: str) -> Callable[..., Any] | None:
        """A function that the program may have."""
        return getattr(self.side.module(self.about.program), name, None)

    def widened(self) -> tuple[Any, dict[str, Any], str]:
        """The same weights and inputs in a wider dtype, and the name of that dtype."""
        import torch

        dtype = torch.float64 if self.dtype is torch.float32 else torch.float32
        model = copy.deepcopy(self.module).to(dtype)
        inputs = {name: _widened(value, dtype) for name, value in self.inputs.items()}
        return model, inputs, str(dtype).removeprefix("torch.")


def _widened(value: Any, dtype: Any) -> Any:
    import torch

    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
