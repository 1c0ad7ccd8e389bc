"""A model: its program loaded and built once, its step, and tasks' entries as stand-ins for its sites.

There is one set of weights. Every side of the step runs on it; sites are switched between two steps.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from harness.load.side import Side
from harness.shared import format as fmt
from harness.shared.model_step import ModelFile, Patch
from harness.transfer import sites
from harness.transfer.sites import Found, ModelProblem, Patches
from harness.transfer.wiring import Watch

COMPILED_FILE = "op.py"
"""The entry as an operator that a graph can hold."""


class LoadedModel:
    def __init__(self, about: ModelFile, device: str, seed: int) -> None:
        import torch

        missing = [name for name in about.needs if importlib.util.find_spec(name) is None]
        if missing:
            what = f"it needs {fmt.joined(missing)}, which {sys.executable} does not have"
            raise ModelProblem(f"{what}; install it with `pip install 'kernbench[models]'`")
        self.about, self.device, self.seed = about, device, seed
        self.side = Side("model", about.folder, about.folder)
        self.dtype = getattr(torch, about.dtype)
        build = self.side.entry(about.program, "build")
        self.module, self.inputs = build(device=device, dtype=self.dtype, seed=seed, **about.config)
        self._loaded: dict[tuple[Patch, bool], tuple[Side, Callable[..., Any]]] = {}

    def step(self) -> Any:
        return self.module(**self.inputs)

    @cached_property
    def found(self) -> dict[str, Found]:
        """The sites and rewrites by name, after the build has imported everything."""
        names = [*(site.call for site in self.about.sites), *(item.call for item in self.about.rewrites)]
        return {name: sites.find(self.side, name) for name in names}

    @cached_property
    def rewritten(self) -> list[tuple[Found, Any]]:
        return [(self.found[item.call], sites.named(self.side, item.by)) for item in self.about.rewrites]

    def plain(self, tasks: Sequence[str], watch: Watch) -> Patches:
        """The model's own code at every site of these tasks, watched."""
        chosen = [site for site in self.about.sites if site.task in tasks]
        own = [(self.found[site.call], watch.site(site, self.found[site.call].original)) for site in chosen]
        return Patches([*self.rewritten, *own])

    def ours(self, patches: Sequence[Patch], watch: Watch, for_compile: bool = False) -> Patches:
        """The entries at their sites."""
        replaced = []
        for patch in patches:
            entry = watch.entry(patch.task, self._entry(patch, for_compile))
            for site in (site for site in self.about.sites if site.task == patch.task):
                new = sites.named(self.side, site.adapter)(entry)
                replaced.append((self.found[site.call], watch.site(site, new)))
        return Patches([*self.rewritten, *replaced])

    def _entry(self, patch: Patch, for_compile: bool) -> Callable[..., Any]:
        """Loaded once: an operator can be registered only once."""
        key = patch, for_compile
        if key not in self._loaded:
            side = Side("compiled" if for_compile else "ours", patch.folder, patch.user_folder, patch.build)
            has_operators = patch.file == "solution.py" and side.holds(COMPILED_FILE.removesuffix(".py"))
            if for_compile and has_operators:
                self._loaded[key] = side, self._operator(side.module(COMPILED_FILE), patch)
            else:
                self._loaded[key] = side, side.entry(patch.file, patch.entry)
        return self._loaded[key][1]

    def _operator(self, operators: Any, patch: Patch) -> Callable[..., Any]:
        if patch.task in self.about.operators:
            return sites.named(self.side, self.about.operators[patch.task])(operators)  # type: ignore[no-any-return]
        return getattr(operators, patch.entry)  # type: ignore[no-any-return]

    def wide(self) -> tuple[Any, str]:
        """The step's output with the same weights and inputs in a wider dtype, and the name of that dtype."""
        import torch

        dtype = torch.float64 if self.dtype is torch.float32 else torch.float32
        model = copy.deepcopy(self.module).to(dtype)
        inputs = {name: _widened(value, dtype) for name, value in self.inputs.items()}
        return model(**inputs), str(dtype).removeprefix("torch.")


def _widened(value: Any, dtype: Any) -> Any:
    import torch

    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
