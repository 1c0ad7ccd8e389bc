"""Whether device and wall time agree, on made-up records and times."""

from __future__ import annotations

import math

import pytest

from harness.device.activity import Activity, Record
from harness.shared.stats import Estimate
from harness.timing import wall_check
from harness.timing.wall_check import Device, mismatch
from harness.timing.wall_pass import HostTime

Side = tuple[Device, HostTime]


def side(us: float, wall: float, launch: float = 15.0, kernels: int = 1, least: float | None = None) -> Side:
    return Device(us if least is None else least, us, kernels), HostTime(wall, launch)


def found(solution: Side, baseline: Side) -> str | None:
    """The side that is named."""
    ratio = math.log(baseline[0].busy_us / solution[0].busy_us)
    finding = mismatch(solution, baseline, lambda: Estimate(ratio, ratio - 0.01, ratio + 0.01))
    if finding is None:
        return None
    assert (finding.code, finding.disqualifying) == ("device_wall_mismatch", True)
    return finding.help.removeprefix("the ").partition(" ")[0]


FINE = side(1000, 1020)


@pytest.mark.parametrize(
    ("solution", "baseline"),
    [
        (side(500, 520), FINE),
        (side(100, 124, launch=22), FINE),  # a slow wrapper: 10.0x by device time, 8.2x by the wall
        (side(100, 400, launch=390), FINE),  # it waits inside of the call
        (side(500, 900, launch=420), FINE),  # the launches take as long as the work
        (side(600, 690, kernels=40), FINE),  # gaps between kernels
        (side(600, 530, kernels=40), FINE),  # each of them recorded a little too long
        (side(500, 495), FINE),  # within 2% and 2 us
        (side(200, 115, least=100), FINE),  # the values of the wall pass are the fast ones
        (side(500, 420), side(1000, 850)),  # the GPU's clocks were higher for both
        (side(500, 1900), side(1000, 2400)),  # another program on the GPU delays both
        (side(500, 520), side(1000, 1500)),  # the baseline waits for something: not this source's doing
    ],
)
def test_times_that_something_honest_explains_agree(solution: Side, baseline: Side) -> None:
    assert found(solution, baseline) is None


def test_a_side_whose_wall_time_is_shorter_is_named() -> None:
    assert found(side(500, 485), FINE) == "solution"
    assert found(side(500, 520), side(1000, 970)) == "baseline"


def test_a_source_that_waits_longer_than_its_records_explain_is_named() -> None:
    """Half of its work is not in the records."""
    assert found(side(500, 1020), FINE) == "solution"
    assert found(side(500, 590), FINE) == "solution"  # 10% and 23 us are 573, and it was launched after 15
    assert found(side(500, 585), FINE) is None


def test_a_longer_wait_alone_is_not_enough() -> None:
    """The speedups have to differ as well, beyond the interval."""
    solution, baseline = side(500, 590), side(1000, 1080)
    for low, high, is_found in ((2.0, 2.0, False), (1.6, 2.4, False), (2.1, 2.1, True)):
        speedup = Estimate(math.log(2), math.log(low), math.log(high))
        assert (mismatch(solution, baseline, lambda speedup=speedup: speedup) is not None) is is_found  # type: ignore[misc]
    assert mismatch(solution, baseline, lambda: None) is None


def kernel(start_us: float, us: float, stream: int = 7, graph: bool = False) -> Record:
    return Record("own", int(start_us * 1000), int((start_us + us) * 1000), stream, 1, graph)


@pytest.mark.parametrize(
    ("records", "least_us", "busy_us"),
    [
        ([kernel(0, 60), kernel(70, 40)], 100, 100),
        ([kernel(0, 60), kernel(60, 40, stream=13)], 60, 100),  # another stream may overlap
        ([kernel(0, 60, graph=True), kernel(60, 40, graph=True)], 60, 100),  # so may branches of a graph
        ([kernel(0, 60), kernel(60, 40, graph=True)], 60, 100),
    ],
)
def test_only_what_cannot_overlap_adds_up(records: list[Record], least_us: float, busy_us: float) -> None:
    assert wall_check.on_device([Activity(tuple(records), home=7)] * 5) == Device(least_us, busy_us, 2)


def test_the_device_time_is_that_of_a_fast_and_a_slow_call() -> None:
    calls = [Activity((kernel(0, us),), home=7) for us in (100.0, 200.0) * 500]
    calls[0] = Activity((kernel(0, 1.0),), home=7)  # disturbed, one way and the other
    calls[1] = Activity((kernel(0, 9000.0),), home=7)
    assert wall_check.on_device(calls) == Device(100, 200, 1)
    assert wall_check.on_device([Activity()] * 3) is None
    assert wall_check.on_device([]) is None


@pytest.mark.parametrize("streams", [(7, 7), (7, 13)])
def test_calls_shorter_than_a_bound_are_left_out(streams: tuple[int, int]) -> None:
    records = tuple(kernel(30 * place, 30, stream) for place, stream in enumerate(streams))
    calls = [Activity(records, home=7)] * 5
    assert (wall_check.on_device(calls, wall_check.SHORTEST_US) is None) is (streams == (7, 13))
    assert wall_check.on_device(calls) is not None
