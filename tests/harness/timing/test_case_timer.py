"""What a row says of its times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.cpu_load import Load
from harness.shared.results import CaseResult
from harness.timing import case_timer, clocks
from harness.timing.case_timer import CaseTimer
from harness.timing.samples import Timed, Timing
from harness.timing.spot_checks import SpotChecks


def pair(other: str, its_us: float, own_us: float) -> dict[str, list[float]]:
    return {other: [its_us, its_us * 1.01] * 4, "solution": [own_us, own_us * 1.01] * 4}


def row(*blocks: dict[str, list[float]], load: Load | None = None) -> CaseResult:
    sides = {name for block in blocks for name in block}
    samples = {name: [block[name][0] for block in blocks if name in block] for name in sides}
    case: Any = SimpleNamespace(id="a")
    request: Any = SimpleNamespace(floors={}, baseline="compile")
    timed = Timed(Timing(samples, list(blocks)), "device", load=load)
    return CaseTimer(request, None).row(case, CaseResult("a", "ok"), timed, None)


def test_the_times_of_a_row_agree_with_its_speedup() -> None:
    """The same kernel is slower next to the best than next to the baseline."""
    blocks = [pair("baseline", 1.9, 1.5), pair("best", 1.77, 1.77)] * 12
    found = row(*blocks)
    assert found.solution_us is not None
    assert found.baseline_us is not None
    assert found.speedup == pytest.approx(1.9 / 1.5, rel=1e-3)
    assert found.baseline_us / found.solution_us == pytest.approx(found.speedup, rel=0.01)
    assert found.vs_best is not None
    assert found.vs_best.speedup == pytest.approx(1.0, rel=1e-3)
    assert found.samples is not None
    assert {name: len(times) for name, times in found.samples.items()} == {
        "baseline": 12, "best": 12, "solution": 12, "with_best": 12
    }  # fmt: skip


def test_without_a_baseline_every_time_counts() -> None:
    found = row(*[pair("best", 2.0, 1.0)] * 12)
    assert found.solution_us == pytest.approx(1.005, rel=0.01)
    assert found.samples is not None
    assert sorted(found.samples) == ["best", "solution"]


def unsteady(other: str) -> list[dict[str, list[float]]]:
    return [pair(other, (1.7, 2.0, 2.4)[index % 3], 2.0) for index in range(12)]


UNSTEADY = unsteady("baseline")


@pytest.mark.parametrize(
    ("blocks", "load", "said"),
    [
        (
            UNSTEADY,
            Load(1.84, 2),
            ["other programs kept 1.8 of 2 CPUs busy while this was timed, which makes times unclear"],
        ),
        (UNSTEADY, Load(0.3, 2), []),
        (UNSTEADY, Load(3.0, 64), []),
        (UNSTEADY, None, []),
        ([pair("baseline", 2.0, 1.0)] * 12, Load(1.84, 2), []),  # faster, in spite of them
    ],
)
def test_a_busy_machine_is_the_reason_of_an_unclear_row(
    blocks: list[dict[str, list[float]]], load: Load | None, said: list[str]
) -> None:
    found = row(*blocks, load=load)
    assert found.is_unclear is (blocks is UNSTEADY)
    assert [finding.help.partition(";")[0] for finding in found.findings] == said
    assert all(finding.code == "busy_machine" and not finding.disqualifying for finding in found.findings)


def test_a_row_that_is_unclear_only_against_the_best_is_unclear() -> None:
    found = row(*[pair("baseline", 2.0, 1.0)] * 12, *unsteady("best"), load=Load(2.0, 2))
    assert found.verdict == "faster"
    assert [finding.name for finding in found.findings] == ["busy machine"]


def test_a_row_on_a_gpu_is_timed_under_its_lock_with_most_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    timed = Timed(Timing(), "device")

    @contextmanager
    def locked(uuid: str, beat: Any) -> Iterator[None]:
        done.append(f"lock {uuid}")
        yield
        done.append("unlock")

    class Passes:
        def __init__(self, *words: Any) -> None:
            done.append(words)

        def timed(self) -> Timed:
            done.append("timed")
            return timed

    device: Any = SimpleNamespace(uuid="GPU-1", device="cpu")
    request: Any = SimpleNamespace(
        condition="cold", budget_ms=100.0, task=SimpleNamespace(mutates=(), outputs=(), seeded=False)
    )
    timer, clock, spots = CaseTimer(request, device), clocks.WallClock(), SpotChecks()
    monkeypatch.setattr(case_timer.gpu, "locked", locked)
    monkeypatch.setattr(case_timer.gpu, "reset_persisting_l2", lambda: done.append("reset"))
    monkeypatch.setattr(case_timer.gpu_passes, "GpuPasses", Passes)
    monkeypatch.setattr(timer, "clock", lambda: clock)
    monkeypatch.setattr(case_timer, "rotation", lambda *words: words[0])
    sides, beat = {"solution": lambda x: x}, lambda: None
    assert timer.time(sides, [], beat, spots) is timed
    assert [step for step in done if isinstance(step, str)] == ["lock GPU-1", "reset", "timed", "unlock"]
    ((given_gpu, given_request, given_sides, bench, new_clock),) = [step for step in done if isinstance(step, tuple)]
    assert (given_gpu, given_request, given_sides, new_clock()) == (device, request, sides, clock)
    assert (bench.clock, bench.rotation, bench.beat, bench.spots) == (clock, "cpu", beat, spots)
    assert bench.budget_ms == pytest.approx(72.0)
    assert bench.began is not None
