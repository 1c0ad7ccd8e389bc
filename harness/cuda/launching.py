"""Launches on torch's current stream, a few microseconds of Python each."""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import torch_internals
from .arguments import Packed, declared_by


class Kernel:
    """`kernel[grid, block](...)` or `kernel[grid, block, shared](...)`; shared is in bytes."""

    def __init__(self, kernel: Any, name: str) -> None:
        self._kernel, self._name = kernel, name  # the kernel object keeps its image loaded
        self._declared = declared_by(kernel)
        self._launchers: dict[Any, Callable[..., None]] = {}
        self._known = _Known()
        self._shared: dict[int, int] = {}
        """Requested bytes of shared memory by device."""

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        found = self._launchers.get(where)
        if found is None:
            found = self._launchers[where] = self._launcher(*where)
        return found

    def _launcher(self, grid: Any, block: Any, shared: int = 0) -> Callable[..., None]:
        start, known = self._start(grid, block, shared), self._known

        def run(*args: Any) -> None:
            kinds = tuple(map(type, args))
            packed = known.by_kinds.get(kinds) or self._pack(kinds)
            try:
                packed.fill(*args)
            except struct.error:
                packed.fill_unsigned(args)
            start(packed.extra)

        return run

    def prepared(self, grid: Any, block: Any, kinds: Sequence[type], shared: int = 0) -> Callable[..., None]:
        """`kernel[grid, block, shared]` for arguments of these types, without checking them again.

        For callers that know their tensors and pass numbers, int for a pointer: saves 0.7 us for twelve arguments.
        """
        start, mine = self._start(grid, block, shared), _Prepared(tuple(kinds), self._pack)

        def run(*args: Any) -> None:
            packed = mine.packed
            try:
                packed.fill(*args)
            except struct.error:
                packed.fill_unsigned(args)
            start(packed.extra)

        return run

    def _start(self, grid: Any, block: Any, shared: int) -> Callable[[int], None]:
        """Launches on torch's current stream, with the packed arguments at `extra`."""
        where = (*_three(grid), *_three(block), shared)
        driver = _driver()
        # the bindings also take plain numbers as handles, but create an object for each in every call
        launch = functools.partial(driver.cuLaunchKernel, driver.CUfunction(int(self._kernel.handle)), *where)
        stream, device, streams = torch_internals.raw_stream(), torch_internals.current_device(), _streams
        allowed = self._shared
        if shared:  # now, so that a refusal is reported before anything runs
            self._allow(shared, device())

        def start(extra: int) -> None:
            here = device()
            if shared and shared > allowed.get(here, 0):
                self._allow(shared, here)
            (status,) = launch(streams[stream(here)], 0, extra)
            if status:
                raise self._refused(status, where)

        return start

    def _allow(self, shared: int, device: int) -> None:
        if shared > self._shared.get(device, 0):
            _allow_shared(self._kernel, self._name, shared, device)
            self._shared[device] = shared

    def figures(self) -> dict[str, int]:
        """Registers, and bytes of local and shared memory, with what was requested at a launch."""
        names = {"registers": "NUM_REGS", "local_bytes": "LOCAL_SIZE_BYTES", "shared_bytes": "SHARED_SIZE_BYTES"}
        driver, found = _driver(), dict[str, int]()
        for figure, name in names.items():
            attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            device = driver.CUdevice(torch.cuda.current_device())
            status, value = driver.cuKernelGetAttribute(attribute, self._kernel.handle, device)
            if int(status) == 0:
                found[figure] = int(value)
        return {**found, "shared_bytes": found.get("shared_bytes", 0) + max(self._shared.values(), default=0)}

    def _refused(self, status: Any, where: tuple[int, ...]) -> RuntimeError:
        spelled = f"grid {where[:3]}, block {where[3:6]}, {where[6]} bytes of shared memory"
        return RuntimeError(f"{self._name} cannot be launched: {status.name} ({spelled})")

    def _pack(self, kinds: tuple[type, ...]) -> Packed:
        try:
            packed = self._known.by_kinds[kinds] = Packed(kinds, self._declared)
        except TypeError as problem:
            raise TypeError(f"{self._name}: {problem}") from None
        return packed


class _Known(threading.local):
    """Packed arguments per thread: two threads never share a buffer."""

    def __init__(self) -> None:
        self.by_kinds: dict[tuple[type, ...], Packed] = {}


class _Prepared(threading.local):
    """A thread's buffer for one launcher."""

    def __init__(self, kinds: tuple[type, ...], pack: Callable[[tuple[type, ...]], Packed]) -> None:
        self.packed = pack(kinds)


class _Streams(dict[int, Any]):
    """Streams as objects of the bindings, by torch's number."""

    def __missing__(self, number: int) -> Any:
        made = self[number] = _driver().CUstream(number)
        return made


_streams = _Streams()


def _three(extent: Any) -> tuple[int, ...]:
    given = tuple(extent) if isinstance(extent, (tuple, list)) else (extent,)
    if not 1 <= len(given) <= 3 or any(length < 1 for length in given):
        raise ValueError(f"{extent} is not a valid grid or block: pass one to three numbers, each at least 1")
    return (*given, 1, 1)[:3]


def _driver() -> Any:
    """The driver bindings: a launch is one driver call with packed arguments."""
    from cuda.bindings import driver

    return driver


def _allow_shared(kernel: Any, name: str, shared: int, device: int) -> None:
    """More than 48 KiB, including what the kernel declares, must be requested per kernel and GPU."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, shared, kernel.handle, driver.CUdevice(device))
    if int(status) != 0:
        most = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
        limit = f"may use at most {most}" if most else "must use less"
        raise ValueError(f"{name}: {shared} bytes of shared memory is too much; a block on this GPU {limit}")
