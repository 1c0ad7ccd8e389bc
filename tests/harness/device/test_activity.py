"""Attribution of activity records, the ledger's findings, and the roofline: pure, on made-up records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.device import roofline
from harness.device.activity import Activity, LostRecords, Names, Record, attribute
from harness.device.kineto import Kineto, read
from harness.timing import kernel_ledger

NAMES = Names("mark", "pause")


def record(name: str, start: int, end: int, correlation: int, stream: int = 7, graph: bool = False) -> Record:
    return Record(name, start, end, stream, correlation, graph)


def call(*records: Record) -> Activity:
    return Activity(records, home=7)


class Event:
    """One of the profiler's; older versions of torch do not say its kind in a word."""

    def __init__(self, kind: str, name: str, correlation: int, on_gpu: bool, says_kind: bool) -> None:
        from torch._C._autograd import DeviceType

        self._name, self._correlation = name, correlation
        self.device_type = lambda: DeviceType.CUDA if on_gpu else DeviceType.CPU
        self.start_ns, self.end_ns, self.device_resource_id = (lambda: 1), (lambda: 2), (lambda: 7)
        if says_kind:
            self.activity_type = lambda: kind

    def name(self) -> str:
        return self._name

    def correlation_id(self) -> int:
        return self._correlation


@pytest.mark.parametrize("says_kind", [True, False])
def test_what_ran_on_the_device_is_read_whatever_it_is_called(says_kind: bool) -> None:
    events = [
        Event("cuda_runtime", "cudaGraphLaunch", 1, False, says_kind),
        Event("kernel", "cudaLaunchKernel", 1, True, says_kind),  # a kernel may have any name
        Event("cuda_driver", "cuLaunchKernelEx", 2, False, says_kind),
        Event("gpu_memset", "Memset (Device)", 2, True, says_kind),
        Event("a kind of a later version", "thing", 3, True, says_kind),
        Event("overhead", "Activity Buffer Request", 4, False, says_kind),
    ]
    assert read(events) == [
        record("cudaLaunchKernel", 1, 2, 1, graph=True),
        record("Memset (Device)", 1, 2, 2),
        record("thing", 1, 2, 3),
    ]
    assert read([]) == []


def recorder(alone: list[Event] | Exception) -> tuple[Kineto, list[str]]:
    """One whose profiler answers so when it is asked for the device's records alone, and what it was asked for."""
    asked: list[str] = []

    def enable(_config: object, kinds: set[str]) -> None:
        asked.extend(kinds)
        if kinds == {"device"} and isinstance(alone, Exception):
            raise alone

    made: Any = Kineto.__new__(Kineto)
    made._config, made._everything, made._device_alone, made._other = None, {"both"}, {"both"}, {"device"}
    made._prepare, made._enable = (lambda *_: None), enable
    made._disable = lambda: SimpleNamespace(events=lambda: alone if asked[-1] == "device" else [])
    return made, asked


@pytest.mark.parametrize(
    ("alone", "then"),
    [
        ([Event("kernel", "mark", 5, True, True)], "device"),
        ([Event("kernel", "mark", 0, True, True)], "both"),  # belongs to no launch
        ([], "both"),
        (RuntimeError("not built for this"), "both"),
    ],
)
def test_the_hosts_records_are_left_out_where_the_devices_can_be_had_alone(alone: Any, then: str) -> None:
    made, asked = recorder(alone)
    launched = []
    made.warm(lambda: launched.append(True))
    assert asked == ["both", "device"]
    assert len(launched) == (0 if isinstance(alone, Exception) else 1)
    made.start(host_too=False)
    made.start()
    assert asked[2:] == [then, "both"]


def test_records_go_to_the_call_that_launched_them_whatever_their_stream_and_order() -> None:
    records = [
        record("mark", 0, 11, 1),
        record("late", 900, 950, 3, stream=9),  # runs after everything, launched by the first call
        record("kernel", 12, 20, 2),
        record("pause", 20, 21, 4),
        record("restore", 21, 25, 5),
        record("mark", 25, 31, 6),
        record("kernel", 32, 41, 7),
    ]
    first, second = attribute(records[::-1], NAMES, 2)
    assert first.names == ("kernel", "late")
    assert second.names == ("kernel",)
    assert (first.streams, first.home) == ({7, 9}, 7)


def test_marks_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(LostRecords, match="2 calls left 1 mark "):
        attribute([record("mark", 0, 1, 1)], NAMES, 2)


def test_busy_is_the_union_of_what_the_span_covers() -> None:
    overlapping = call(record("a", 0, 4000, 1), record("b", 2000, 6000, 2), record("c", 9000, 10000, 3))
    assert (overlapping.busy_us, overlapping.span_us) == (7.0, 10.0)
    assert call(record("outer", 0, 5000, 1), record("inner", 1000, 2000, 2)).busy_us == 5.0
    assert call().busy_us == 0


def codes(solution: list[Activity], baseline: list[Activity]) -> list[str | None]:
    return [finding.code for finding in kernel_ledger.findings(solution, baseline)]


def test_an_honest_row_raises_nothing() -> None:
    two = call(record("first", 0, 1, 1), record("second", 1, 2, 2))
    assert codes([two] * 5, [two] * 5) == []
    assert codes([call(record("own", 0, 1, 1, graph=True))] * 3, [call(record("b", 0, 1, 1, graph=True))] * 3) == []


def test_what_makes_a_time_untrue_is_named() -> None:
    own, other = call(record("own", 0, 1, 1)), call(record("baseline", 0, 1, 1))
    assert codes([own, call()], [other]) == ["no_kernel_ran", "uneven_calls"]
    assert codes([call(record("own", 0, 1, 1, stream=13))], [other]) == ["other_stream"]
    assert codes([own, call(*own.records, record("more", 2, 3, 2))], [other]) == ["uneven_calls"]
    assert codes([call(record("void at::native::vectorized_elementwise_kernel", 0, 1, 1))], [other]) == [
        "library_kernels_only"
    ]
    assert codes([call(record("own", 0, 1, 1, graph=True))], [other]) == ["one_sided_graph"]
    assert codes([own], [call(record("b", 0, 1, 1, graph=True))]) == ["one_sided_graph"]


def test_the_ledger_lists_kernels_with_their_mean_time() -> None:
    calls = [
        call(record("a", 0, 2000, 1), record("b", 2000, 3000, 2)),
        call(record("a", 0, 4000, 1), record("b", 0, 1000, 2)),
    ]
    assert [(item.name, item.us) for item in kernel_ledger.kernels(calls)] == [("a", 3.0), ("b", 1.0)]


def test_light_is_a_share_and_beyond_the_bus_is_impossible() -> None:
    traffic = roofline.Traffic(read=4e6, written=4e6)
    assert roofline.fraction(traffic, us=4.0, bandwidth=4e12) == pytest.approx(0.5)
    assert roofline.impossible(traffic, us=1.0, l2_bytes=8 << 20, peak=4.8e12) is None  # writes may still sit in the L2
    finding = roofline.impossible(traffic, us=0.5, l2_bytes=8 << 20, peak=4.8e12)
    assert finding is not None
    assert (finding.code, finding.disqualifying) == ("impossible_time", True)
    assert roofline.impossible(traffic, us=0.001, l2_bytes=0, peak=None) is None
