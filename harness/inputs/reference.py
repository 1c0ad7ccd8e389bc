"""reference.py -> inputs and truth.

`make_inputs(case, seed, device, spread=1.0, offset=0.0)` gets the case's axes table and returns the keyword arguments
of the entry: tensors, plain data, objects, and lists, tuples and dicts of these, which are flattened here. `setup(case,
device, dtype)` makes what an entry gets as its first argument, such as a module with weights: once per side and case,
outside of the clock. `truth(**inputs)` returns unrounded results; without it, the entry runs on float64 copies. Any
failure here is the task's fault, not the candidate's, and raises BadTask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from harness.device.roofline import Traffic, counted_flops
from harness.inputs import rowwise, structure, tensor_layout
from harness.inputs.calling import CaseEntry
from harness.inputs.seeding import seed_everywhere
from harness.inputs.states import States
from harness.load.exception_text import class_name, one_line
from harness.load.failure import BadTask, Paths, describe
from harness.shared import format as fmt
from harness.shared.results import InputForm
from harness.shared.task import Case, Task

Inputs = dict[str, Any]
"""Flat: a leaf of a nested argument is called `weights.norm.weight`."""
Outputs = dict[str, "torch.Tensor | None"]
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


@dataclass(frozen=True)
class Draw:
    """Selects the inputs of a case: seed, spread of the values, and offset from zero."""

    seed: int = 0
    spread: float = 1.0
    offset: float = 0.0

    def __str__(self) -> str:
        parts = [f"seed {self.seed}"]
        parts += [f"spread {fmt.plain(self.spread)}"] if self.spread != 1.0 else []
        parts += [f"offset {fmt.plain(self.offset)}"] if self.offset != 0.0 else []
        return ", ".join(parts)


class Reference:
    """reference.py of one task, loaded."""

    def __init__(self, task: Task, module: ModuleType, entry: Callable[..., Any], paths: Paths) -> None:
        self.task, self.entry, self.paths = task, entry, paths
        self._truth = getattr(module, "truth", None)
        self._states = States(getattr(module, "setup", None))
        self._structures: dict[str, tuple[tuple[str, ...], structure.Build | None]] = {}
        """By case: the names of the flat inputs, and how to make the arguments from them."""
        self._devices: dict[str, str] = {}
        """By case: where its inputs were made last."""
        self._flops: dict[str, float] = {}
        """By case, of imported tasks."""
        self._traffic = getattr(module, "traffic", None)
        self.extra_check = getattr(module, "check", None)
        self._make = getattr(module, "make_inputs", None)
        if not callable(self._make):
            raise BadTask("reference.py does not define make_inputs(case, seed, device, spread, offset)")
        accepted = inspect.signature(self._make).parameters
        everything = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in accepted.values())
        self.scales = everything or {"spread", "offset"} <= set(accepted)
        """Whether make_inputs takes spread and offset (without them, a task is checked with different seeds only)."""

    def make(self, case: Case, draw: Draw, device: str) -> Inputs:
        self._devices[case.id] = device
        seed_everywhere(draw.seed, device)  # for a make_inputs that uses the global generators
        options = {"spread": draw.spread, "offset": draw.offset} if self.scales else {}
        try:
            made = self._make(dict(case.axes), draw.seed, device, **options)  # type: ignore[misc]
        except BaseException as problem:
            raise self._blamed(f"make_inputs failed for case {case.id}", problem) from None
        return self._checked(case, made)

    def _checked(self, case: Case, made: Any) -> Inputs:
        if not isinstance(made, dict) or not all(isinstance(name, str) for name in made):
            kind = class_name(made)
            raise BadTask(f"make_inputs must return a dict of arguments; for case {case.id} it returned {kind}")
        try:
            leaves, build = structure.flattened(made)
        except structure.BadLeaf as problem:
            said = "use tensors, plain data, objects that can be copied, and lists, tuples and dicts of these"
            raise BadTask(f"make_inputs, case {case.id}: {problem}; {said}") from None
        names, _build = self._structures.setdefault(case.id, (tuple(leaves), build))
        if names != tuple(leaves):
            raise BadTask(f"make_inputs returned other arguments for another seed of case {case.id}")
        for key in ("mutates", "outputs"):
            for name in getattr(self.task, key):
                if not isinstance(leaves.get(name), torch.Tensor):
                    raise BadTask(f"task.toml: {key}: make_inputs returned no tensor {name!r} for case {case.id}")
        for name in self.task.rowwise:
            if name not in leaves:
                raise BadTask(f"task.toml: rowwise: make_inputs returned no input {name!r} for case {case.id}")
        return leaves

    def entry_for(self, function: Callable[..., Any], case: Case, exact: bool = False) -> Callable[..., Any]:
        """An entry as the case calls it, with flat inputs by name; `exact` with a state in float64."""
        build = self._structures[case.id][1]
        if build is None and not self._states.are_made:
            return function
        dtype = torch.float64 if exact else _dtype(case)
        try:
            state = self._states.of(function, case, self._devices[case.id], dtype)
        except BaseException as problem:
            if isinstance(function, type):  # its own constructor failed
                raise
            raise self._blamed(f"setup failed for case {case.id}", problem) from None
        return CaseEntry(state, build) if self._states.replaces(function, state) else CaseEntry(function, build, state)

    def outputs(self, case: Case, inputs: Inputs) -> Outputs:
        """The entry's outputs in the production dtype."""
        return self._run(case, self.entry, inputs)

    def trim_states(self, room: int) -> None:
        self._states.trim(room)

    def forget_states(self, package: str) -> None:
        self._states.forget(package)

    def truth(self, case: Case, inputs: Inputs) -> Outputs:
        """Unrounded results: from the task's `truth`, or from the entry on float64 copies."""
        own = self._truth

        def run(piece: Inputs) -> Outputs:
            if own is not None:
                return self._run(case, own, copies(piece), exact=True)
            return self._run(case, self.entry, doubled(piece), exact=True)

        return rowwise.in_pieces(run, inputs, self.task.rowwise)

    def traffic(self, case: Case, inputs: Inputs, outputs: Outputs) -> Traffic:
        """Bytes that one call must move; by default every input and every output once, and for an imported task the
        flops that torch counts."""
        if self._traffic is None:
            used = {name: value for name, value in inputs.items() if name not in self.task.outputs}
            weights = self._states.nbytes(self.entry, case, _dtype(case))
            counted = self._counted_flops(case, inputs) if self.task.origin else 0.0
            return Traffic(_moved(used) + weights, _moved(_each_once(outputs)), counted)
        try:
            read, written, *flops = (float(value) for value in self._traffic(dict(case.axes)))
            return Traffic(read, written, *flops[:1])
        except BaseException as problem:
            raise self._blamed(
                f"traffic() failed for case {case.id}; it must return (bytes read, bytes written[, flops])", problem
            ) from None

    def _counted_flops(self, case: Case, inputs: Inputs) -> float:
        """Once per case, and only on a GPU: elsewhere nothing is compared with a peak."""
        if self._devices[case.id] == "cpu":
            return 0.0
        if case.id not in self._flops:
            try:
                self._flops[case.id] = counted_flops(lambda: self._run(case, self.entry, copies(inputs)))
            except (BadTask, torch.OutOfMemoryError):  # it ran before, next to fewer copies
                self._flops[case.id] = 0.0
        return self._flops[case.id]

    def _run(self, case: Case, function: Callable[..., Any], inputs: Inputs, exact: bool = False) -> Outputs:
        name = getattr(function, "__name__", self.task.entry)
        call = self.entry_for(function, case, exact)
        try:
            return named_outputs(call(**inputs), inputs, self.task.judged)
        except BadOutput as problem:
            raise BadTask(f"reference.py: {name} for case {case.id}: {problem}") from None
        except BaseException as problem:
            raise self._blamed(f"{name} in reference.py failed for case {case.id}", problem) from None

    def _blamed(self, what: str, problem: BaseException) -> BaseException:
        if isinstance(problem, torch.OutOfMemoryError):
            return problem
        fault = describe(problem, self.paths)
        return BadTask(f"{what}: {fault.message}", fault.where, fault.traceback)


def _dtype(case: Case) -> torch.dtype:
    """The dtype that `setup` is asked for."""
    found: torch.dtype = getattr(torch, str(case.axes.get("dtype", "float32")))
    return found


class BadOutput(Exception):
    """A call returned something other than tensors."""


def named_outputs(result: Any, inputs: Inputs, mutates: tuple[str, ...], like: Outputs | None = None) -> Outputs:
    """The output tensors of a call, in order and named: the mutated inputs, then the return value.

    `like` are the outputs of the reference. Where it only mutates its inputs, whatever a solution returns is ignored.
    """
    written: Outputs = {name: inputs[name] for name in mutates}
    if mutates and (result is None if like is None else len(like) == len(mutates)):
        return written
    returned = {f"returned {name}" if name in written else name: value for name, value in _returned(result).items()}
    return {**written, **returned}


def _returned(result: Any) -> Outputs:
    if structure.is_container(result):
        word = "" if issubclass(type(result), dict) else "output "
        named = {one_line(f"{word}{name!s}"): value for name, value in structure.items(result)}
    else:
        named = {"output 0": result}
    if len(named) == 1 and next(iter(named.values())) is None:
        raise BadOutput("it returned None")
    return {name: value for top, item in named.items() for name, value in _leaves(top, item)}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """The tensors of one output; numbers count as tensors of no dimension."""
    if structure.is_container(value):
        for key, item in structure.items(value):
            yield from _leaves(f"{name}.{one_line(str(key))}", item)
    elif value is None or isinstance(value, torch.Tensor):
        yield name, value
    elif type(value) in (bool, int, float, complex):
        yield name, torch.tensor(value, dtype=NUMBERS[type(value)])
    else:
        raise BadOutput(f"{name} is of type {class_name(value)}, not torch.Tensor")


def forms(inputs: Inputs) -> tuple[InputForm, ...]:
    """The arguments of a call, described."""
    return tuple(
        InputForm(name, tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."))
        if isinstance(value, torch.Tensor)
        else InputForm(name, value=value if isinstance(value, (int, float, str, bool)) or value is None else str(value))
        for name, value in inputs.items()
    )


def copies(inputs: Inputs) -> Inputs:
    """The same inputs in new storage, with their layouts preserved."""
    return {
        name: tensor_layout.copy(value) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }


def doubled(inputs: Inputs) -> Inputs:
    """Copies with every floating tensor in float64 (complex in complex128)."""
    return {name: _double(value) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.detach().to(torch.complex128, copy=True).requires_grad_(tensor.requires_grad)
    if tensor.is_floating_point():
        return tensor.detach().to(torch.float64, copy=True).requires_grad_(tensor.requires_grad)
    return tensor_layout.copy(tensor)


def _each_once(outputs: Outputs) -> Outputs:
    """Without those that a reference both mutates and returns."""
    places = {(value.data_ptr(), value.shape): name for name, value in outputs.items() if value is not None}
    return {name: outputs[name] for name in places.values()}


def _moved(values: dict[str, Any]) -> int:
    return sum(tensor_layout.moved_bytes(value) for value in values.values() if isinstance(value, torch.Tensor))


def nbytes(values: dict[str, Any]) -> int:
    return sum(tensor_layout.span_bytes(value) for value in values.values() if isinstance(value, torch.Tensor))
