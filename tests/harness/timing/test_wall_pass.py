"""How long work goes on after the caller's stream is done: on a made-up device with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.timing import clocks, kernel_ledger, wall_pass

EACH_US = 9.0
"""What waiting for one stream takes, even if it is done."""
CALL_US = 30.0


class Device:
    """Streams with work on them: when each ends, and which the host has not waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.us = 0.0
        self.ends: dict[str, float] = {}
        self.calls = 0
        monkeypatch.setattr(clocks, "now", self.now)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        device = self

        class Event:
            def record(self) -> None:
                self.end = device.ends.get("home", 0.0)

            def synchronize(self) -> None:
                device.us = max(device.us, self.end)

        monkeypatch.setattr(torch.cuda, "Event", Event)

    def now(self) -> float:
        self.us += 0.1
        return 1000 * self.us

    def synchronize(self) -> None:
        self.us = max([self.us, *self.ends.values()]) + EACH_US * max(1, len(self.ends))
        self.ends.clear()

    def launch(self, stream: str, us: float) -> None:
        self.ends[stream] = max(self.us, self.ends.get(stream, 0.0)) + us

    def accuses(self, call: Callable[[], None], busy_us: float) -> bool:
        def run() -> None:
            self.calls += 1
            call()

        rest_us = busy_us + kernel_ledger.LATE_US
        late = wall_pass.left_us(lambda: clocks.Call(None, run), lambda: self.launch("home", 1.0), rest_us)
        return kernel_ledger.unjoined(*late, busy_us) is not None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


@pytest.mark.parametrize("streams", [0, 1, 2, 8])
def test_streams_that_are_joined_are_not_late_however_many_there_are(device: Device, streams: int) -> None:
    def joined() -> None:
        for number in range(streams):
            device.launch(f"side {number}", CALL_US)
        device.launch("home", CALL_US + 1)

    assert not device.accuses(joined, CALL_US)


@pytest.mark.parametrize("left_us", [25.0, 100.0, 10_000.0])
@pytest.mark.parametrize("streams", [1, 8])
def test_a_stream_that_nothing_waits_for_is_late(device: Device, left_us: float, streams: int) -> None:
    def left() -> None:
        for number in range(streams):
            device.launch(f"side {number}", CALL_US + left_us)
        device.launch("home", CALL_US)

    assert device.accuses(left, CALL_US + left_us)


def test_one_that_is_left_in_every_other_call_longer_hides_nothing(device: Device) -> None:
    """As long as it rests, or longer: the waits after a rest are no measure of themselves."""

    def left() -> None:
        device.launch("side", CALL_US + (900.0 if device.calls % 4 == 0 else 100.0))
        device.launch("home", CALL_US)

    assert device.accuses(left, CALL_US + 100.0)
