"""The GPU's state as far as it can be looked at without one."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device import gpu


def test_throttle_reasons_in_words_and_a_power_cap_is_none_of_them() -> None:
    assert gpu.GpuState(1980, 0x8 | 0x40).throttled == ("hardware slowdown", "hardware thermal limit")
    assert gpu.GpuState(1500, 0x4).throttled == ()
    assert gpu.GpuState().throttled == ()


def test_without_a_driver_every_answer_is_none() -> None:
    nvml = gpu.Nvml("GPU-00000000-0000-0000-0000-000000000000")
    assert nvml.memory_peak() is None
    assert nvml.foreign_processes() is None
    assert nvml.state().sm_mhz is None


class Driver:
    """Remembers what was asked of it; `aside` bytes of the L2 are set aside for pinned lines."""

    def __init__(self, aside: int, answers: int = 0) -> None:
        self.aside, self.answers = aside, answers
        self.asked: list[Any] = []

    def cuStreamSetAttribute(self, stream: Any, attribute: Any, value: Any) -> int:
        self.asked.append(("stream", stream.value, attribute.value, bytes(value)))
        return 0

    def cuCtxGetLimit(self, where: Any, limit: Any) -> int:
        assert limit.value == 6
        if self.answers == 0:
            ctypes.cast(where, ctypes.POINTER(ctypes.c_size_t))[0] = self.aside
        return self.answers

    def cuCtxSetLimit(self, limit: Any, value: Any) -> int:
        self.asked.append(("limit", limit.value, value.value))
        return 0

    def cuCtxResetPersistingL2Cache(self) -> int:
        self.asked.append("lines")
        return 0


@pytest.mark.parametrize(
    ("driver", "limit"),
    [(Driver(0), []), (Driver(1 << 20), [("limit", 6, 0)]), (Driver(0, answers=1), [("limit", 6, 0)])],
)
def test_everything_that_pins_lines_of_the_l2_is_reset(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, limit: list[Any]
) -> None:
    monkeypatch.setattr(gpu, "_driver", lambda: driver)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: SimpleNamespace(cuda_stream=0xABC))
    gpu.reset_persisting_l2()
    assert driver.asked == [("stream", 0xABC, 1, bytes(64)), *limit, "lines"]


def test_without_a_driver_nothing_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_driver", lambda: None)
    gpu.reset_persisting_l2()


def test_two_take_turns(tmp_path: object) -> None:
    with gpu.locked("GPU-test-of-the-lock"):
        code = "from harness.device import gpu\nwith gpu.locked('GPU-test-of-the-lock'): print('in')"
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.7)
    assert other.communicate(timeout=60)[0] == "in\n"
