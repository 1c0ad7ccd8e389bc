"""The numbers of the guide's page about trust, from the code that they are about."""

from __future__ import annotations

from harness.check import between_calls, guard
from harness.device import cpu_bandwidth
from harness.inputs import variation
from harness.run import case_timing, confirmation, slow_checks
from harness.timing import first_touch, kernel_ledger, spot_checks, wall_check
from tests import ROOT

TEXT = " ".join((ROOT / "src" / "kernbench" / "guide" / "trust.md").read_text(encoding="utf-8").split())
SPELLED = {3 / 4: "three quarters", 2: "two", 4: "four", 8: "eight", 16: "sixteenth"}


def test_checks() -> None:
    assert f"have {guard.BORDER >> 10} KiB of a known pattern" in TEXT
    assert f"values {slow_checks.WIDE:.0f} times as wide" in TEXT
    assert f"then {slow_checks.WIDER:.0f} times as wide" in TEXT
    assert f"up to {slow_checks.WIDE:.0f} times, not more" in TEXT
    assert f"one element in {variation.SHARE} of every" in TEXT
    assert f"a few in every {variation.CHUNK}," in TEXT
    assert f"has {SPELLED[variation.OUTLIERS]} wide values among usual ones" in TEXT


def test_timed_calls() -> None:
    assert f"wholly up to {spot_checks.WHOLE >> 20} MB" in TEXT
    few, many = SPELLED[case_timing.FEWEST_KEPT].title(), SPELLED[case_timing.MOST_KEPT]
    assert f"{few} to {many} results of a row, by their size, chosen at random" in TEXT
    assert f"up to {SPELLED[case_timing.LOOKED_AT]} sets of inputs" in TEXT
    assert f"a {SPELLED[case_timing.ROOM]} of the free memory" in TEXT
    assert f"after one call in {SPELLED[between_calls.OFTEN]}" in TEXT


def test_times() -> None:
    assert f"more than {SPELLED[kernel_ledger.LESS_IN_MOST]} of the calls" in TEXT
    longer, share = first_touch.LONGER - 1, SPELLED[first_touch.IN_MOST]
    assert f"over {longer:.0%} longer than the others in {share} of the blocks" in TEXT
    assert f"One in {1 / first_touch.HONEST:.0f} first calls".replace(" 5 ", " five ") in TEXT
    assert f"one row of {1 / first_touch.RARE:,.0f}" in TEXT
    assert f"both sides need {wall_check.SHORTEST_US:.0f} us or more" in TEXT
    assert f"Below {wall_check.SHORTEST_US:.0f} us" in TEXT
    assert f"reads {cpu_bandwidth.LEAST_READ >> 10} KB or more" in TEXT
    assert f"at least {cpu_bandwidth.SHARE:.0%} of the time" in TEXT


def test_confirmations() -> None:
    assert f"gets {confirmation.ALL} calls or more, at least {confirmation.MOST} of each case" in TEXT
    cpu, gpu = (f"{confirmation.SLOWER[device] - 1:.0%}" for device in ("cpu", "cuda"))
    assert f"takes {cpu} longer next to the source than it did alone (on a GPU {gpu})" in TEXT
    least = SPELLED[confirmation.FEWEST]
    assert f"into {confirmation.CASE_BYTES >> 20} MB per case, as many as do, and at least {least}" in TEXT
