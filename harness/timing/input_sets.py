"""Input sets for timing: the same case at many addresses, so that no call finds its inputs in the cache.

On a CPU the only way to empty the cache is to touch other memory. So each timed call, of any side, uses the next of N
sets, and N sets together are twice the last-level cache: before a set is used again, that much other data has been
touched. Sides still follow each other within a block, close in time; N is coprime to the length of their turn, so that
over time every side works on every set. All sets are in one arena, which is filled from first to last before timing;
filling counts as a touch. Tensors that a case mutates are restored just before the call and are therefore warm; the
condition says so.

On a GPU the flush before each call empties the cache, and all sides of a block work on the same addresses.

The values change too (harness/inputs/variation.py): on a CPU before every call, on a GPU, where the records show
whether a call did all its work, before every block.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.device import environment
from harness.inputs import tensor_layout, variation
from harness.inputs.reference import Inputs, copies, nbytes

PAGE = 4096
STRIP = 1 << 20
Seed = Callable[[int], None]
SMALLEST_SET = 512
"""Minimum size of a set; inputs of a few bytes would otherwise make millions of sets."""


_random = os.urandom
"""Bound before any source could replace it."""


class WorkingSet:
    """Inputs of timed calls: copies of a master's, with the values of a lot."""

    def __init__(
        self,
        inputs: Inputs,
        master: int,
        values: Inputs,
        mutates: tuple[str, ...],
        names: frozenset[str],
        seed: Seed | None = None,
    ) -> None:
        """`master` is the index of the master that `values` are of; `inputs` hold them already. `names` are those of
        the inputs whose values vary."""
        self.inputs, self.names, self._seed = inputs, names, seed
        self._mutated = [name for name in mutates if tensor_layout.plain(values[name])]
        tensors = (value for value in inputs.values() if isinstance(value, torch.Tensor))
        self._with_gradient = [value for value in tensors if value.requires_grad]
        self._take(master, values)

    def _take(self, master: int, values: Inputs) -> None:
        self.master, self.lot, self._values = master, 0, values
        self._strips = variation.strips(self.inputs, values, self.names)

    def refill(self, master: int, values: Inputs) -> None:
        """The same addresses with another master's values: a source that caches results by address fails on it."""
        for name, value in self.inputs.items():
            if isinstance(value, torch.Tensor) and tensor_layout.plain(value):
                tensor_layout.flat(value).copy_(tensor_layout.flat(values[name]))
            else:
                self.inputs[name] = values[name]
        self._take(master, values)

    @property
    def needs_care(self) -> bool:
        """Whether something has to be done before every call."""
        return bool(self._mutated or self._with_gradient) or self._seed is not None

    def renew(self) -> None:
        """Undoes what an earlier call wrote, and puts in the values of a new lot."""
        for strips in self._strips.values():
            strips.undo(self.lot)
        self.lot = int.from_bytes(_random(6), "little") or 1
        self._put_back()
        for strips in self._strips.values():
            strips.put(self.lot)
        self._set_out()

    def restore(self) -> None:
        """Undoes what an earlier call wrote."""
        self._put_back()
        for name in self._mutated:
            if name in self._strips:
                self._strips[name].put(self.lot)
        self._set_out()

    def _set_out(self) -> None:
        """Leaves a call neither the gradients nor the random numbers of an earlier one."""
        for tensor in self._with_gradient:
            tensor.grad = None
        if self._seed is not None:
            self._seed(self.master)

    def _put_back(self) -> None:
        for name in self._mutated:
            tensor_layout.flat(self.inputs[name]).copy_(tensor_layout.flat(self._values[name]))

    def undone(self) -> Inputs:
        """Puts the master's values back into the strips, and returns the master's inputs, which these should equal."""
        for strips in self._strips.values():
            strips.undo(self.lot)
        self.lot = 0
        return self._values

    @functools.cached_property
    def storages(self) -> frozenset[int]:
        """Addresses of the memory that the inputs are in."""
        tensors = (value for value in self.inputs.values() if isinstance(value, torch.Tensor))
        return frozenset(value.untyped_storage().data_ptr() for value in tensors if tensor_layout.plain(value))


Prepare = Callable[[], None]


@dataclass(frozen=True)
class Rules:
    """What a task says about the inputs of its calls."""

    mutates: tuple[str, ...] = ()
    """To be restored before every call."""
    outputs: tuple[str, ...] = ()
    """Destinations: their values mean nothing."""
    seed: Seed | None = None
    """Seeds the generators for a master's calls."""


class CpuRotation:
    """Sets in one arena; every call uses the next."""

    def __init__(self, masters: Sequence[Inputs], rules: Rules, sides: int) -> None:
        self._masters, self._rules, self._names = masters, rules, variation.free_names(masters, rules.outputs)
        self._places, size = _layout(masters[0])
        self._stride = -(-max(size, SMALLEST_SET) // tensor_layout.ALIGNMENT) * tensor_layout.ALIGNMENT
        goal = 2 * environment.last_level_cache()
        room = environment.free_memory() // 4
        self.count = _coprime(max(2, math.ceil(goal / self._stride)), 2 * sides)
        if self.count * self._stride > max(room, goal):
            self.count = max(2, room // self._stride)
        self.bytes = self.count * self._stride
        self._arena = _arena(self.bytes)
        self._sets: dict[int, WorkingSet] = {}
        self._next = 0
        self._fill()

    def begin_block(self) -> None:
        pass

    def next_call(self) -> tuple[WorkingSet, Prepare | None]:
        """The set of the next call, and what to do before it."""
        working = self.take()
        return working, working.renew

    def take(self) -> WorkingSet:
        index = self._next % self.count
        self._next += 1
        found = self._sets.get(index)
        if found is None:
            found = self._sets[index] = self._working_set(index)
        return found

    def refill(self, working: WorkingSet) -> None:
        owner = (working.master + 1) % len(self._masters)
        working.refill(owner, self._masters[owner])

    def _owner(self, index: int) -> int:
        """Neighboring sets contain the same values, so that within a block the sides work on equal data."""
        return index * len(self._masters) // self.count

    def _fill(self) -> None:
        rows = self._arena[: self.bytes].view(self.count, self._stride)
        for number, master in enumerate(self._masters):
            first = -(-number * self.count // len(self._masters))
            last = -(-(number + 1) * self.count // len(self._masters))
            template = torch.zeros(self._stride, dtype=torch.uint8, device="cpu")
            for name, start in self._places.items():
                tensor_layout.flat(tensor_layout.carve(template, start, master[name])).copy_(
                    tensor_layout.flat(master[name])
                )
            _repeat(template, rows[first:last])

    def _working_set(self, index: int) -> WorkingSet:
        owner = self._owner(index)
        master = self._masters[owner]
        inputs = dict(master)
        for name, start in self._places.items():
            made = tensor_layout.carve(self._arena, index * self._stride + start, master[name])
            inputs[name] = made.requires_grad_(master[name].requires_grad)
        return WorkingSet(inputs, owner, master, self._rules.mutates, self._names, self._rules.seed)


class GpuRotation:
    """A few sets in separate storages; all calls of a block use the same set."""

    FEWEST, MOST = 2, 16

    def __init__(self, masters: Sequence[Inputs], rules: Rules, sides: int) -> None:
        self._masters = masters
        size = max(1, nbytes(masters[0]))
        fitting = min(self.MOST, 4 * environment.gpu_cache() // size)
        room = environment.free_gpu_memory() // 4 // size
        self.count = max(self.FEWEST, min(max(3, fitting), room))
        self.bytes = self.count * size
        self._sets, names = [], variation.free_names(masters, rules.outputs)
        for index in range(self.count):
            owner = index % len(masters)
            own = copies(masters[owner])
            self._sets.append(WorkingSet(own, owner, masters[owner], rules.mutates, names, rules.seed))
        self._block, self._is_begun = -1, False

    def begin_block(self) -> None:
        self._block, self._is_begun = self._block + 1, False

    def next_call(self) -> tuple[WorkingSet, Prepare | None]:
        working, is_first, self._is_begun = self.take(), not self._is_begun, True
        if is_first:
            return working, working.renew
        return working, working.restore if working.needs_care else None

    def take(self) -> WorkingSet:
        return self._sets[max(self._block, 0) % self.count]

    def refill(self, working: WorkingSet) -> None:
        owner = (working.master + 1) % len(self._masters)
        working.refill(owner, self._masters[owner])


Rotation = CpuRotation | GpuRotation


def rotation(device: str, masters: Sequence[Inputs], rules: Rules, sides: int) -> Rotation:
    return (CpuRotation if device == "cpu" else GpuRotation)(masters, rules, sides)


def _repeat(template: torch.Tensor, rows: torch.Tensor) -> None:
    """Writes the template to every row, in whole strips, because a broadcast copy of short rows is slower."""
    strip = template.repeat(min(len(rows), max(1, STRIP // len(template))), 1)
    for start in range(0, len(rows), len(strip)):
        part = rows[start : start + len(strip)]
        part.copy_(strip[: len(part)])


def _layout(master: Inputs) -> tuple[dict[str, int], int]:
    """The offset of each tensor in a set, and the set's size. Sets begin at multiples of the alignment."""
    places: dict[str, int] = {}
    end = 0
    for name, value in master.items():
        if isinstance(value, torch.Tensor) and tensor_layout.plain(value) and tensor_layout.span_bytes(value):
            places[name] = tensor_layout.aligned_start(0, end, value)
            end = places[name] + tensor_layout.span_bytes(value)
    return places, end


def _coprime(at_least: int, turn: int) -> int:
    return next(count for count in range(at_least, at_least + turn + 1) if math.gcd(count, turn) == 1)


_kept: dict[str, torch.Tensor] = {}


def _arena(size: int) -> torch.Tensor:
    """One arena for all cases, grown when needed: fresh pages for each case would cost more than filling them."""
    kept = _kept.get("arena")
    if kept is None or kept.numel() < size:
        _kept.clear()
        raw = torch.empty(size + PAGE, dtype=torch.uint8, device="cpu")
        start = -raw.data_ptr() % PAGE
        kept = _kept["arena"] = raw[start : start + size]
    return kept
