"""Whatever ncu prints: kernels with plausible numbers, and a diagnosis of them."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from harness.shared.lines import UNREADABLE
from kernbench.diagnosis.counters import Kernel, Profile, read_csv
from kernbench.diagnosis.rules import diagnose
from kernbench.ncu import profile_text, refusals
from tests.fuzz.user_files import fuzzed, nearly, spoiled
from tests.ncu.kept_csv import DATA, profile_of

TEXTS = [(DATA / f"{name}.csv").read_text() for name in ("three", "rms_auto_units", "silent", "spills")]
CELLS = st.sampled_from(
    ["nan", "inf", "-1", "1e400", "9" * 5000, "0", "", "n/a", "(1, 2, 3)", "é", '"', "1,234.5", "0.0"]
)


@st.composite
def changed_cells(draw: st.DrawFn) -> str:
    """A csv with some of its cells replaced."""
    cells = draw(st.sampled_from(TEXTS)).split('","')
    for _ in range(draw(st.integers(1, 6))):
        cells[draw(st.integers(0, len(cells) - 1))] = draw(CELLS)
    return '","'.join(cells)


def check(text: str) -> None:
    table = read_csv(text)
    for kernel in table.kernels:
        numbers = [getattr(kernel, item.name) for item in fields(Kernel)]
        assert all(math.isfinite(value) for value in numbers if isinstance(value, float))
        assert all(math.isfinite(share) and share >= 0 for share in kernel.stalls.values())
        assert kernel.name
    profile = Profile(table.kernels, skipped=table.skipped, needed_bytes=1e6)
    assert diagnose(profile).sentence
    assert Profile.from_dict(profile.as_dict()) == profile
    table.sides(2)
    refusals.explain(text, "exited with code 1")


@fuzzed(80)
@given(text=st.one_of(changed_cells(), *map(spoiled, TEXTS)))
@example(text='"ID","Kernel Name"\n"",""\n"²","k"\n')
def test_any_csv(text: str) -> None:
    check(text)


@fuzzed(60)
@given(data=nearly(profile_of("three", case="c", source="s").as_dict()))
def test_a_kept_profile(data: Any) -> None:
    """A file of an earlier day, edited since: read, or refused by an exception that its reader expects."""
    try:
        profile = Profile.from_dict(data)
    except UNREADABLE:
        return
    assert diagnose(profile).sentence
    assert profile_text.comparison_lines(profile, profile_of("three"))
