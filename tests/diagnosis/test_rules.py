"""Every rule on csv of a kernel that has the fault, taken with a real ncu on an H200."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernbench.diagnosis.counters import Facts, Kernel, Profile
from kernbench.diagnosis.rules import RULES, RULES_OF_COMPUTE, diagnose
from kernbench.diagnosis.techniques import TECHNIQUES
from tests.ncu.kept_csv import DATA, profile_of

EXPECTED = {
    "copy": ("at the limit", "nothing left to gain"),
    "strided": ("bandwidth", "uncoalesced loads"),
    "chase": ("bandwidth", "uncoalesced loads"),
    "spills": ("spills", "spilled from registers"),
    "shared_limit": ("occupancy", "shared memory limits it to 12% of the warps, too few"),
    "register_limit": ("registers", "registers limit it to 19% of the warps, too few"),
    "few_blocks": ("launch", "too few blocks: 94%"),
    "tail": ("launch", "last wave"),
    "conflicts": ("shared memory", "bank conflicts"),
    "compute": ("instructions", "instruction count"),
    "barriers": ("synchronisation", "barriers"),
    "tiny": ("launch", "too little work"),
    "three": ("fusion", "3 kernels pass"),
    "twice": ("bandwidth", "too many bytes: 2.0x"),
    "rms_4096x3072": ("latency", "memory latency"),
    "rms_75348x5120": ("bandwidth", "below what a plain copy reaches"),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_fault_is_named(name: str) -> None:
    bound, words = EXPECTED[name]
    found = diagnose(profile_of(name))
    assert found.bound == bound
    assert words in found.sentence
    assert not found.mixed
    assert 2 <= len(found.evidence) <= 3
    assert 1 <= len(found.tries) <= 3


def test_every_rule_speaks_on_some_real_kernel() -> None:
    profiles = [profile_of(path.stem) for path in sorted(DATA.glob("*.csv"))]
    silent = [rule.__name__ for rule in RULES if not any(p.main and rule(p.main, p) for p in profiles)]
    assert silent == []


def test_loads_that_are_wide_are_not_to_be_widened() -> None:
    assert profile_of("rms_4096x3072").kernels[0].load_bytes_per_lane == 16
    assert "16-byte loads" not in [technique.name for technique in diagnose(profile_of("rms_4096x3072")).tries]


def test_mixed_evidence_is_called_mixed() -> None:
    """A kernel that spills and also keeps the schedulers full: neither explains the other."""
    spills, compute = profile_of("spills").kernels[0], profile_of("compute").kernels[0]
    both = replace(compute, local_loads=spills.local_loads, local_stores=spills.local_stores)
    found = diagnose(Profile((both,)))
    assert found.mixed
    assert found.sentence.startswith("the evidence is mixed: local memory")
    assert "instruction count" in found.sentence


def test_without_numbers_nothing_is_guessed() -> None:
    found = diagnose(Profile((Kernel("k"),)))
    assert (found.bound, found.evidence) == ("unknown", ())
    assert "not enough counters" in found.sentence


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_any_missing_number_is_survived(name: str) -> None:
    profile = profile_of(name)
    kernel = profile.main
    assert kernel is not None
    for field in kernel.__dataclass_fields__:
        if field not in ("name", "full_name", "stalls"):
            assert diagnose(replace(profile, kernels=(replace(kernel, **{field: None}),))).sentence


def test_the_compilers_facts_alone() -> None:
    spilled = diagnose(Profile(facts=(Facts("k", 255, 12, 0, 8, 3),)))
    assert (spilled.bound, spilled.evidence) == ("spills", ("12 spills", "255 registers per thread"))
    low = diagnose(Profile(facts=(Facts("k", 200, 0, 0, 8, 3, 12.5, "registers"),)))
    assert "limited to 12% by registers" in low.sentence
    assert diagnose(Profile()).bound == "unknown"


FEWER_BYTES = [TECHNIQUES[key].name for key in ("one pass", "cache hints", "narrower", "transpose", "fusion")]


@pytest.mark.parametrize("name", ["copy", "strided", "chase", "three", "twice", "rms_75348x5120"])
def test_a_call_that_arithmetic_bounds_is_not_to_move_fewer_bytes(name: str) -> None:
    """The same counters get that advice if the bound is not known or is memory."""
    profile = profile_of(name)
    assert diagnose(replace(profile, bound="memory")) == diagnose(profile)
    assert diagnose(profile).bound in ("bandwidth", "at the limit", "fusion")
    found = diagnose(replace(profile, bound="compute"))
    assert found.bound not in ("bandwidth", "at the limit", "fusion")
    assert not any(technique.name in FEWER_BYTES for technique in found.tries)
    assert not any("bytes" in words for words in (found.sentence, *found.evidence))


def test_idle_pipes_of_a_call_that_arithmetic_bounds() -> None:
    kernel = Kernel("mm", duration_us=100.0, tensor_pct=31.0, fma_pct=4.0, sm_pct=35.0, dram_pct=88.0)
    found = diagnose(Profile((kernel,), bound="compute"))
    assert found.sentence.startswith("arithmetic bounds this call, but its pipes are often idle")
    assert found.evidence == ("tensor pipe 31%", "SM 35%")
    assert [technique.name for technique in found.tries][1:] == [
        "software pipelining (num_stages)",
        "a larger tile per block",
    ]
    scalar = diagnose(Profile((replace(kernel, tensor_pct=0.0),), bound="compute"))
    assert scalar.tries[0].name == "tensor cores"
    busy = diagnose(Profile((replace(kernel, tensor_pct=90.0, sm_pct=92.0),), bound="compute"))
    assert busy.sentence == "at the limit: the tensor cores are busy nearly all the time"


def test_every_other_rule_applies_to_compute_too() -> None:
    left_out = [rule.__name__ for rule in RULES if rule not in RULES_OF_COMPUTE]
    assert left_out == ["scattered", "bandwidth", "several_kernels"]
