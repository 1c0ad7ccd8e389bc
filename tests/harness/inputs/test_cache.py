"""What the shelf keeps of inputs and truths when there is not room for all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.inputs.cache import RunCache
from harness.run.run_cases import Run
from harness.shared.run_request import Environment, RunRequest
from harness.shared.taskfile import load
from harness.state.process_watch import ProcessWatch
from tests.harness.child import write_task


def shelved(room: int, first: str | None = None, **sizes: int) -> RunCache:
    cache = RunCache()
    cache._room, cache.first_case = room, first
    held = {("task", case, "cpu", "draw"): SimpleNamespace(nbytes=size) for case, size in sizes.items()}
    cache._materials = held  # type: ignore[assignment]
    return cache


def kept(cache: RunCache) -> list[str]:
    return [key[1] for key in cache._materials]


@pytest.mark.parametrize(
    ("room", "first", "left"),
    [
        (200, None, ["a", "b", "c", "d"]),
        (100, None, ["a", "b", "d"]),
        (60, None, ["b", "c", "d"]),
        (60, "a", ["a"]),
        (70, "d", ["b", "c", "d"]),
        (25, "d", ["c", "d"]),
        (3, "d", []),
    ],
)
def test_the_smallest_that_is_enough_goes_and_never_the_first_before_others(
    room: int, first: str | None, left: list[str]
) -> None:
    cache = shelved(room, first, a=60, b=30, c=20, d=5)
    cache.trim()
    assert kept(cache) == left


def test_everything_is_let_go_when_a_case_needs_it() -> None:
    cache = shelved(100, "a", a=60, b=40)
    cache.trim(everything=True)
    assert not kept(cache)


@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")])
def test_what_a_run_answered_first_is_there_for_the_next(order: tuple[str, ...], tmp_path: Path) -> None:
    """The slow checks at its end ask for every case once more."""
    cache, build = RunCache(), str(tmp_path / "build")
    request = RunRequest("r", load(write_task(tmp_path)), str(tmp_path), cases=order, build=build, budget_ms=1.0)
    sizes: dict[str, int] = {}
    for _ in range(3):
        Run(request, Environment(device="cpu"), cache, lambda *_, **__: None, lambda: False, ProcessWatch()).go()
        sizes = sizes or {key[1]: material.nbytes for key, material in cache._materials.items()}
        assert order[0] in kept(cache)
        cache._room = sizes["large"]
    assert set(sizes) == set(order)
    assert kept(cache) == [order[0]]
