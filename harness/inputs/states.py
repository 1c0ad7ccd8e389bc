"""What `setup` makes: an entry's first argument, such as a module with weights. Every side gets one, from one seed."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from harness.inputs import tensor_layout
from harness.inputs.calling import NO_STATE, CaseEntry
from harness.inputs.seeding import seed_everywhere
from harness.shared.task import Case

SEED = 42
Kept = dict[tuple[str, torch.dtype], Any]


class States:
    """By side, case and dtype. A compiled side would compile again for a new state, so they are kept between runs."""

    def __init__(self, setup: Callable[..., Any] | None) -> None:
        self._setup = setup
        self._takes_entry = setup is not None and "entry" in inspect.signature(setup).parameters
        self._kept: WeakKeyDictionary[Callable[..., Any], Kept] = WeakKeyDictionary()

    @property
    def are_made(self) -> bool:
        return self._setup is not None

    def replaces(self, function: Callable[..., Any], state: Any) -> bool:
        """Whether a state is what is called in the entry's place."""
        return self._takes_entry and (state is function or isinstance(state, (types.FunctionType, CaseEntry)))

    def of(self, function: Callable[..., Any], case: Case, device: str, dtype: torch.dtype) -> Any:
        if self._setup is None:
            return NO_STATE
        try:
            kept = self._kept.setdefault(function, {})
        except TypeError:  # an object without weak references: it gets a new state every time
            kept = {}
        if (case.id, dtype) not in kept:
            own = {"entry": function} if self._takes_entry else {}
            with torch.random.fork_rng([torch.cuda.current_device()] if device != "cpu" else []):
                seed_everywhere(SEED, device)
                kept[case.id, dtype] = self._setup(dict(case.axes), device, dtype, **own)
        return kept[case.id, dtype]

    def nbytes(self, function: Callable[..., Any], case: Case, dtype: torch.dtype) -> int:
        """Of the tensors in a side's state: a call has to read them."""
        return _nbytes(self._kept.get(function, {}).get((case.id, dtype)))

    def forget(self, package: str) -> None:
        """Those of a side that is unloaded: an instance keeps its class, and so its own entry here, alive."""
        for function in [item for item in self._kept if str(item.__module__).partition(".")[0] == package]:
            del self._kept[function]

    def trim(self, room: int) -> None:
        """Forgets all states if they take more memory than that."""
        if sum(_nbytes(state) for kept in self._kept.values() for state in kept.values()) > room:
            self._kept.clear()


def _nbytes(state: Any) -> int:
    return sum(tensor_layout.span_bytes(value) for value in _tensors(state) if tensor_layout.plain(value))


def _tensors(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.nn.Module):
        return [*state.parameters(), *state.buffers()]
    if isinstance(state, types.FunctionType):
        kept = [cell.cell_contents for cell in state.__closure__ or ()]
        return [tensor for item in kept if not isinstance(item, types.FunctionType) for tensor in _tensors(item)]
    if isinstance(state, (dict, list, tuple)):
        return [tensor for item in (state.values() if isinstance(state, dict) else state) for tensor in _tensors(item)]
    return [state] if isinstance(state, torch.Tensor) else []
