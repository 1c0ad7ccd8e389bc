from __future__ import annotations

import pytest

from kernbench.tui import log
from tests.tui.scene import FakeEngine


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(autouse=True)
def log_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that wait a quarter of a second before they are painted would make up most of the tests' time."""
    monkeypatch.setattr(log, "FLUSH_SECONDS", 0.01)
