"""How often a row is timed on a GPU, and which times and findings it reports: on made-up passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.activity import Activity, ForgedRecords, LostRecords, Record
from harness.timing import clocks, gpu_passes, wall_pass
from harness.timing.blocks import Bench, Sides
from harness.timing.gpu_passes import GpuPasses
from harness.timing.samples import Timed, Timing
from harness.timing.spot_checks import SpotChecks
from harness.timing.wall_pass import HostTime

Pass = Timing | Exception
BASE_US = 100.0
GIVEN_MS = 8.0
NOW = 5.0


def on_the_device(us: float, stream: int = 7) -> Timing:
    """Calls of the baseline take 100 us, of the solution `us`; on another stream than 7, nothing waits for them."""
    took, streams = {"baseline": BASE_US, "solution": us}, {"baseline": 7, "solution": stream}
    calls = {
        name: [Activity((Record("own", 0, int(1000 * took[name]), streams[name], 1),), home=7, next_ns=0)] * 9
        for name in took
    }
    return replace(without_records(us), activities=calls, rounds=({name: (us,) * 4 for name, us in took.items()},) * 9)


def without_records(us: float) -> Timing:
    return Timing({"baseline": (BASE_US,) * 9, "solution": (us,) * 9})


class MadeUpPasses(Bench):
    """Each pass doubles its budget, as one of long calls does, has one call judged, and ends with one more."""

    left: Sequence[Pass] = ()
    ran: Sequence[tuple[str, float, float | None]] = ()

    def run(self, sides: Sides) -> Timing:
        cls = type(self)
        cls.ran = [*cls.ran, (self.clock.name, self.budget_ms, self.began)]
        self.budget_ms *= 2
        working: Any = SimpleNamespace(inputs={}, storages=(), master=0, lot=len(cls.ran), names=frozenset())
        self.spots.take("solution", len(cls.ran), working)
        found, *cls.left = cls.left
        if isinstance(found, Exception):
            raise found
        return replace(found, last=(None, working))

    def call(self, *words: Any) -> Any:
        return None


class Row:
    """A row built from these device passes and wall passes, in order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *host: dict[str, HostTime], device: Sequence[Pass] | None = None
    ) -> None:
        MadeUpPasses.left, MadeUpPasses.ran = device or [on_the_device(BASE_US)], ()
        flush = SimpleNamespace(pause=None)
        gpu: Any = SimpleNamespace(flush=lambda _: flush, nvml=SimpleNamespace(foreign_processes=lambda: 0))
        request: Any = SimpleNamespace(condition="cold", task=SimpleNamespace(libraries=False))
        self.next_set_after: list[int] = []
        self.beats_after: list[int] = []
        self.refilled: list[int] = []
        rotation: Any = SimpleNamespace(
            begin_block=lambda: self.next_set_after.append(len(MadeUpPasses.ran)),
            refill=lambda working: self.refilled.append(working.lot),
        )

        def beat() -> None:
            self.beats_after.append(len(MadeUpPasses.ran))

        bench = MadeUpPasses(named("device"), rotation, GIVEN_MS, beat, spots=SpotChecks(), began=NOW)
        waiting, self.left_ns = list(host), []

        def wall(*words: Any, **fewest: int) -> dict[str, HostTime]:
            self.left_ns += words[3:] or fewest.values()
            words[1]("solution")
            return waiting.pop(0)

        monkeypatch.setattr(clocks, "EventClock", lambda _: named("events"))
        monkeypatch.setattr(gpu_passes.time, "perf_counter", lambda: NOW)
        monkeypatch.setattr(wall_pass, "medians", wall)
        sides: Sides = {"baseline": lambda: None, "solution": lambda: None}
        self.timed: Timed = GpuPasses(gpu, request, sides, bench, lambda: named("new device")).timed()
        assert not waiting
        assert not MadeUpPasses.left
        self.ran, self.judged = MadeUpPasses.ran, [call.result for call in bench.spots.kept]
        self.codes = [finding.code for finding in self.timed.findings]
        self.solution_us = self.timed.samples.time_us("solution")


def named(name: str) -> Any:
    return SimpleNamespace(name=name)


def walls(solution: float, baseline: float = 120.0) -> dict[str, HostTime]:
    return {"baseline": HostTime(baseline, 15.0), "solution": HostTime(solution, 15.0)}


def test_where_device_and_wall_time_agree_each_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(monkeypatch, walls(120.0))
    assert row.codes == []
    assert row.timed.wall == {"baseline": 120.0, "solution": 120.0}
    assert row.ran == [("device", GIVEN_MS, NOW)]
    assert row.left_ns == [pytest.approx(2 * GIVEN_MS * 0.86 / 0.72 * 1e6)]  # the pass took twice what it was given


@pytest.mark.parametrize("wall_us", [90.0, 150.0])
def test_a_mismatch_counts_if_no_two_passes_in_a_row_agree(monkeypatch: pytest.MonkeyPatch, wall_us: float) -> None:
    row = Row(monkeypatch, walls(90.0), walls(wall_us), device=[on_the_device(100)] * 2)
    assert row.codes == ["device_wall_mismatch"]
    assert row.timed.wall == {"baseline": 120.0, "solution": wall_us}


@pytest.mark.parametrize(("wall_us", "baseline_us"), [(150.0, 160.0), (60.0, 90.0)])
def test_a_second_wall_pass_clears_nothing_if_the_baseline_is_off_the_same_way(
    monkeypatch: pytest.MonkeyPatch, wall_us: float, baseline_us: float
) -> None:
    """Another program, or other clocks of the GPU, explain that pass, but not the one before."""
    row = Row(monkeypatch, walls(wall_us), walls(wall_us, baseline_us), device=[on_the_device(100)] * 2)
    assert row.codes == ["device_wall_mismatch"]
    assert Row(monkeypatch, walls(wall_us, baseline_us)).codes == []


def test_the_worker_says_that_it_is_alive_before_every_device_pass_and_every_wall_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = Row(monkeypatch, walls(90.0), walls(90.0), device=[on_the_device(100)] * 2)
    assert row.beats_after == [0, 1, 1, 2]


def test_the_second_device_pass_has_the_sets_that_the_first_had(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(monkeypatch, walls(150.0), walls(120.0), device=[on_the_device(100)] * 2)
    assert row.refilled == [1]
    assert Row(monkeypatch, walls(120.0)).refilled == []


def test_a_second_device_pass_that_agrees_is_what_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernel took 11% longer in some calls than in others, so the passes may see different times."""
    row = Row(monkeypatch, walls(150.0), device=[on_the_device(100), on_the_device(130)])
    assert row.codes == []
    assert row.solution_us == 130
    assert row.judged == [2], "a call of the pass that counts"


def test_a_second_wall_pass_that_agrees_is_what_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes all its turns: the GPU's clocks may have changed between a few long calls."""
    row = Row(monkeypatch, walls(150.0), walls(120.0), device=[on_the_device(100)] * 2)
    assert row.codes == []
    assert row.timed.wall == {"baseline": 120.0, "solution": 120.0}
    assert row.left_ns[1:] == [wall_pass.TURNS]


def test_the_second_device_pass_has_the_time_that_the_first_had(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(monkeypatch, walls(150.0), walls(120.0), device=[on_the_device(100)] * 2)
    assert row.ran == [("device", GIVEN_MS, NOW), ("new device", GIVEN_MS, None)]


def test_no_call_follows_a_device_pass_on_the_set_of_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """That result is still to be judged; if it is in one of the inputs, another call on the set would overwrite it."""
    row = Row(monkeypatch, walls(150.0), device=[on_the_device(100), on_the_device(130)])
    assert row.next_set_after == [1, 2]


@pytest.mark.parametrize("problem", [LostRecords("no marks"), clocks.Unsteady("hardware thermal")])
def test_a_second_device_pass_without_records_clears_nothing(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    passes = [on_the_device(100), problem, without_records(130.0)]
    row = Row(monkeypatch, walls(150.0), walls(150.0), device=passes)
    assert row.codes[-1] == "device_wall_mismatch"
    assert row.ran[-1] == ("events", GIVEN_MS / 0.72, None)
    assert row.timed.clock == "events"


@pytest.mark.parametrize(("wall_us", "codes"), [(49.0, []), (150.0, ["device_wall_mismatch"])])
def test_a_second_device_pass_may_be_short(monkeypatch: pytest.MonkeyPatch, wall_us: float, codes: list[str]) -> None:
    """Below 50 us a mismatch is not looked for; one that was found needs times that agree."""
    device = [on_the_device(58), on_the_device(49)]
    row = Row(monkeypatch, walls(wall_us), *[walls(wall_us)] * len(codes), device=device)
    assert row.codes == codes
    assert Row(monkeypatch, walls(150.0), device=[on_the_device(49)]).codes == []


def test_a_finding_of_the_first_pass_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(monkeypatch, walls(150.0), device=[on_the_device(100, stream=13), on_the_device(130)])
    assert row.codes == ["other_stream"]
    both = Row(monkeypatch, walls(150.0), device=[on_the_device(100, stream=13), on_the_device(130, stream=13)])
    assert both.codes == ["other_stream"]


@pytest.mark.parametrize(
    ("problem", "code", "says"),
    [
        (LostRecords("6 calls left 5 marks in the activity records"), "event_pairs", "6 calls left 5 marks"),
        (ForgedRecords("6 calls left 7 marks"), "forged_records", "6 calls left 7 marks: the source launched"),
        (clocks.Unsteady("hardware thermal"), "not_recovered", "stayed throttled (hardware thermal)"),
    ],
)
def test_a_row_timed_by_event_pairs_says_why(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, code: str, says: str
) -> None:
    row = Row(monkeypatch, walls(150.0), device=[problem, without_records(100)])
    (finding,) = row.timed.findings
    assert (finding.code, finding.disqualifying) == (code, code == "forged_records")
    assert says in finding.help
    assert row.ran == [("device", GIVEN_MS, NOW), ("events", GIVEN_MS / 0.72, None)]
    assert row.judged == [2]
