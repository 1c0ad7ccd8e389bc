"""A fake ncu, and csv files that a real ncu wrote on an H200."""

from __future__ import annotations

from kernbench.diagnosis.counters import Profile, read_csv
from tests import ROOT

HERE = ROOT / "tests" / "ncu"
DATA = HERE / "data"
NCU = HERE / "fake" / "ncu"
BYTES = {
    "copy": 8 * 2**28,
    "strided": 8 * 2**25,
    "spills": 8 * 2**22,
    "shared_limit": 8 * 2**24,
    "register_limit": 8 * 2**26,
    "few_blocks": 8 * 2**23,
    "three": 8 * 2**26,
    "twice": 8 * 2**26,
    "rms_4096x3072": 4 * 4096 * 3072,
    "rms_75348x5120": 4 * 75348 * 5120,
}
"""What the call must move at least: every input once, every output once."""


def profile_of(name: str, **about: object) -> Profile:
    table = read_csv((DATA / f"{name}.csv").read_text())
    return Profile(kernels=table.kernels, needed_bytes=BYTES.get(name), **about)  # type: ignore[arg-type]
