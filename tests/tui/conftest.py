from __future__ import annotations

import pytest

from kernbench.tui.panes import gpu, output
from tests.tui.scene import FakeEngine


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the tests' time would be waiting: for printed lines to be painted, and by Textual for an idle moment."""
    monkeypatch.setattr(output, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.006)


@pytest.fixture(autouse=True)
def a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the tests run."""
    monkeypatch.setattr(gpu, "looks_present", lambda: True)
