"""Attribution of activity records, the ledger's findings, and the roofline: pure, on made-up records."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device import roofline
from harness.device.activity import Activity, ForgedRecords, LostRecords, Names, Record, attribute
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
    first, second = attribute(records[::-1], NAMES, 2, pauses=1)
    assert first.names == ("kernel", "late")
    assert second.names == ("kernel",)
    assert (first.streams, first.home) == ({7, 9}, 7)
    assert (first.next_ns, second.next_ns) == (20, None)  # the pause, which comes before the next mark


def test_marks_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(LostRecords, match="2 calls left 1 mark "):
        attribute([record("mark", 0, 1, 1)], NAMES, 2)


MARK, PAUSE, OWN = (record(name, 0, 1, 1) for name in ("mark", "pause", "own"))


def numbered(*records: Record) -> list[Record]:
    return [item._replace(correlation=number) for number, item in enumerate(records, 1)]


@pytest.mark.parametrize(
    ("records", "pauses", "problem"),
    [
        ((MARK, OWN, MARK), None, "1 call left 2 marks in the activity records, and kernbench launched 1"),
        ((MARK, OWN, MARK), 0, "1 call left 2 marks"),
        ((MARK, OWN, PAUSE, OWN), 0, "1 call left 1 pause in the activity records, and kernbench launched 0"),
        ((PAUSE, MARK, PAUSE, OWN), 1, "1 call left 2 pauses"),
    ],
)
def test_a_mark_or_pause_too_many_was_launched_by_the_source(
    records: tuple[Record, ...], pauses: int | None, problem: str
) -> None:
    """Everything after it would belong to no call, or to the next one."""
    with pytest.raises(ForgedRecords, match=problem):
        attribute(numbered(*records), NAMES, 1, pauses)


@pytest.mark.parametrize("pauses", [None, 1])
def test_the_pauses_that_were_launched_are_no_forgery(pauses: int | None) -> None:
    (found,) = attribute(numbered(PAUSE, OWN, MARK, OWN), NAMES, 1, pauses)
    assert found.names == ("own",)


def test_a_pause_too_few_was_lost() -> None:
    with pytest.raises(LostRecords, match="1 call left 0 pauses"):
        attribute(numbered(MARK, OWN), NAMES, 1, pauses=1)
    assert not issubclass(ForgedRecords, LostRecords)  # a forgery must not be handled as a loss


def test_busy_is_the_union_of_what_the_span_covers() -> None:
    overlapping = call(record("a", 0, 4000, 1), record("b", 2000, 6000, 2), record("c", 9000, 10000, 3))
    assert (overlapping.busy_us, overlapping.span_us) == (7.0, 10.0)
    assert call(record("outer", 0, 5000, 1), record("inner", 1000, 2000, 2)).busy_us == 5.0
    assert call().busy_us == 0


def codes(solution: list[Activity], baseline: list[Activity], **more: Any) -> list[str | None]:
    return [finding.code for finding in kernel_ledger.findings(solution, baseline, **more)]


def test_an_honest_row_raises_nothing() -> None:
    two = call(record("first", 0, 1, 1), record("second", 1, 2, 2))
    assert codes([two] * 5, [two] * 5) == []
    assert codes([call(record("own", 0, 1, 1, graph=True))] * 3, [call(record("b", 0, 1, 1, graph=True))] * 3) == []


def test_what_makes_a_time_untrue_is_named() -> None:
    own, other = call(record("own", 0, 1, 1)), call(record("baseline", 0, 1, 1))
    assert codes([own, call()], [other]) == ["no_kernel_ran", "uneven_calls"]
    assert codes([own, call(*own.records, record("more", 2, 3, 2))], [other]) == ["uneven_calls"]
    assert codes([call(record("own", 0, 1, 1, graph=True))], [other]) == ["one_sided_graph"]
    assert codes([own], [call(record("b", 0, 1, 1, graph=True))]) == ["one_sided_graph"]


def on_two_streams(end: int, next_ns: int | None) -> Activity:
    """10 us on the caller's stream, and as long on another one up to `end`."""
    records = (record("own", 0, 10_000, 1), record("beside", end - 10_000, end, 2, stream=13))
    return Activity(records, home=7, next_ns=next_ns)


def test_only_work_that_runs_into_the_next_call_is_on_another_stream() -> None:
    joined, late, hardly = (
        on_two_streams(12_000, 12_500),
        on_two_streams(18_000, 12_000),
        on_two_streams(13_000, 12_000),
    )
    assert [item.late_us for item in (joined, late, hardly)] == [0, 6, 1]
    assert codes([joined] * 5, []) == []
    assert codes([hardly] * 5, []) == []  # 1 of 13 us
    assert codes([late] * 3 + [joined] * 2, []) == ["other_stream"]
    assert codes([late] * 2 + [joined] * 2, []) == []
    (found,) = kernel_ledger.findings([late] * 3 + [joined], [])
    assert found.disqualifying
    assert found.help.startswith("in 3 of 4 calls work on another stream was still running")


def test_work_that_fills_the_gpu_is_found_by_an_event() -> None:
    beside, own = on_two_streams(90_000, 90_100), call(record("own", 0, 10_000, 1))
    assert codes([beside] * 5, []) == []
    assert kernel_ledger.has_side_streams([beside] * 3 + [own] * 2)
    assert not kernel_ledger.has_side_streams([beside] * 2 + [own] * 3)
    calls, idle = [beside] * 5, [8.0, 9.0]
    found = kernel_ledger.unjoined([80.0, 75.0, 3.0], idle, calls)
    assert found is not None
    assert found.disqualifying
    assert found.help.startswith("in 2 of 3 calls work on another stream was still running")
    assert kernel_ledger.unjoined([80.0, 5.0, 3.0], idle, calls) is None
    assert kernel_ledger.unjoined([28.0] * 3, idle, calls) is None  # waiting for many streams may take as long
    shared = [8.0, 76.0]  # one wait for nothing took 76 us
    assert kernel_ledger.unjoined([80.0, 75.0, 3.0], shared, calls) is None


def test_after_the_last_call_of_a_batch_nothing_is_late() -> None:
    last = on_two_streams(90_000, None)
    assert last.late_us == 0
    assert codes([last] * 5, []) == []


def test_late_work_of_two_streams_counts_once() -> None:
    beside = [record("beside", 15_000, 25_000, at, stream=13 + at) for at in (2, 3)]
    assert Activity((record("own", 0, 10_000, 1), *beside), home=7, next_ns=12_000).late_us == 10


LIBRARY = "void at::native::vectorized_elementwise_kernel"


@pytest.mark.parametrize(
    ("of_the_library_ns", "libraries", "found"),
    [(9_000, False, ["library_kernels_only"]), (8_990, False, []), (9_000, True, [])],
)
def test_a_librarys_share_of_the_time_decides(of_the_library_ns: int, libraries: bool, found: list[str]) -> None:
    mixed = call(
        record("own", 0, 10_000 - of_the_library_ns, 1), record(LIBRARY, 20_000, 20_000 + of_the_library_ns, 2)
    )
    assert codes([mixed] * 3, [mixed] * 3, libraries=libraries) == found


def test_a_librarys_kernels_are_a_note_with_their_share() -> None:
    (found,) = kernel_ledger.findings([call(record(LIBRARY, 0, 100, 1))] * 3, [])
    assert not found.disqualifying
    assert found.help.startswith(
        f"100% of the time is spent in library kernels ({LIBRARY}); did the solution fall back?"
    )


@pytest.mark.parametrize(
    ("name", "is_a_librarys"),
    [
        ("kernel_cutlass_add_rms_norm_tensorptrbf16gmem_cutlassFloat32_0", False),
        ("void cutlass::device_kernel<Gemm>", True),
        ("cutlass_80_tensorop_bf16_s16816gemm", True),
    ],
)
def test_a_kernel_of_cute_dsl_is_the_users(name: str, is_a_librarys: bool) -> None:
    assert bool(codes([call(record(name, 0, 100, 1))] * 3, [])) == is_a_librarys


def launched(name: str, *grid: int) -> Record:
    sizes = (*grid, 1, 1, 1)[:3]
    return Record(name, 0, 1000, 7, 1, launch=struct.pack("<8i", *sizes, 128, 1, 1, 0, 0))


WHOLE = call(launched("own", 64, 2), launched("sum", 8))
HALF = call(launched("own", 64), launched("sum", 8))


def compared(checked: Activity, *timed: Activity) -> tuple[str | None, str] | None:
    found = kernel_ledger.less_than_checked(checked, timed)
    return None if found is None else (found.code, found.help.partition(" than ")[0])


def test_the_same_work_as_in_the_checked_call_raises_nothing() -> None:
    assert compared(WHOLE, *[WHOLE] * 9) is None
    split = call(launched("own", 64), launched("own", 64), launched("sum", 8))  # as many programs in two launches
    assert compared(WHOLE, *[split] * 9) is None


def test_less_work_than_in_the_checked_call_disqualifies() -> None:
    assert compared(WHOLE, *[HALF] * 9) == ("less_work_timed", "9 of 9 timed calls ran less of `own`")
    assert compared(WHOLE, *[call(launched("own", 64, 2))] * 9) == (
        "less_work_timed",
        "9 of 9 timed calls ran less of `sum`",
    )
    assert compared(WHOLE, *[HALF] * 8, WHOLE) == ("less_work_timed", "8 of 9 timed calls ran less of `own`")
    assert codes([HALF] * 9, [WHOLE] * 9, checked=WHOLE) == ["less_work_timed"]
    (found,) = kernel_ledger.findings([HALF] * 9, [], checked=WHOLE)
    assert found.disqualifying


def test_another_kernel_in_its_place_is_less_work_too() -> None:
    """A kernel that does part of the work may have any name."""
    assert compared(WHOLE, *[call(launched("part", 64, 2), launched("sum", 8))] * 9) == (
        "less_work_timed",
        "9 of 9 timed calls ran less of `own`",
    )


def test_more_work_and_work_that_depends_on_values_is_a_note() -> None:
    more = call(*WHOLE.records, launched("tuned again", 4))
    assert compared(WHOLE, more, *[WHOLE] * 8) == (
        "other_work_timed",
        "1 of 9 timed calls ran `tuned again` more or less",
    )
    assert compared(WHOLE, *[HALF] * 6, *[WHOLE] * 3) == (
        "other_work_timed",
        "6 of 9 timed calls ran `own` more or less",
    )
    found = kernel_ledger.less_than_checked(WHOLE, [more])
    assert found is not None
    assert not found.disqualifying


def test_without_launches_kernels_are_counted() -> None:
    """torch's profiler does not say how a kernel was launched."""
    plain = call(record("own", 0, 1, 1), record("own", 1, 2, 2))
    assert compared(plain, *[plain] * 9) is None
    assert compared(WHOLE, *[call(record("own", 0, 1, 1), record("sum", 1, 2, 2))] * 9) is None
    assert compared(plain, *[call(record("own", 0, 1, 1))] * 9) == (
        "less_work_timed",
        "9 of 9 timed calls ran less of `own`",
    )


@pytest.mark.parametrize(("name", "counts"), [("Memcpy HtoD", False), ("Memcpy DtoH", False), ("Memcpy DtoD", True)])
def test_a_copy_of_parameters_is_not_the_work(name: str, counts: bool) -> None:
    """A source may keep the descriptor of a tensor that it has seen before."""
    checked = call(record(name, 0, 1, 1), *WHOLE.records)
    assert (compared(checked, *[WHOLE] * 9) is not None) is counts


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
