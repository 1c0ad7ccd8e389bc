"""Results of timed calls: a few, chosen at random, are kept to be judged; all are overwritten before they are let go.

Which results are kept is decided after their calls have returned, so a source cannot tell a judged call from another.
Memory that still holds a result, or a result that a source has kept, is worthless to the next call: it is overwritten,
large ones in strips. In the warm L2 condition nothing is: it would change what is in the cache.
"""

from __future__ import annotations

import ctypes
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.device.gpu import set_bytes
from harness.inputs import structure, tensor_layout
from harness.inputs.tensor_layout import own_methods
from harness.timing.input_sets import WorkingSet

KEPT = 2
"""Results that are kept at random, unless another number is given, and the last one before timing."""
WHOLE = 1 << 20
"""Bytes up to which a result is overwritten wholly."""
STRIP, APART = 4 << 10, 256 << 10
"""Bytes of a strip, and of the piece that it is in."""
WHOLE_AT_RANDOM = 64
"""One of so many large results is overwritten wholly."""
SPARE = 4
"""Blocks of a result's size beyond those that the copies need."""
HEAP, PAGE, ROOM = 32 << 20, 4 << 10, 256 << 20
"""Larger results of a CPU get new pages from the system in any case, and no more is asked for at once."""
BYTE = 0xFF
"""All bits set is NaN in every floating-point format of torch."""

_random, _set, _set_on_gpu, _crc = os.urandom, ctypes.memset, set_bytes, zlib.crc32
"""Bound before any source could replace them."""


@dataclass(frozen=True)
class KeptCall:
    """A copy of what a timed call returned, and how to make its inputs again."""

    result: Any
    mutated: dict[str, torch.Tensor]
    """The inputs that the task mutates, as the call left them."""
    master: int
    lot: int
    names: frozenset[str] = frozenset()
    """Of the inputs that the lot changes."""
    sums: tuple[int, ...] = ()
    """Checksums of the copies when they were made; on a GPU none."""

    @property
    def is_unchanged(self) -> bool:
        """Whether the copies are still as they were made: a source could write to them when its result is freed."""
        return self.sums == _sums(self.result, self.mutated)


@dataclass
class SpotChecks:
    """The calls of one row."""

    mutates: tuple[str, ...] = ()
    """Inputs that a call writes to."""
    overwrites: bool = True
    most_bytes: int = 1 << 62
    """Results are kept only as long as they fit in."""
    on_return: Callable[[bool], None] = lambda is_solution: None
    """Called after every call."""
    most: int = KEPT
    """Results that are kept at random."""
    more: int = 0
    """Results that are kept besides, of whole blocks and after timing."""
    is_whole: bool = False
    """Whether all results are kept: those of a block whose times do not count."""
    before: KeptCall | None = None
    """Of the last call before timing."""
    outputs: tuple[str, ...] = ()
    """The destinations among the inputs that a call writes to."""
    _kept: list[KeptCall] = field(default_factory=list)
    _besides: list[KeptCall] = field(default_factory=list)
    _sets: dict[int, WorkingSet] = field(default_factory=dict)
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> list[KeptCall]:
        return [*([self.before] if self.before is not None else []), *self._kept, *self._besides]

    @property
    def sets(self) -> list[WorkingSet]:
        """Inputs of the calls that were chosen, whether their results could be kept or not."""
        return list({id(working): working for working in self._sets.values()}.values())

    def begin_again(self) -> None:
        """Drops what was kept so far: only the pass that counts is judged. The inputs of all passes are checked."""
        self.before = None
        self._kept.clear()
        self._calls.clear()

    def take(self, side: str, result: Any, working: WorkingSet, is_last_before: bool = False) -> None:
        """Every call of the solution is as likely to be kept as every other. The other sides get the same treatment,
        copies included: what the host does between two calls decides what is in its caches."""
        is_solution = side == "solution"
        if self.is_whole:
            self.take_also(result, working, is_solution)
            return
        self._calls[side] += not is_last_before
        place = _drawn(self._calls[side]) if self._calls[side] > self.most else self._calls[side] - 1
        copied = self._copied(result, working) if is_last_before or place < self.most else None
        self.on_return(is_solution)  # after the copy: during this, a source could compute a result late
        if is_solution and not is_last_before and place < self.most:
            self._sets[place] = working
        if is_last_before:
            self.before = copied
            self._touch_pages(result)
        elif is_solution and copied is not None:
            self._kept[place : place + 1] = [copied]
        del copied
        self._overwrite(result, working)

    def take_also(self, result: Any, working: WorkingSet, is_solution: bool = True) -> None:
        """A result that is kept besides those at random, if it is the solution's."""
        copied = self._copied(result, working)
        self.on_return(is_solution)
        if is_solution and copied is not None:
            self._besides.append(copied)
        del copied
        self._overwrite(result, working)

    def _overwrite(self, result: Any, working: WorkingSet) -> None:
        if not self.overwrites:
            return
        for value in tensors(result):
            if value.untyped_storage().data_ptr() not in working.storages:
                overwrite(value)
        for name in self.outputs:
            overwrite(working.inputs[name])

    def _touch_pages(self, result: Any) -> None:
        """Lets malloc have as many pages as all copies need. Otherwise they would get those of the results before them,
        and timed calls would wait for new ones: on a CPU a softmax of 1.5 MB took 1000 us instead of 400."""
        sizes = [value.nbytes for value in tensors(result) if value.is_cpu and value.nbytes <= HEAP]
        if not sizes or sum(sizes) > self.most_bytes:  # nothing is copied
            return
        count = min(self.most + self.more + SPARE, ROOM // max(1, sum(sizes)))
        for block in [torch.empty(size, dtype=torch.uint8, device="cpu") for size in sizes * count]:
            block[::PAGE].fill_(BYTE)

    def _copied(self, result: Any, working: WorkingSet) -> KeptCall | None:
        if sum(tensor_layout.span_bytes(value) for value in tensors(result)) > self.most_bytes:
            return None
        mutated = {name: tensor_layout.copy(working.inputs[name]) for name in self.mutates}
        kept = structure.plain(result, _copy)
        return KeptCall(kept, mutated, working.master, working.lot, working.names, _sums(kept, mutated))


def _sums(result: Any, mutated: dict[str, torch.Tensor]) -> tuple[int, ...]:
    values = [*tensors(result), *mutated.values()]
    return tuple(_sum(value) for value in values if value.is_cpu and value.numel())


def _sum(value: torch.Tensor) -> int:
    return _crc((ctypes.c_char * tensor_layout.span_bytes(value)).from_address(value.data_ptr()))


def _drawn(below: int) -> int:
    return int.from_bytes(_random(6), "little") % below


def tensors(result: Any) -> Iterator[torch.Tensor]:
    """The plain tensors of a result."""
    if type(result) is torch.Tensor:
        return iter((result,) if tensor_layout.plain(result) else ())
    items = structure.items(result) if structure.is_container(result) else ()
    return (tensor for _key, item in items for tensor in tensors(item))


def _copy(result: Any) -> Any:
    if type(result) is torch.Tensor and tensor_layout.plain(result) and not own_methods(result):
        with torch.inference_mode(result.is_inference()):
            return tensor_layout.copy(result)
    return result


def overwrite(tensor: torch.Tensor) -> None:
    """Sets all bits; in a large tensor, those of a strip at a random place in every piece."""
    if not tensor.numel():
        return
    if not tensor.is_contiguous() and tensor_layout.span(tensor.shape, tensor.stride()) != tensor.numel():
        with torch.inference_mode(tensor.is_inference()):  # what is between is not a result
            tensor.detach().fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 1)
        return
    size, address = tensor.nbytes, tensor.data_ptr()
    count, width = 1, size
    if size > WHOLE and _drawn(WHOLE_AT_RANDOM):
        address, count, width = address + _drawn(APART - STRIP + 1), size // APART, STRIP
    if tensor.is_cuda:
        _set_on_gpu(address, APART, BYTE, width, count)
        return
    for place in range(address, address + count * APART, APART):
        _set(place, BYTE, width)
