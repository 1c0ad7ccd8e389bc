"""What a source leaves when its call returns."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from harness.check import between_calls
from harness.check.between_calls import BetweenCalls
from harness.check.threads import ThreadWatch


@pytest.fixture
def between() -> Iterator[BetweenCalls]:
    profile, trace = sys.getprofile(), sys.gettrace()
    yield BetweenCalls(ThreadWatch())
    sys.setprofile(profile)
    sys.settrace(trace)


def left(between: BetweenCalls) -> str:
    between.look()
    found = between.taken()
    return found.help if found is not None else ""


def test_nothing_is_said_of_a_call_that_leaves_nothing(between: BetweenCalls) -> None:
    with TorchDispatchMode():
        pass
    assert left(between) == ""


def test_a_profile_function_is_named(between: BetweenCalls) -> None:
    sys.setprofile(lambda *_: None)
    assert "a profile function" in left(between)


def test_a_mode_is_named_and_said_once(between: BetweenCalls) -> None:
    with TorchDispatchMode():
        assert "a torch mode" in left(between)
    assert between.taken() is None


def test_a_thread_at_work_is_named(between: BetweenCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_calls, "OFTEN", 1)
    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert any("a running thread" in left(between) for _ in range(20))  # a busy machine may not let it run at once
    finally:
        end.set()
        thread.join()
    assert left(between) == ""


def test_a_thread_that_waits_is_left_alone(between: BetweenCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_calls, "OFTEN", 1)
    end = threading.Event()
    thread = threading.Thread(target=lambda: end.wait(20))
    thread.start()
    time.sleep(0.05)
    try:
        assert left(between) == ""
    finally:
        end.set()
        thread.join()
