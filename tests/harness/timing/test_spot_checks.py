"""Results of timed calls: kept at random as they were, overwritten before they are let go."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from collections import Counter, OrderedDict

import pytest
import torch

from harness.inputs import variation
from harness.timing import spot_checks
from harness.timing.blocks import Bench
from harness.timing.clocks import Call, WallClock
from harness.timing.input_sets import CpuRotation, Rules, WorkingSet
from harness.timing.spot_checks import SpotChecks
from tests import ROOT

CALLS = """
import resource, torch
from harness.timing.spot_checks import SpotChecks
from harness.worker import _keep_freed_memory
from tests.harness.timing.test_spot_checks import working

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

torch.set_num_threads(1)
_keep_freed_memory()
x, place, spots = torch.randn(12, 32000), working(), SpotChecks(most=8)
spots.take("solution", torch.softmax(x, -1), place, is_last_before=True)
for number in range(60):
    before = pages()
    result = torch.softmax(x, -1)
    new = pages() - before
    spots.take("solution" if number // 4 % 2 else "baseline", result, place)
    del result
    print(new // 64)
"""
"""Prints for each call whether it needed many new pages; its result has 375."""


def working(**inputs: torch.Tensor) -> WorkingSet:
    values = {name: value.clone() for name, value in inputs.items()}
    return WorkingSet(dict(inputs), 0, values, (), frozenset(values))


def test_every_call_is_as_likely_to_be_kept() -> None:
    found: Counter[float] = Counter()
    for _ in range(300):
        spots = SpotChecks()
        for number in range(20):
            spots.take("solution", torch.full((3,), float(number)), working())
        found.update(kept.result[0].item() for kept in spots.kept)
    assert sum(found.values()) == 300 * spot_checks.KEPT
    assert len(found) == 20
    assert max(found.values()) < 4 * min(found.values())


def test_the_last_call_before_timing_is_always_kept() -> None:
    spots = SpotChecks()
    spots.take("solution", torch.ones(3), working(), is_last_before=True)
    for _ in range(50):
        spots.take("solution", torch.zeros(3), working())
    assert spots.before is not None
    assert torch.equal(spots.before.result, torch.ones(3))
    assert len(spots.kept) == 1 + spot_checks.KEPT


def test_a_kept_result_is_a_copy_with_the_lot_of_its_call() -> None:
    values = torch.arange(2048.0)
    place = working(x=values.clone())
    place.renew()
    spots, result = SpotChecks(), place.inputs["x"] * 2
    spots.take("solution", result, place)
    (kept,) = spots.kept
    assert result.isnan().all()
    assert torch.equal(kept.result, variation.varied({"x": values}, kept.lot, kept.names)["x"] * 2)


def test_a_result_in_a_derived_container_is_copied_and_overwritten_too() -> None:
    spots, result = SpotChecks(), OrderedDict(y=torch.ones(3))
    spots.take("solution", result, working())
    (kept,) = spots.kept
    assert kept.result["y"].tolist() == [1.0] * 3
    assert result["y"].isnan().all()


def test_results_of_other_sides_are_overwritten_but_not_kept() -> None:
    spots, result = SpotChecks(), torch.ones(5)
    spots.take("baseline", result, working())
    assert (spots.kept, bool(result.isnan().all())) == ([], True)


def test_what_is_taken_after_the_timed_calls_is_always_kept() -> None:
    spots = SpotChecks()
    for _ in range(9):
        spots.take("solution", torch.zeros(3), working())
    results = [torch.full((3,), float(number)) for number in range(1, 5)]
    for result in results:
        spots.take_also(result, working())
    kept = [call.result[0].item() for call in spots.kept]
    assert kept == [0.0] * spot_checks.KEPT + [1.0, 2.0, 3.0, 4.0]
    assert all(result.isnan().all() for result in results)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="only glibc keeps pages if asked to")
def test_no_call_after_the_first_ones_waits_for_new_pages() -> None:
    """In a process of its own: what malloc does depends on all that was allocated before."""
    run = subprocess.run([sys.executable, "-c", CALLS], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == ["0"] * 60, run.stderr


def test_whole_blocks_find_a_solution_that_is_wrong_at_random() -> None:
    """Two results at random would miss it in one of four rows, and its time is half that of the right one."""
    for seed in range(10):
        lot, spots = random.Random(seed), SpotChecks(more=64)
        rotation = CpuRotation([{"x": torch.randn(64)}], Rules(), 2)
        bench = Bench(WallClock(), rotation, 5.0, lambda: None, lot=random.Random(seed), spots=spots, looked_at=64)
        timing = bench.run({
            "baseline": lambda x: torch.ones(3),
            "solution": lambda x, lot=lot: torch.full((3,), float(lot.random() < 0.5)),
        })  # fmt: skip
        assert {call.result[0].item() for call in spots.kept} == {0.0, 1.0}
        assert len(timing.samples["solution"]) == timing.blocks


def test_an_input_that_is_returned_is_left_alone() -> None:
    place = working(x=torch.ones(8))
    SpotChecks().take("solution", (place.inputs["x"][2:5], torch.ones(3)), place)
    assert torch.equal(place.inputs["x"], torch.ones(8))


def test_nothing_is_overwritten_with_a_warm_cache() -> None:
    result = torch.ones(5)
    SpotChecks(overwrites=False).take("solution", result, working())
    assert torch.equal(result, torch.ones(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool])
def test_every_format_can_be_overwritten(dtype: torch.dtype) -> None:
    result = torch.zeros(64).to(dtype)
    spot_checks.overwrite(result)
    assert (result.view(torch.uint8) == 0xFF).all()


def test_a_large_result_is_overwritten_in_strips_and_one_of_many_wholly(monkeypatch: pytest.MonkeyPatch) -> None:
    result = torch.zeros(3 << 20, dtype=torch.uint8)
    monkeypatch.setattr(spot_checks, "_drawn", lambda below: below - 1)
    spot_checks.overwrite(result)
    assert int((result == 0xFF).sum()) == 12 * spot_checks.STRIP
    monkeypatch.setattr(spot_checks, "_drawn", lambda below: 0)
    spot_checks.overwrite(result)
    assert (result == 0xFF).all()


def test_what_is_between_the_rows_of_a_result_is_left_alone() -> None:
    wide = torch.zeros(8, 8)
    spot_checks.overwrite(wide[:, 2:5])
    assert (int(wide.isnan().sum()), bool(wide[:, 2:5].isnan().all())) == (24, True)


def test_results_with_a_gradient_or_of_inference_mode_can_be_overwritten() -> None:
    with_gradient = torch.ones(4, requires_grad=True) * 2
    with torch.inference_mode():
        inferred = torch.ones(4)
    for result in (with_gradient, inferred):
        SpotChecks().take("solution", result, working())
        assert result.isnan().all()


def test_a_result_too_large_for_its_room_is_not_kept() -> None:
    spots = SpotChecks(most_bytes=100)
    spots.take("solution", torch.ones(1000), working())
    assert spots.kept == []


def test_values_change_before_every_call_on_a_cpu() -> None:
    master = {"x": torch.randn(4096)}
    rotation, lots = CpuRotation([master], Rules(), 1), set()
    for _ in range(20):
        place, prepare = rotation.next_call()
        assert prepare is not None
        prepare()
        lots.add(place.lot)
        assert torch.equal(place.inputs["x"], variation.varied(master, place.lot, place.names)["x"])
    assert len(lots) == 20
    assert torch.equal(place.undone()["x"], place.inputs["x"])


def test_a_mutated_input_is_restored_with_the_values_of_its_lot() -> None:
    master = {"x": torch.randn(4096)}
    rotation = CpuRotation([master], Rules(("x",)), 1)
    place, prepare = rotation.next_call()
    assert prepare is not None
    prepare()
    place.inputs["x"].zero_()
    place.restore()
    assert torch.equal(place.inputs["x"], variation.varied(master, place.lot, place.names)["x"])


def test_a_result_with_an_attribute_is_copied_too() -> None:
    spots, result = SpotChecks(), torch.ones(4)
    result.rows_per_block = 4  # type: ignore[attr-defined]
    spots.take("solution", result, working())
    assert torch.equal(spots.kept[0].result, torch.ones(4))


def test_a_copy_that_is_written_to_afterwards_is_noticed() -> None:
    spots, result = SpotChecks(), torch.ones(5)
    spots.take("solution", result, working())
    (kept,) = spots.kept
    assert kept.is_unchanged
    kept.result[2] = 3.0
    assert not kept.is_unchanged


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_result_that_comes_after_the_call_is_not_in_the_copy(is_whole: bool) -> None:
    """Whatever looks at the process could be made to compute it."""
    result = torch.zeros(8)
    spots = SpotChecks(on_return=lambda is_solution: result.fill_(1.0), more=8, is_whole=is_whole)
    spots.take("solution", result, working())
    assert [call.result.tolist() for call in spots.kept] == [[0.0] * 8]


def test_the_start_of_a_call_is_in_no_variable() -> None:
    """A call could move it."""
    seen: list[set[str]] = []

    def run() -> None:
        seen.append({name for name, value in sys._getframe(1).f_locals.items() if type(value) is int})

    assert len(WallClock().measure([Call(None, run)] * 2)) == 2
    assert seen == [set(), {"end", "start"}]  # those of the call before
