"""Blocks and the stop rule, on a clock that reads its times from the calls themselves."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.timing import blocks as timing
from harness.timing import clocks, wall_pass
from harness.timing.input_sets import WorkingSet
from harness.timing.samples import Timing


class FakeRotation:
    """Sets without tensors; counts blocks and calls."""

    count, bytes = 1, 0

    def __init__(self) -> None:
        self.blocks = 0

    def begin_block(self) -> None:
        self.blocks += 1

    def take(self) -> WorkingSet:
        return WorkingSet({}, 0, {}, (), frozenset())

    def next_call(self) -> tuple[WorkingSet, None]:
        return self.take(), None

    def refill(self, working: WorkingSet) -> None: ...


class FakeClock:
    """A call's result is its duration in microseconds."""

    name = "wall"
    extra_us = 0.0

    def __init__(self, batch: int = 1, throttled: int = 0) -> None:
        self.batch, self.throttled, self.measured = batch, throttled, 0

    def measure(self, calls: Sequence[clocks.Call]) -> list[clocks.Measured]:
        self.measured += 1
        if self.measured > 1 and self.throttled > 0:
            self.throttled -= 1
            raise clocks.Unsteady("hardware thermal")
        return [clocks.Measured(call.run() or 1.0) for call in calls]


def bench(
    budget_ms: float = 20.0, beat: Callable[[], None] = lambda: None, batch: int = 1, throttled: int = 0
) -> timing.Bench:
    return timing.Bench(FakeClock(batch, throttled), FakeRotation(), budget_ms, beat)  # type: ignore[arg-type]


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time goes by with looking at it, 20 us each look: a budget ends the same on a busy machine."""
    now = [0.0]

    def look() -> float:
        now[0] += 20e-6
        return now[0]

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=look, process_time=look))
    return now


def noisy(centre: float, spread: float, seed: int) -> Callable[[], float]:
    source = random.Random(seed)
    return lambda: centre * math.exp(source.gauss(0, spread))


def centre(timed: Timing, other: str = "baseline") -> float:
    found = timed.estimate(other, "solution")
    assert found is not None
    return found.centre


def test_the_times_of_blocks_that_are_looked_at_do_not_count() -> None:
    orders, looked = list[str](), list[bool]()
    made = bench(budget_ms=5.0)
    made.looked_at, made.lot = 40, random.Random(1)

    def side(name: str, us: float) -> Callable[[], float]:
        def call() -> float:
            orders.append(name)
            looked.append(made.spots.is_whole)
            return 50 * us if made.spots.is_whole else us

        return call

    timed = made.run({"baseline": side("baseline", 200.0), "solution": side("solution", 100.0)})
    assert centre(timed) == pytest.approx(math.log(2))
    assert 0 < sum(looked) < len(looked) - sum(looked)
    runs = [(name, len(list(calls))) for name, calls in itertools.groupby(orders[4:-2])]
    assert len({count for _name, count in runs[1:-1]}) == 1  # ABBA all along: nothing tells such a block from another


def test_the_ratio_comes_out() -> None:
    timed = bench().run({"baseline": noisy(200, 0.01, 1), "solution": noisy(100, 0.01, 2)})
    ratio = timed.ratio("baseline", "solution", 0.01)
    assert ratio is not None
    assert ratio.speedup == pytest.approx(2, rel=0.02)
    assert ratio.verdict == "faster"
    assert timed.time_us("solution") == pytest.approx(100, rel=0.02)


def test_time_spent_before_the_first_call_counts_towards_the_budget(ticking: list[float]) -> None:
    def blocks(spent_s: float) -> int:
        made = bench(30.0)
        made.began = ticking[0] - spent_s
        return made.run({"baseline": noisy(200, 0.5, 1), "solution": noisy(100, 0.5, 2)}).blocks

    assert blocks(10.0) == timing.MIN_BLOCKS < blocks(0.0)


def test_quiet_sides_stop_early_and_never_below_the_minimum() -> None:
    timed = bench(1e6).run({"baseline": lambda: 5.0, "solution": lambda: 5.0})
    assert timed.blocks == timing.MIN_BLOCKS
    assert bench(0.0).run({"baseline": noisy(5, 1, 1), "solution": noisy(5, 1, 2)}).blocks == timing.MIN_BLOCKS


def test_noisy_sides_go_on_until_the_budget_is_spent(ticking: list[float]) -> None:
    timed = bench(20.0).run({"baseline": noisy(5, 0.5, 1), "solution": noisy(5, 0.5, 2)})
    assert timed.blocks > timing.MIN_BLOCKS
    assert 20.0 <= ticking[0] * 1000 < 25.0


def test_the_order_of_sides_turns_round() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], float]:
        def call() -> float:
            order.append(name)
            return 1e5

        return call

    bench(0.0).run({name: side(name) for name in ("baseline", "best", "solution")})
    blocks = "".join(name[1] for name in order[6:18])
    assert blocks == "aeooeaaeooea"


def test_a_batch_takes_single_turns_and_whole_blocks() -> None:
    timed = bench(1e6, batch=12).run({"baseline": lambda: 5.0, "solution": lambda: 4.0})
    assert timed.blocks == 24  # one batch alone is not to be trusted
    assert set(timed.samples["baseline"]) == {5.0}
    assert set(timed.samples["solution"]) == {4.0}


def test_what_comes_every_few_calls_sides_with_nobody() -> None:
    """A disturbance of every second call would otherwise always hit the same side."""
    count = iter(range(10**6))
    disturbed = lambda: 110.0 if next(count) % 2 else 100.0  # noqa: E731
    fair = bench(200.0, batch=12)
    fair.lot = random.Random(1)
    timed = fair.run({"baseline": disturbed, "solution": disturbed})
    assert centre(timed) == pytest.approx(0, abs=0.02)


def test_the_tick_of_the_clock_is_seen_through_its_jitter() -> None:
    """Seen on an H200: steps of 32 ns, each told a nanosecond or two to either side."""
    source = random.Random(6)
    ticking = lambda: 0.032 * round(source.gauss(66, 0.4)) + source.choice((0.0, 0.0, 0.001, -0.001))  # noqa: E731
    timed = bench(200.0, batch=12).run({"baseline": ticking, "solution": ticking})
    found = timed.estimate("baseline", "solution")
    assert found is not None
    assert found.half_width >= 0.9 * 0.030 / 4 / 2.112
    fine = bench(200.0, batch=12).run({"baseline": noisy(2.112, 1e-4, 1), "solution": noisy(2.112, 1e-4, 2)})
    found = fine.estimate("baseline", "solution")
    assert found is not None
    assert found.half_width < 0.001


@pytest.mark.parametrize("scatter", [0.3, 1.0, 1.4])
def test_the_interval_knows_that_the_clock_ticks(scatter: float) -> None:
    """The truth lies where it says, wherever between two ticks that is."""
    source, tries, inside = random.Random(int(10 * scatter)), 200, 0
    for number in range(tries):
        truth = 66 + 2 * number / tries
        side = lambda middle: [0.032 * round(source.gauss(middle, scatter)) for _ in range(7)]  # noqa: E731
        blocks = [{"baseline": side(66), "solution": side(truth)} for _ in range(40)]
        found = Timing(rounds=blocks).estimate("baseline", "solution")
        assert found is not None
        inside += found.low <= math.log(66 / truth) <= found.high
    assert inside / tries >= 0.9


def test_each_side_has_the_tick_of_its_own_times() -> None:
    """A baseline of twelve kernels lies on no grid: the solution's ties are spread, and its interval stays open."""
    source, tries, inside = random.Random(7), 60, 0
    record = lambda us: 0.032 * round(source.gauss(us, 0.01) / 0.032) + 0.001 * source.randint(0, 2)  # noqa: E731
    for number in range(tries):
        truth = 2.15 + 0.032 * number / tries
        blocks = [
            {
                "baseline": [sum(record(2.5) for _ in range(12)) for _ in range(7)],
                "solution": [record(truth) for _ in range(7)],
            }
            for _ in range(40)
        ]
        found = Timing(rounds=blocks).estimate("baseline", "solution")
        assert found is not None
        inside += found.low <= math.log(30.012 / (truth + 0.001)) <= found.high
    assert inside / tries >= 0.9


def test_one_call_that_did_nothing_does_not_close_the_interval() -> None:
    source = random.Random(8)
    side = lambda: [0.032 * round(source.gauss(50, 0.4)) for _ in range(7)]  # noqa: E731
    blocks = [{"baseline": side(), "solution": side()} for _ in range(28)]
    before = Timing(rounds=blocks).estimate("baseline", "solution")
    blocks[3]["solution"][2] = timing.LEAST_US
    after = Timing(rounds=blocks).estimate("baseline", "solution")
    assert before is not None
    assert after is not None
    assert after.half_width == pytest.approx(before.half_width, rel=0.2)


def test_what_disturbs_neighbours_in_time_cancels() -> None:
    """They are compared with each other before anything is averaged."""
    count, source = iter(range(10**6)), random.Random(3)
    weather = [source.uniform(1, 3) for _ in range(10**4)]
    side = lambda us: lambda: us * weather[next(count) // 40]  # noqa: E731
    timed = bench(200.0, batch=12).run({"baseline": side(125.0), "solution": side(100.0)})
    ratio = timed.ratio("baseline", "solution", 0.01)
    assert ratio is not None
    assert (ratio.speedup, ratio.high - ratio.low) == pytest.approx((1.25, 0), abs=1e-3)


def test_a_few_calls_far_off_move_nothing_much() -> None:
    source = random.Random(5)
    side = lambda us: lambda: us * (40.0 if source.random() < 0.04 else source.gauss(1, 0.01))  # noqa: E731
    timed = bench(200.0, batch=12).run({"baseline": side(102.0), "solution": side(100.0)})
    assert math.exp(centre(timed)) == pytest.approx(1.02, abs=0.004)


def test_the_last_batch_is_as_long_as_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Ticking(FakeClock):
        """A millisecond of everybody's time for every call."""

        def measure(self, calls: Sequence[clocks.Call]) -> list[clocks.Measured]:
            nonlocal now
            now += 0.001 * len(calls)
            return super().measure(calls)

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now, process_time=lambda: now))
    monkeypatch.setattr(timing, "MAX_CALLS", 1)
    sides = {"baseline": noisy(50, 0.5, 1), "solution": noisy(50, 0.5, 2)}
    for budget_ms, blocks in ((8 + 60.5, 24 + 6), (8 + 52.5, 24), (8 + 10.5, 12)):
        clock: Any = Ticking(batch=12)
        now = 0.0
        timed = timing.Bench(clock, FakeRotation(), budget_ms, lambda: None).run(sides)  # type: ignore[arg-type]
        assert timed.blocks == blocks
        assert now * 1000 <= max(budget_ms, 8 + 24) + 2  # two more calls come after the last batch


class Listing(FakeClock):
    """Remembers what it was asked for."""

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.asked: list[list[clocks.Call]] = []

    def measure(self, calls: Sequence[clocks.Call]) -> list[clocks.Measured]:
        self.asked.append(list(calls))
        return super().measure(calls)


def test_on_a_gpu_two_take_turns_and_never_three() -> None:
    """Three kernels in turns disturb each other, by where they were loaded."""
    clock: Any = Listing(batch=8)
    sides = {"baseline": noisy(240, 0.1, 1), "best": noisy(120, 0.1, 2), "solution": noisy(100, 0.1, 3)}
    timed = timing.Bench(clock, FakeRotation(), 1e4, lambda: None).run(sides)  # type: ignore[arg-type]
    batches = [[call.side for call in calls] for calls in clock.asked]
    assert len(batches) > 2
    assert all({call.side, call.beside} in ({"baseline", "solution"}, {"best", "solution"}) for call in clock.asked[1])
    for batch in batches[1:]:
        others = [name for name in batch if name != "solution"]
        assert [name for name, _ in itertools.groupby(others)] in (["baseline", "best"], ["best", "baseline"])
        assert batch.count("solution") == len(others)
    assert len({batch[0] == "baseline" or batch[1] == "baseline" for batch in batches[1:]}) == 2  # not always first
    assert timed.blocks == len(timed.samples["baseline"]) == len(timed.samples["solution"]) // 2
    for other, speedup in (("baseline", 2.4), ("best", 1.2)):
        assert math.exp(centre(timed, other)) == pytest.approx(speedup, rel=0.03)


def test_very_long_calls_leave_room_to_be_stopped() -> None:
    clock: Any = Listing(batch=8)
    sides = {"baseline": lambda: 4e5, "best": lambda: 1e5, "solution": lambda: 1e5}
    timing.Bench(clock, FakeRotation(), 0.0, lambda: None).run(sides)  # type: ignore[arg-type]
    assert {len(calls) for calls in clock.asked[1:]} == {4}


def test_throttled_batches_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REST_S", 0.0)
    timed = bench(0.0, batch=12, throttled=2).run({"baseline": lambda: 5.0, "solution": lambda: 4.0})
    assert (timed.dropped, timed.unsteady) == (24, "hardware thermal")
    assert timed.blocks == 12
    with pytest.raises(clocks.Unsteady):
        bench(0.0, batch=12, throttled=99).run({"baseline": lambda: 5.0, "solution": lambda: 4.0})


@pytest.mark.parametrize("throttled", [1, 2])
def test_a_gpu_that_is_throttled_in_the_first_calls_is_rested_once(
    monkeypatch: pytest.MonkeyPatch, throttled: int
) -> None:
    """The rest takes nothing from the budget."""
    rests: list[float] = []
    budgets_from: list[float] = []
    now = timing.time.perf_counter()
    monkeypatch.setattr(timing.time, "sleep", rests.append)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now + sum(rests))
    blocks = timing.Bench._blocks
    monkeypatch.setattr(timing.Bench, "_blocks", lambda *words: budgets_from.append(words[-1]) or blocks(*words))
    made = bench(0.0, batch=12, throttled=throttled)
    made.clock.measured = 1  # type: ignore[attr-defined]
    if throttled == 1:
        assert made.run({"baseline": lambda: 5.0, "solution": lambda: 4.0}).blocks == 12
        assert budgets_from == [now + timing.REST_S]
    else:
        with pytest.raises(clocks.Unsteady):
            made.run({"baseline": lambda: 5.0, "solution": lambda: 4.0})
    assert rests == [timing.REST_S]


def test_a_short_batch_that_is_dropped_is_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(timing.time, "sleep", rests.append)
    monkeypatch.setattr(timing.Bench, "_affordable", lambda self, *_: 3)

    class Throttled(FakeClock):
        def measure(self, calls: Sequence[clocks.Call]) -> list[clocks.Measured]:
            self.throttled = 99 if self.measured == 2 else self.throttled  # after the warm-up and a whole batch
            return super().measure(calls)

    clock: Any = Throttled(batch=12)
    sides = {"baseline": noisy(50, 0.5, 1), "solution": noisy(50, 0.5, 2)}
    timed = timing.Bench(clock, FakeRotation(), 20.0, lambda: None).run(sides)  # type: ignore[arg-type]
    assert len(rests) <= 1 + timing.MOST_DROPPED // 12
    assert timed.blocks == 12  # what was steady is kept


def test_a_drift_cancels() -> None:
    clock = iter(range(10**6))
    drifting = lambda: 100.0 + next(clock)  # noqa: E731
    timed = bench(0.0).run({"baseline": drifting, "solution": drifting})
    assert centre(timed) == pytest.approx(0, abs=0.01)


def test_stopping_comes_through() -> None:
    class Stop(Exception):
        pass

    def beat() -> None:
        raise Stop

    with pytest.raises(Stop):
        bench(beat=beat).run({"solution": lambda: 1.0})


def test_a_side_that_raises_is_named() -> None:
    def bad(**_: Any) -> None:
        raise ValueError("no")

    with pytest.raises(timing.SideFailed) as caught:
        bench().run({"baseline": bad, "solution": lambda: 1.0})
    assert caught.value.side == "baseline"
    assert isinstance(caught.value.__cause__, ValueError)


def test_wall_clock_prepares_outside_the_timed_span(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0]
    monkeypatch.setattr(clocks, "now", lambda: passed[0])

    def takes(nanoseconds: int) -> Callable[[], None]:
        return lambda: passed.__setitem__(0, passed[0] + nanoseconds)

    call = clocks.Call(takes(10**9), takes(5000))
    assert [item.us for item in clocks.WallClock().measure([call, call])] == [5.0, 5.0]


def test_the_floor_of_equal_sides_is_how_far_they_came_apart() -> None:
    assert timing.floor(bench, lambda: 3.0) == 0
    assert 0 < timing.floor(lambda: bench(0.0), noisy(5, 0.2, 3)) < 0.5


def test_a_replaced_clock_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    assert clocks.WallClock().measure([clocks.Call(None, lambda: time.sleep(0.001))])[0].us >= 1000


SHORT_TURN = wall_pass.SETTLING + wall_pass.COUNTED


@pytest.mark.parametrize(
    ("call_us", "left_ns", "calls"),
    [
        (20, wall_pass.WALL_NS, wall_pass.TURNS * SHORT_TURN),
        (5000, wall_pass.WALL_NS, wall_pass.FEWEST_TURNS * 2),
        (20, 700_000, 3 * SHORT_TURN),
        (20, -1e6, wall_pass.FEWEST_TURNS * SHORT_TURN),
    ],
)
def test_the_wall_pass_makes_fewer_calls_of_long_ones_and_where_little_time_is_left(
    monkeypatch: pytest.MonkeyPatch, call_us: int, left_ns: float, calls: int
) -> None:
    now, made = 0, 0

    def run() -> None:
        nonlocal now, made
        now, made = now + call_us * 1000, made + 1

    monkeypatch.setattr(clocks, "now", lambda: now)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    found = wall_pass.medians(["baseline", "solution"], lambda name: clocks.Call(None, run), lambda: None, left_ns)
    assert found == {"baseline": (call_us, call_us), "solution": (call_us, call_us)}
    assert made == 2 * calls


def test_all_turns_are_taken_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 0, 0

    def run() -> None:
        nonlocal now, made
        now, made = now + 35_000_000, made + 1

    monkeypatch.setattr(clocks, "now", lambda: now)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    call = clocks.Call(None, run)
    wall_pass.medians(["baseline", "solution"], lambda name: call, lambda: None, fewest=wall_pass.TURNS)
    assert made == 2 * wall_pass.TURNS * wall_pass.SETTLING


def test_the_wall_of_a_side_is_not_that_of_its_first_calls_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now, before = 0, ["", ""]

    def run(name: str) -> None:
        nonlocal now, before
        now += 20_000 if before == [name, name] else 35_000  # what it needs had left the host's caches
        before = [before[1], name]

    monkeypatch.setattr(clocks, "now", lambda: now)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    found = wall_pass.medians(
        ["baseline", "best", "solution"], lambda name: clocks.Call(None, lambda: run(name)), lambda: None
    )
    assert {time[:2] for time in found.values()} == {(20, 20)}


def test_the_wall_pass_tells_launches_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0

    def passing(us: int) -> None:
        nonlocal now
        now += us * 1000

    monkeypatch.setattr(clocks, "now", lambda: now)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: passing(30))
    found = wall_pass.medians(["solution"], lambda name: clocks.Call(None, lambda: passing(12)), lambda: None)
    assert found == {"solution": wall_pass.HostTime(us=42, launch_us=12)}
