"""A KDA-Pilot folder: bench/adapter.py makes a row's inputs and outputs and calls the baseline or the solution.

As in the suite's benchmark, both are called as `call(workload, inputs, outputs)`, without gradients, and fill outputs
that they are given. Here every call gets new ones, on every side, so that none can leave the values of an earlier call.
A side's solution.py calls `call_candidate` with the files of its folder `solution`, or the baseline if there are none.
"""

from __future__ import annotations

import copy
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.foreign.adapter_side import SOLUTION, AdapterSide
from harness.inputs import structure
from harness.inputs.calling import CaseEntry
from harness.inputs.reference import Inputs, copies
from harness.inputs.seeding import seed_everywhere
from harness.inputs.tensor_layout import moved_bytes, span_bytes
from harness.load.exception_text import one_line
from harness.shared.used_files import PARSED, listing

OF_TASK = (*PARSED, "reference.py", f"{SOLUTION}.py")
"""Files of a task that its folder in the suite does not have."""
TOLERANCE = 1e-2
"""atol and rtol of a row that does not name them."""
OTHER_SEED = 0x5EED
"""Of the inputs with which the baseline is watched: what it computes must not be in memory when a solution runs."""
Call = Callable[[Any, Any, Any], Any]


class Candidate:
    """What a task's solution.py calls; `scope` are its global names."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        found = listing(Path(os.path.dirname(os.path.abspath(scope["__file__"]))))
        names = [name for name in found if name not in OF_TASK]
        side = AdapterSide(scope, names)
        adapter = side.adapter()
        is_there = any(name.startswith(f"{SOLUTION}/") for name in names)
        self.call = _at_first(side, adapter.call_candidate if is_there else adapter.call_baseline)


class Problem:
    """The folder as a task's reference.py sees it, without a solution. A case has its row as `workload`."""

    def __init__(self, scope: Mapping[str, Any], names: Sequence[str]) -> None:
        self._side = AdapterSide(scope, names)
        self._adapter = self._side.adapter()
        self._rows: dict[str, _Row] = {}
        self.baseline = _at_first(self._side, self._adapter.call_baseline)
        self.check = self._check if hasattr(self._adapter, "compare_outputs") else None

    def make_inputs(self, case: dict[str, Any], seed: int, device: str) -> Inputs:
        workload, key = case["workload"], repr(case)
        if key not in self._rows:
            with _empty_is_filled():
                watched = self._made(workload, OTHER_SEED, device)
            self._rows[key] = row = _Row(workload, *watched)
            row.note_scratch(self.baseline)
        leaves, row = _taken_apart(self._made(workload, seed, device)[0])[0], self._rows[key]
        return {name: value for name, value in leaves.items() if name not in row.scratch}

    def setup(self, case: dict[str, Any], device: str, dtype: torch.dtype, entry: Call) -> Callable[..., Any]:
        """The call of a side, with its own outputs and scratch memory."""
        row = self._rows[repr(case)]
        own, workload = row.new_scratch(), row.workload

        def call(inputs: Any) -> Any:
            outputs = row.outputs()
            with torch.no_grad():
                entry(workload, inputs, outputs)
            return outputs

        return CaseEntry(call, lambda leaves: row.build({**leaves, **own}))

    def traffic(self, axes: dict[str, Any]) -> tuple[int, int]:
        return self._rows[repr(axes)].traffic

    def _check(self, axes: dict[str, Any], inputs: Inputs, outputs: Any) -> list[tuple[str, float, float]]:
        """The adapter's own comparison, on top of the row's tolerance: some adapters compare bits."""
        row = self._rows[repr(axes)]
        expected = self.setup(axes, "", torch.float32, self.baseline)(**copies(inputs))
        bounds = dict(zip(("atol", "rtol"), _bounds(row.workload), strict=True))
        said = self._adapter.compare_outputs(row.workload, expected, outputs, bounds)
        return [] if said.get("ok") else [(one_line(str(said.get("message"))) or "compare_outputs", 1.0, 0.0)]

    def _made(self, workload: dict[str, Any], seed: int, device: str) -> tuple[Any, Any]:
        """Inputs and outputs of a row, as the adapter makes them."""
        before = random.getstate()
        random.seed(seed)
        seed_everywhere(seed, device)
        try:
            with self._side.at_work(), torch.no_grad():
                made = self._adapter.make_case(copy.deepcopy(workload), device=torch.device(device), seed=seed)
        finally:
            random.setstate(before)
        given, named = _get(made, "tolerance") or {}, _bounds(workload)
        found = tuple(float(given.get(key, usual)) for key, usual in zip(("atol", "rtol"), named, strict=True))
        if found != named:
            said = f"make_case asks for atol and rtol {found}, and its row in workloads.json for {named}"
            raise ValueError(f"{said}; make them the same, and import the folder again")
        return _get(made, "inputs"), _get(made, "candidate_outputs")


class _Row:
    """A row's structure: how its inputs are put together, and what its outputs are like."""

    def __init__(self, workload: dict[str, Any], inputs: Any, outputs: Any) -> None:
        self.workload = workload
        self._leaves, self.build = _taken_apart(inputs)
        self._outputs = _like(outputs if isinstance(outputs, (list, tuple, dict)) else [outputs])
        self.scratch: dict[str, torch.Tensor] = {}
        """Inputs that the baseline writes to: every side has its own, and nothing in them counts."""
        self.traffic = (0, 0)
        """Bytes that a call must read and write."""
        places = {value.untyped_storage().data_ptr() for value in self._tensors().values() if value.numel()}
        if any(value.untyped_storage().data_ptr() in places for value in _tensors_of(outputs) if value.numel()):
            raise ValueError("its outputs are inputs that a call writes in place, which kernbench cannot open")

    def note_scratch(self, baseline: Call) -> None:
        given = copies(self._leaves)
        outputs = self._results(baseline, given)
        changed = [name for name, value in self._tensors().items() if not _is_same(value, given[name])]
        if changed:
            cleared = copies(self._leaves) | {name: torch.zeros_like(given[name]) for name in changed}
            atol, rtol = _bounds(self.workload)
            for one, other in zip(outputs, self._results(baseline, cleared), strict=True):
                if not torch.allclose(one.double(), other.double(), rtol, atol, equal_nan=True):
                    said = f"a call both reads and writes {' or '.join(changed)}"
                    raise ValueError(f"{said}, which kernbench cannot open")
        self.scratch = {name: torch.empty_like(given[name], device="meta") for name in changed}
        self._device = next((value.device for value in self._tensors().values()), torch.device("cpu"))
        read = [value for name, value in self._tensors().items() if name not in self.scratch]
        self.traffic = sum(map(moved_bytes, innermost(read))), sum(map(moved_bytes, _tensors_of(self.outputs())))
        self._leaves = {}

    def _results(self, baseline: Call, leaves: dict[str, Any]) -> list[torch.Tensor]:
        outputs = self.outputs()
        with torch.no_grad():
            baseline(self.workload, self.build(leaves)["inputs"], outputs)
        return _tensors_of(outputs)

    def outputs(self) -> Any:
        return self._outputs()

    def new_scratch(self) -> dict[str, torch.Tensor]:
        return {name: torch.zeros_like(value, device=self._device) for name, value in self.scratch.items()}

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self._leaves.items() if isinstance(value, torch.Tensor)}


def _taken_apart(inputs: Any) -> tuple[dict[str, Any], structure.Build]:
    """The leaves of the inputs, and how to make the arguments of a call again from them."""
    leaves, build = structure.flattened({"inputs": inputs})
    return leaves, build or dict


@contextmanager
def _empty_is_filled() -> Iterator[None]:
    """`torch.empty` fills its memory, which may hold what the baseline computed before: to write it again would change
    nothing."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def _at_first(side: AdapterSide, function: Call) -> Call:
    """A function of an adapter. Its first call with a row may load and build."""
    known: set[int] = set()

    def call(workload: Any, inputs: Any, outputs: Any) -> Any:
        if id(workload) in known:
            return function(workload, inputs, outputs)
        with side.at_work():
            found = function(workload, inputs, outputs)
        known.add(id(workload))
        return found

    return call


def _get(made: Any, name: str) -> Any:
    """A case is a dict or an object."""
    return made.get(name) if isinstance(made, dict) else getattr(made, name, None)


def _bounds(workload: dict[str, Any]) -> tuple[float, ...]:
    return tuple(float(workload.get(name, TOLERANCE)) for name in ("atol", "rtol"))


def _like(value: Any) -> Callable[[], Any]:
    """Makes a value like this one, with new tensors that have no values yet."""
    if isinstance(value, torch.Tensor):
        size, stride, dtype, device = tuple(value.shape), value.stride(), value.dtype, value.device
        return lambda: torch.empty_strided(size, stride, dtype=dtype, device=device)
    if isinstance(value, dict):
        named = {key: _like(item) for key, item in value.items()}
        return lambda: {key: make() for key, make in named.items()}
    if isinstance(value, (list, tuple)):
        kind, parts = type(value), [_like(item) for item in value]
        return lambda: kind(make() for make in parts)
    return lambda: value


def _tensors_of(value: Any) -> list[torch.Tensor]:
    return [item for item in _taken_apart(value)[0].values() if isinstance(item, torch.Tensor)]


def innermost(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Without those that hold another one's memory: adapters keep a buffer alive whose slices they pass."""
    spans = [(value.data_ptr(), value.data_ptr() + span_bytes(value)) for value in tensors]

    def holds_another(begin: int, end: int) -> bool:
        return any(begin <= start and stop <= end and (start, stop) != (begin, end) for start, stop in spans)

    return [value for value, span in zip(tensors, spans, strict=True) if not holds_another(*span)]


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, as far as torch compares: NaN equals NaN."""
    if one.dtype.itemsize == 1:
        one, other = one.view(torch.uint8), other.view(torch.uint8)
    return bool(((one == other) | ((one != one) & (other != other))).all())
