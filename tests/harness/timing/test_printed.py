"""What a call prints is counted, reaches its stream, and leaves the streams as they were."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from harness.timing import printed
from harness.timing.printed import Printed

CRASHING = """
import ctypes
from harness.timing.printed import Printed
with Printed():
    print("lost with the process")
    ctypes.string_at(0)
"""


def test_what_is_printed_is_counted_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with Printed() as output:
        os.write(1, b"out ")
        os.write(2, b"err\n")
    os.write(2, b"afterwards\n")
    assert output.bytes == 8
    assert capfd.readouterr() == ("", "out err\nafterwards\n")


def test_a_flood_is_cut_and_an_error_goes_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "PASSED_ON", 10)
    output = Printed()
    with contextlib.suppress(ValueError), output:
        os.write(1, b"x" * 1000)
        raise ValueError
    assert output.bytes == 1000
    assert capfd.readouterr().err == "x" * 10


def test_a_crash_is_still_reported() -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING], capture_output=True, text=True, timeout=60)
    assert "Segmentation fault" in done.stderr
    assert "in string_at" in done.stderr


def test_without_a_file_in_memory_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with Printed() as output:
        pass
    assert output.bytes == 0
