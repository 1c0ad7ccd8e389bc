from __future__ import annotations

import pytest

from tests.tui.scene import FakeEngine


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()
