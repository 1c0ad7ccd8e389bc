"""The ways to run a step: eager, in a CUDA graph, under torch.compile, and each of them with the entries patched in.

Each compiled side is a function with a separate code object: torch.compile keeps its graphs by code object, and two
sides that shared one would silently run the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.load.compiled import compiled
from harness.shared.model_step import Patch
from harness.transfer.loaded_model import LoadedModel
from harness.transfer.sites import Patches
from harness.transfer.wiring import Traced, Watch

NOTHING = Patches()
WARM_STEPS = 3


class NotTraced(Exception):
    """The graph of a compiled side was made without one of the sites."""


@dataclass(frozen=True)
class StepSide:
    name: str
    run: Callable[[], Any]
    patches: Patches = NOTHING
    """In place while it runs."""
    is_replayed: bool = False
    """By torch.compile's CUDA graphs, which have to know when a new step begins."""

    def begin(self) -> None:
        self.patches.put()
        if self.is_replayed:
            import torch

            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        self.patches.take_back()

    def once(self) -> Any:
        try:
            self.begin()
            return self.run()
        finally:
            self.end()


def make(name: str, model: LoadedModel, patches: Sequence[Patch]) -> StepSide:
    """The side, warmed up; raises if it cannot run."""
    parts = name.split("+")
    is_compiled, in_graph = "compile" in parts, "graph" in parts
    watch = Traced() if is_compiled else Watch()
    inside = model.ours(patches, watch, is_compiled) if "ours" in parts else NOTHING

    def step() -> Any:
        return model.step()

    if is_compiled:
        side = StepSide(name, compiled(step, "reduce-overhead" if in_graph else None), inside, in_graph)
    elif in_graph:
        return _captured(name, step, inside)
    else:
        side = StepSide(name, step, inside)
    for _ in range(WARM_STEPS):
        side.once()
    if isinstance(watch, Traced) and watch.missing:
        raise NotTraced(f"torch.compile made its graph without a site: {watch.missing}")
    return side


def _captured(name: str, step: Callable[[], Any], inside: Patches) -> StepSide:
    import torch

    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph: Any = torch.cuda.CUDAGraph()
    with inside.applied():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            output = step()

    def replay(_held: Patches = inside) -> Any:
        """Holds the patches: the graph reads tensors that their adapters made."""
        graph.replay()
        return output

    return StepSide(name, replay)
