"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes

import pytest

from kernbench.machine import freed_memory


def test_a_c_library_that_cannot_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    freed_memory.give_back()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    freed_memory.give_back()
