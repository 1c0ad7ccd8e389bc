"""The GPU's state as far as it can be looked at without one."""

from __future__ import annotations

import subprocess
import sys

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


def test_two_take_turns(tmp_path: object) -> None:
    with gpu.locked("GPU-test-of-the-lock"):
        code = "from harness.device import gpu\nwith gpu.locked('GPU-test-of-the-lock'): print('in')"
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.7)
    assert other.communicate(timeout=10)[0] == "in\n"
