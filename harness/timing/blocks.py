"""Blocks of timed calls and the stop rule.

All sides of a case are timed in one pass; a block contains a few calls of every side that alternates in it.

- On a CPU all sides alternate, and their order reverses from block to block (ABBA).
- On a GPU the candidate alternates with one other side at a time. When three sides alternated, the same 2 us kernel
  differed from itself by up to 2.5% until it was reloaded; with two it never did. (Three seem to evict each other from
  the instruction caches, and their load addresses decide which one loses.) The order within each round is random, half
  of the rounds either way: slow drifts cancel in the block's ratios, and a disturbance every few calls cannot favor one
  side.
- The clock gets blocks in batches of its preferred size: one for a wall clock, eight per alternating pair for a
  profiler. The stop rule is evaluated after each batch. Batches in which the GPU was throttled are dropped and counted.
"""

from __future__ import annotations

import gc
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.device.activity import Activity
from harness.inputs.calling import CaseEntry
from harness.shared import stats
from harness.timing.clocks import Call, Clock, Measured, Unsteady
from harness.timing.input_sets import Rotation, WorkingSet
from harness.timing.printed import Printed
from harness.timing.samples import Timing
from harness.timing.spot_checks import SpotChecks

MIN_BLOCKS = max(8, stats.FEWEST_BLOCKS)
MAX_BLOCKS = 400
MAX_CALLS = 32
"""Most calls of one side in a block."""
GOAL_BLOCKS = 32
"""Blocks to divide the budget into, per alternating pair on a GPU."""
LONG_CALL_US = 300.0
LONG_BUDGET = 2.0
"""Factor on the budget for long calls."""
MOST_DROPPED = 48
"""Give up after this many dropped blocks: a GPU that stays throttled is reported, not waited for."""
REST_S = 0.2
LEAST_US = 1e-3
"""Smallest time of a call, for one that ran nothing on the device."""
FEWEST_BATCHES = 2
"""Batches before a tight interval may end the timing, if the budget allows. A single batch may agree with itself by
chance: A/A of 32760x5120 was off by 0.2 and 0.3% after one, by 0.16% after more."""
LONGEST_BATCH_US = 1e6
"""Only between batches can a newer save cancel the run and the step report that it is alive."""
ASK_AGAIN = 1.25
"""The stop rule looks at every call so far, so it runs again only after the blocks have grown by this factor."""
SCRAP = 4
"""A last batch smaller than 1/SCRAP of a full one is not worth starting the clock for."""


class SideFailed(Exception):
    """A timed call of one side raised; `__cause__` is the exception."""

    def __init__(self, side: str) -> None:
        super().__init__(f"{side} failed during timing")
        self.side = side


Sides = Mapping[str, Callable[..., Any]]


class Planned(NamedTuple):
    """One call of a batch, and the block that its time belongs to."""

    block: tuple[int, int]
    """Index of the group of sides, and number of the block."""
    side: str
    call: Call


FirstCalls = Sequence[tuple[Planned, Measured]]


@dataclass
class Bench:
    """Times the sides of one case against each other; `beat` is called between batches and may raise to stop."""

    clock: Clock
    rotation: Rotation
    budget_ms: float
    beat: Callable[[], None]
    candidate: str = "solution"
    lot: random.Random = field(default_factory=random.Random)
    spots: SpotChecks = field(default_factory=SpotChecks)
    looked_at: int = 0
    """Calls of the candidate in blocks at random places whose results are all kept and whose times do not count: on a
    CPU a copy leaves other data in the caches. Their order is that of all blocks."""
    began: float | None = None
    """When the budget started, if not with the first call: on a GPU it includes large copies of inputs."""

    def run(self, sides: Sides) -> Timing:
        with quiet():
            began = time.perf_counter() if self.began is None else self.began
            first, lost = self._first_calls(sides)
            calls, batch, checked = self._block_sizes(sides, first)
            timing = self._blocks(sides, calls, batch, began + lost)
            timing.checked = checked
            timing.last = self._one_more(sides[self.candidate], timing)
        return timing

    def call(self, name: str, function: Callable[..., Any], beside: str = "", is_last_before: bool = False) -> Call:
        """One call of a side on the next input set; `is_last_before`: its candidate's last one before timing."""
        working, prepare = self.rotation.next_call()

        def after(result: Any) -> None:
            self.spots.take(name, result, working, is_last_before)

        return Call(prepare, _bound(name, function, working), name, beside, after)

    def _block_sizes(self, sides: Sides, first: FirstCalls) -> tuple[int, int, Activity | None]:
        """Calls per block and blocks per batch, by the fastest of the first calls. Also returns what the candidate's
        last one ran, whose result is judged."""
        times: dict[str, list[float]] = {name: [] for name in sides}
        checked: Activity | None = None
        for plan, measured in first:
            times[plan.side].append(measured.us)
            checked = measured.activity if plan.side == self.candidate else checked
        slowest = max(min(values) for values in times.values())
        if slowest > LONG_CALL_US:
            self.budget_ms *= LONG_BUDGET
        cost = max(slowest + self.clock.extra_us, 0.1)
        cost *= sum(len(group) for group in self._groups(sides))
        calls = max(1, min(MAX_CALLS, int(self.budget_ms * 1000 / GOAL_BLOCKS / cost)))
        return calls, max(1, min(self.clock.batch, int(LONGEST_BATCH_US / calls / cost))), checked

    def _first_calls(self, sides: Sides) -> tuple[FirstCalls, float]:
        """A few calls of each side, and the seconds lost before: a GPU that is throttled is rested and tried again; the
        second time is reported."""
        began = time.perf_counter()
        try:
            return self._few_of_each(sides), 0.0
        except Unsteady:
            self.beat()
            time.sleep(REST_S)
            lost = time.perf_counter() - began
            return self._few_of_each(sides), lost

    def _few_of_each(self, sides: Sides) -> FirstCalls:
        few = 2 if self.clock.batch == 1 else 4
        planned = [
            Planned((0, 0), name, self.call(name, function, is_last_before=name == self.candidate and left == 0))
            for name, function in sides.items()
            for left in reversed(range(few))
        ]
        return list(zip(planned, self.clock.measure([plan.call for plan in planned]), strict=True))

    def _groups(self, sides: Sides) -> list[list[str]]:
        """Which sides alternate with each other."""
        others = [name for name in sides if name != self.candidate]
        if self.clock.batch == 1 or not others:
            return [list(sides)]
        return [[name, self.candidate] for name in others]

    def _blocks(self, sides: Sides, calls: int, batch: int, began: float) -> Timing:
        timing = Timing(dict.fromkeys(sides, ()), activities={name: [] for name in sides})
        watch, size, groups, asked, looks = Usage(list(sides)), batch, self._groups(sides), 0, 0
        while timing.blocks < MAX_BLOCKS:
            self.beat()
            batch_began = time.perf_counter()
            groups = groups[::-1]
            number = timing.blocks + looks
            if self._look_at_a_block(sides, groups, calls, number):
                looks, began = looks + 1, began + time.perf_counter() - batch_began
                continue
            planned = self._plan(sides, groups, calls, range(number, number + size))
            try:
                measured = self._measure(planned, watch)
            except Unsteady as reason:
                timing.dropped += size
                timing.unsteady = str(reason)
                if timing.dropped > MOST_DROPPED:
                    if timing.blocks >= MIN_BLOCKS:  # the steady ones are enough for an interval
                        break
                    raise
                time.sleep(REST_S)
                size = batch  # small batches would rest a dozen times more often
                continue
            _sort_in(timing, planned, measured, in_rounds=self.clock.batch > 1)
            affordable = self._affordable(began, batch_began, size, batch)
            if timing.blocks >= MIN_BLOCKS and not affordable:
                break
            if timing.blocks >= max(MIN_BLOCKS, ASK_AGAIN * asked):
                if self._sure(timing):
                    break
                asked = timing.blocks
            size = affordable or batch
        timing.busy = watch.processors()
        return timing

    def _look_at_a_block(self, sides: Sides, groups: list[list[str]], calls: int, number: int) -> bool:
        """Sometimes, as the next block; returns whether it was."""
        if self.looked_at <= 0 or self.lot.random() < 0.5:
            return False
        self.looked_at -= calls
        self.spots.is_whole = True
        try:
            self.clock.measure([plan.call for plan in self._plan(sides, groups, calls, range(number, number + 1))])
        finally:
            self.spots.is_whole = False
        return True

    def _plan(self, sides: Sides, groups: list[list[str]], calls: int, numbers: range) -> list[Planned]:
        """A batch of blocks; the order of the sides alternates by block, or is random."""
        planned = []
        for block in itertools.product(range(len(groups)), numbers):
            self.rotation.begin_block()
            group, number = groups[block[0]], block[1]
            order, beside = group[::-1] if number % 2 else group, dict(zip(group, group[::-1], strict=True))
            if self.clock.batch == 1:
                turns = [name for name in order for _ in range(calls)]
            else:
                turns = [name for forth in self._lots(calls) for name in (order if forth else order[::-1])]
            planned += [Planned(block, name, self.call(name, sides[name], beside[name])) for name in turns]
        return planned

    def _lots(self, rounds: int) -> list[bool]:
        """The order of each round in a block: half of them either way, shuffled."""
        ways = [bool(index % 2) for index in range(rounds)]
        self.lot.shuffle(ways)
        return ways

    def _measure(self, planned: Sequence[Planned], watch: Usage) -> list[Measured]:
        if self.clock.batch > 1:
            return self.clock.measure([plan.call for plan in planned])
        measured: list[Measured] = []
        for name, group in itertools.groupby(planned, key=lambda plan: plan.side):
            with watch.of(name):
                measured += self.clock.measure([plan.call for plan in group])
        return measured

    def _affordable(self, began: float, batch_began: float, blocks: int, batch: int) -> int:
        """Blocks that fit in the remaining budget at the last batch's cost per block; 0 if too few to be worthwhile."""
        now = time.perf_counter()
        left, price = self.budget_ms / 1000 - (now - began), (now - batch_began) / blocks
        found = min(batch, int(left / max(price, 1e-9)))
        return found if found * SCRAP >= batch else 0

    def _sure(self, timing: Timing) -> bool:
        if timing.blocks < FEWEST_BATCHES * self.clock.batch:
            return False
        others = [name for name in timing.samples if name != self.candidate]
        if not others:
            return timing.blocks >= GOAL_BLOCKS
        goal = stats.WIDTH_GOAL if self.clock.batch == 1 else stats.WIDTH_GOAL_OF_ROUNDS
        estimates = (timing.estimate(name, self.candidate) for name in others)
        return all(found is not None and found.half_width <= goal for found in estimates)

    def _one_more(self, function: Callable[..., Any], timing: Timing) -> tuple[Any, WorkingSet]:
        """Two calls like the timed ones, on one set whose values change in between; returns the second result. What
        the first prints is counted."""
        working = self.rotation.take()
        with Printed() as printed:
            self._plain(function, working)
        timing.printed = printed.bytes
        self.rotation.refill(working)
        return self._plain(function, working), working

    def _plain(self, function: Callable[..., Any], working: WorkingSet) -> Any:
        working.restore()
        return _bound(self.candidate, function, working)()


class Usage:
    """CPU time and wall time per side."""

    def __init__(self, names: Sequence[str]) -> None:
        self._used, self._passed = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        used, passed = time.process_time(), time.perf_counter()
        yield
        self._used[name] += time.process_time() - used
        self._passed[name] += time.perf_counter() - passed

    def processors(self) -> dict[str, float]:
        return {name: self._used[name] / passed for name, passed in self._passed.items() if passed > 0}


def _sort_in(timing: Timing, planned: Sequence[Planned], measured: Sequence[Measured], in_rounds: bool) -> None:
    """Assigns calls to blocks; a block's time is the robust mean of its calls."""
    blocks: dict[tuple[int, int], dict[str, list[float]]] = {}
    for plan, item in zip(planned, measured, strict=True):
        blocks.setdefault(plan.block, {}).setdefault(plan.side, []).append(max(item.us, LEAST_US))
        if item.activity is not None:
            timing.activities[plan.side].append(item.activity)
    for block in blocks.values():
        for name, values in block.items():
            timing.samples[name] += (stats.interquartile_mean(values),)  # a source cannot edit tuples
        if in_rounds:
            timing.rounds += (MappingProxyType({name: tuple(values) for name, values in block.items()}),)


def _bound(name: str, function: Callable[..., Any], working: WorkingSet) -> Callable[[], Any]:
    inputs = working.inputs
    if isinstance(function, CaseEntry):
        inputs, function = {}, function.bound(inputs)

    def call() -> Any:
        try:
            return function(**inputs)
        except BaseException as problem:
            raise SideFailed(name) from problem

    return call


@contextmanager
def quiet() -> Any:
    """Disables garbage collection while timing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def floor(bench: Callable[[], Bench], function: Callable[..., Any], runs: int = 4) -> float:
    """A/A floor: how far a function deviates from itself."""
    ratios = []
    for _ in range(runs):
        timing = bench().run({"baseline": function, "solution": function})
        found = timing.estimate("baseline", "solution")
        assert found is not None  # a run has at least MIN_BLOCKS
        ratios.append(math.exp(found.centre))
    return stats.floor_of(ratios)
