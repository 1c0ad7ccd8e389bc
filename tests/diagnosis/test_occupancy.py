"""Theoretical occupancy against what ncu itself says of the same launch on an H200."""

from __future__ import annotations

import pytest

from kernbench.diagnosis.occupancy import SmLimits, limits, theoretical
from tests.ncu.kept_csv import DATA, profile_of

NAMES = sorted(path.stem for path in DATA.glob("*.csv") if path.stem != "silent")


@pytest.mark.parametrize("name", NAMES)
def test_as_ncu_says(name: str) -> None:
    kernel = profile_of(name).kernels[0]
    assert kernel.registers
    assert kernel.block
    assert kernel.shared_bytes
    found = theoretical(SmLimits(), int(kernel.registers), int(kernel.shared_bytes) - 1024, int(kernel.block) // 32)
    assert found is not None
    assert found.pct == pytest.approx(kernel.possible_pct)


def test_what_does_not_fit_has_none() -> None:
    assert theoretical(SmLimits(), 32, 300_000, 4) is None
    assert theoretical(SmLimits(), 255, 0, 32) is None
    assert theoretical(SmLimits(), 32, 0, 0) is None


def test_the_limit_is_named() -> None:
    sm = limits((9, 0), 65536, 233472, 2048)
    assert theoretical(sm, 128, 0, 4).limit == "registers"  # type: ignore[union-attr]
    assert theoretical(sm, 16, 100_000, 4).limit == "shared memory"  # type: ignore[union-attr]
    assert theoretical(sm, 16, 0, 1).limit == "block slots"  # type: ignore[union-attr]
    assert limits((8, 6), 65536, 102400, 1536).blocks == 16
