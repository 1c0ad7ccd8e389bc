"""ncu's csv -> Profile: units, dashes, names, sides; and nothing wrong shown as right whatever the text is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kernbench.diagnosis.counters import Kernel, Profile, Table, read_csv, short_name
from kernbench.diagnosis.metrics import METRICS, NAMES
from tests.ncu.kept_csv import DATA, profile_of

FILES = sorted(path.stem for path in DATA.glob("*.csv"))


def test_every_metric_of_the_summary_is_there_on_an_h200() -> None:
    kernel = profile_of("rms_4096x3072").kernels[0]
    assert [metric.field for metric in METRICS if getattr(kernel, metric.field) is None] == []
    assert kernel.name == "_rms_norm"
    assert kernel.duration_us == pytest.approx(13.44)
    assert kernel.registers == 38
    assert (kernel.grid, kernel.block, kernel.sms) == (4096, 256, 132)
    assert kernel.bytes_moved == 30456064
    assert kernel.limits == ["registers"]
    assert [name for name, _ in kernel.top_stalls] == ["long_scoreboard", "barrier", "not_selected"]


def test_units_are_read_per_value() -> None:
    """The same kernel with the units that ncu picks by itself: us, Mbyte, Kbyte/block, Ghz."""
    kernel = profile_of("rms_auto_units").kernels[0]
    assert kernel.duration_us == pytest.approx(47.04)
    assert kernel.bytes_read == pytest.approx(100_684_800)
    assert kernel.shared_bytes == pytest.approx(1056)
    assert kernel.sm_hz == pytest.approx(1.957308e9)
    assert kernel.waves == pytest.approx(15.52)


def test_shares_of_waiting_add_up() -> None:
    for name in FILES:
        for kernel in profile_of(name).kernels:
            assert sum(kernel.stalls.values()) == pytest.approx(1.0, abs=0.08), name


def test_three_kernels_are_three() -> None:
    profile = profile_of("three")
    assert [kernel.name for kernel in profile.kernels] == [
        "vectorized_elementwise_kernel",
        "launch_clamp_scalar",
        "vectorized_elementwise_kernel",
    ]
    assert profile.duration_us == pytest.approx(124.64 + 125.984 + 125.792, abs=0.1)
    assert profile.share == pytest.approx(1 / 3, abs=0.01)


def test_an_unknown_metric_or_unit_is_none() -> None:
    text = (DATA / "copy.csv").read_text()
    missing = read_csv(text.replace("gpu__dram_throughput", "gpu__dram_other")).kernels[0]
    assert missing.dram_pct is None
    assert missing.sm_pct is not None
    odd = read_csv(text.replace('"ns"', '"fortnight"')).kernels[0]
    assert odd.duration_us is None
    assert Profile((odd,)).duration_us is None


@pytest.mark.parametrize("cell", ["nan", "inf", "", "n/a", "1,23", "12,34,567", "0x10", "--5", "1.2.3"])
def test_what_is_no_number_is_none(cell: str) -> None:
    text = '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","us"\n' + f'"0","1","k","{cell}"\n'
    assert read_csv(text).kernels[0].duration_us is None


def test_prints_between_the_rows_are_no_rows() -> None:
    lines = (DATA / "three.csv").read_text().splitlines()
    noisy = [each for line in lines for each in (line, 'print "0","1","hello"', '"7","8","9"', "==PROF== x", '"')]
    table = read_csv("\n".join(noisy))
    assert [kernel.name for kernel in table.kernels] == [kernel.name for kernel in profile_of("three").kernels]
    assert table.kernels == profile_of("three").kernels


@pytest.mark.parametrize("name", ["three", "rms_4096x3072", "silent"])
def test_a_truncated_file_loses_rows_and_never_changes_one(name: str) -> None:
    text = (DATA / f"{name}.csv").read_text()
    whole = read_csv(text).kernels
    for end in range(0, len(text), 97):
        kept = read_csv(text[:end]).kernels
        assert kept == whole[: len(kept)]


def test_damage_never_raises() -> None:
    text = (DATA / "three.csv").read_text()
    dice = random.Random(7)
    for _ in range(300):
        piece = list(text)
        for _ in range(dice.randrange(1, 40)):
            piece[dice.randrange(len(piece))] = dice.choice('",\n\0x0\r;é')
        for kernel in read_csv("".join(piece)).kernels:
            assert kernel.duration_us is None or kernel.duration_us >= 0


def test_two_thousand_kernels() -> None:
    lines = (DATA / "copy.csv").read_text().splitlines()
    row = next(line for line in lines if line.startswith('"0"'))
    rest = "\n".join(line for line in lines if not line.startswith('"0"'))
    table = read_csv(rest + "\n" + "\n".join([row] * 2000))
    assert len(table.kernels) == 2000
    assert Profile(table.kernels).duration_us == pytest.approx(2000 * 497.41, rel=1e-3)


def test_sides_are_told_apart_by_the_separator_only() -> None:
    table = read_csv((DATA / "three.csv").read_text())
    separator = Kernel("spin_kernel", "at::cuda::<unnamed>::spin_kernel(long)")
    both = Table((*table.kernels[:2], separator, table.kernels[2]))
    assert both.sides(2) == [table.kernels[:2], table.kernels[2:]]
    assert both.sides(1) is None
    assert table.sides(2) is None


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<(int)4, at::F<float>, std::array<char *, 1>>(int, T2)", None),
        ("_rms_norm", "_rms_norm"),
        ("at::cuda::<unnamed>::spin_kernel(long)", "spin_kernel"),
        ("void (anonymous namespace)::k<a>(int)", "k"),
        ("void cutlass::Kernel2<cutlass_80_x>(T1::Params)", "Kernel2"),
        ("", "?"),
    ],
)
def test_short_names(full: str, short: str | None) -> None:
    assert short_name(full) == (short or "vectorized_elementwise_kernel")


def test_a_profile_survives_its_json(tmp_path: Path) -> None:
    profile = profile_of("three", case="c", source="s", gpu="g", ncu="1")
    assert Profile.from_dict(profile.as_dict()) == profile


def test_no_metric_is_asked_for_twice() -> None:
    assert len(set(NAMES)) == len(NAMES)
