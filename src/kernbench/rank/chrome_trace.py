"""A recording from a trace of torch.profiler: kernels go to the code that launched them, by correlation id.

Without a GPU the operators' self time counts as device time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.rank import python_frames
from kernbench.rank.recording import LAUNCHED_BY_GRAPH, UNRECORDED, Frame, Origin, Recording, Tensor
from kernbench.rank.trace_events import events

PYTHON, OPERATOR = "python_function", "cpu_op"
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver"))
DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
CPU_TIME = "There is no GPU in it: device time is the self time of torch's operators on the CPU."
NO_STACKS = "It has no Python stacks: record with with_stack=True to see functions; kernels go to torch's operators."
NO_SHAPES = "It has no shapes: whether a fast path's conditions hold is not known; record with record_shapes=True."
ITEM_BYTES = {"double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2}
Thread = tuple[Any, Any]


class Event(NamedTuple):
    """What is kept of an event: a trace has millions."""

    start: float
    end: float
    kind: str
    name: str
    correlation: Any = None
    largest: Tensor = UNRECORDED


class Launch(NamedTuple):
    operator: str
    frames: tuple[Frame, ...]
    largest: Tensor
    graph: bool


@dataclass
class _Stack:
    """What is going on in one thread."""

    open: list[Event] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    frames: list[Frame | None] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    inner_us: list[float] = field(default_factory=list)
    """Of each operator: the time in the operators that it called."""

    def push(self, event: Event) -> None:
        self.open.append(event)
        if event.kind == PYTHON:
            module = python_frames.MODULE.fullmatch(event.name)
            self.owners.append(module["owner"] if module else self.owners[-1] if self.owners else "")
            self.frames.append(python_frames.parse(event.name, self.owners[-1]))
        elif event.kind == OPERATOR:
            self.operators.append(event)
            self.inner_us.append(0.0)

    def pop(self) -> tuple[Event, float]:
        """The event that ends, and an operator's self time."""
        event, own = self.open.pop(), 0.0
        if event.kind == PYTHON:
            self.owners.pop()
            self.frames.pop()
        elif event.kind == OPERATOR:
            self.operators.pop()
            own = event.end - event.start - self.inner_us.pop()
            if self.inner_us:
                self.inner_us[-1] += event.end - event.start
        return event, max(own, 0.0)

    def named(self) -> tuple[Frame, ...]:
        """The innermost function outside torch, and its caller."""
        return tuple([frame for frame in reversed(self.frames) if frame is not None][:2])


def read(path: Path) -> Recording:
    threads: dict[Thread, list[Event]] = {}
    device: list[tuple[Any, Event]] = []
    has: set[str] = set()
    for item in events(path):
        kind = item.get("cat")
        if item.get("ph") != "X" or not (kind in DEVICE or kind in LAUNCHES or kind in (PYTHON, OPERATOR)):
            continue
        event = _event(path, item)
        has.add(event.kind)
        if event.kind == PYTHON and not python_frames.is_relevant(event.name):
            continue
        if event.kind in DEVICE:
            device.append((item.get("pid"), event))
        else:
            threads.setdefault((item.get("pid"), item.get("tid")), []).append(event)
    if not device and OPERATOR not in has:
        raise UserError(f"{path} has neither kernels nor operators: nothing ran on a device while it was recorded")
    recording = Recording(str(path), on_gpu=bool(device))
    launches: dict[Any, Launch] = {}
    for found in threads.values():
        _follow(recording, found, launches)
    _place(recording, device, launches)
    if PYTHON not in has:
        recording.unknown.append(NO_STACKS)
    if not any(amount.largest.dims for amount in recording.work.values()):
        recording.unknown.append(NO_SHAPES)
    return recording


def _event(path: Path, item: dict[str, Any]) -> Event:
    try:
        start, lasting, name = float(item["ts"]), float(item["dur"]), str(item["name"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} has an event without start, duration or name: {str(item)[:120]}") from None
    given = item.get("args")
    args = given if isinstance(given, dict) else {}
    return Event(start, start + lasting, item["cat"], sys.intern(name), args.get("correlation"), largest(args))


def _follow(recording: Recording, found: Iterable[Event], launches: dict[Any, Launch]) -> None:
    """One thread, event by event: on a GPU where each launch came from, else the time of each operator."""
    stack, spans = _Stack(), []

    def close(before: float) -> None:
        while stack.open and stack.open[-1].end <= before:
            named = stack.named()
            event, own = stack.pop()
            if event.kind == OPERATOR and not recording.on_gpu:
                recording.add(Origin(event.name, event.name, named), own, event.largest)
                if not stack.operators:
                    spans.append((event.start, event.end))

    for event in sorted(found, key=lambda event: (event.start, -event.end)):
        close(event.start)
        if event.kind in LAUNCHES:
            inner = stack.operators[-1] if stack.operators else None
            graph = event.name.startswith(LAUNCHED_BY_GRAPH)
            most = max((operator.largest for operator in stack.operators), key=lambda one: one.size, default=UNRECORDED)
            launches[event.correlation] = Launch(inner.name if inner else "", stack.named(), most, graph)
        else:
            stack.push(event)
    close(float("inf"))
    recording.cover(spans)


def _place(recording: Recording, device: list[tuple[Any, Event]], launches: dict[Any, Launch]) -> None:
    nowhere = Launch("", (), UNRECORDED, False)
    by_device: dict[Any, list[tuple[float, float]]] = {}
    lost = 0.0
    for place, event in device:
        launch = launches.get(event.correlation, nowhere)
        lost += 0.0 if launch is not nowhere else event.end - event.start
        origin = Origin(event.name, launch.operator, launch.frames, graph=launch.graph)
        recording.add(origin, event.end - event.start, launch.largest)
        by_device.setdefault(place, []).append((event.start, event.end))
    for spans in by_device.values():
        recording.cover(spans)
    if not recording.on_gpu:
        recording.unknown.append(CPU_TIME)
    elif lost:
        share = fmt.fine_percent(lost / recording.device_us)
        recording.unknown.append(f"It does not say who launched {share} of the device time.")


def largest(args: dict[str, Any]) -> Tensor:
    """The largest tensor that an operator got."""
    found = UNRECORDED
    for dims, dtype in zip_longest(args.get("Input Dims") or (), args.get("Input type") or ()):
        if isinstance(dims, list) and all(isinstance(extent, int) for extent in dims):
            found = max(found, Tensor(tuple(dims), ITEM_BYTES.get(str(dtype), 1)), key=lambda tensor: tensor.size)
    return found
