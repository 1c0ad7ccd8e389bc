"""Kept profiles, pairs, evidence, and their text."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernbench.diagnosis.counters import Facts, Profile
from kernbench.diagnosis.rules import diagnose
from kernbench.log import profile_evidence
from kernbench.ncu import profile_text
from kernbench.ncu.drilldown import hot_lines
from kernbench.ncu.profile_store import Profiles
from tests.ncu.kept_csv import DATA, profile_of

NOW = profile_of("rms_75348x5120", case="c", label="75348x5120", source="b" * 64, gpu="NVIDIA H200", ncu="2025.3.1")
THEN = replace(
    profile_of("rms_auto_units", case="c", label="75348x5120", source="a" * 64, gpu="NVIDIA H200", ncu="2025.3.1"),
    side="best",
    at="2026-11-14T10:00:00+00:00",
)


def test_a_profile_is_found_by_source_case_gpu_and_version(tmp_path: Path) -> None:
    kept = Profiles(tmp_path)
    assert kept.newest() == []
    kept.keep(NOW)
    assert kept.find(NOW.source, "c", "NVIDIA H200", "2025.3.1") == NOW
    assert kept.find(NOW.source, "d", "NVIDIA H200", "2025.3.1") is None
    assert kept.find(NOW.source, "c", "NVIDIA H100", "2025.3.1") is None
    assert kept.find(NOW.source, "c", "NVIDIA H200", "2024.1.0") is None
    assert kept.find(NOW.source, "c", "NVIDIA H200", "2025.3.1", full=True) is None


def test_the_newest_fifty_stay_and_reports_go_with_their_profiles(tmp_path: Path) -> None:
    kept = Profiles(tmp_path, kept=3)
    for number in range(5):
        report = tmp_path / "made.ncu-rep"
        report.write_bytes(b"r")
        profile = kept.keep(replace(NOW, source=str(number), full=True), report)
        os.utime(profile.report.replace(".ncu-rep", ".json"), (number, number))
    assert sorted(profile.source for profile in kept.newest()) == ["2", "3", "4"]
    assert len(list(kept.folder.glob("*.ncu-rep"))) == 3
    assert Path(kept.newest()[0].report).is_file()


def test_a_torn_file_is_not_there(tmp_path: Path) -> None:
    kept = Profiles(tmp_path)
    kept.keep(NOW)
    path = next(kept.folder.glob("*.json"))
    for text in ("", "{", "[]", '{"kernels": 3}', "null"):
        path.write_text(text)
        assert kept.newest() == []
        assert kept.find(NOW.source, "c", "NVIDIA H200", "2025.3.1") is None


def test_what_the_log_reads_is_what_was_kept(tmp_path: Path) -> None:
    Profiles(tmp_path).keep(NOW)
    (read,) = profile_evidence.profiles(tmp_path)
    counted = profile_evidence.metrics(read)
    assert counted["registers"] == 39
    assert counted["duration_us"] == pytest.approx(444.736)


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.csv")))
def test_a_summary_fits_sixty_columns(name: str) -> None:
    profile = profile_of(name, case=name, gpu="NVIDIA H200", ncu="2025.3.1")
    for other in (None, THEN):
        lines = profile_text.summary_lines(profile, diagnose(profile), other)
        assert lines
        assert max(map(len, lines)) <= 60


def test_the_summary_as_text() -> None:
    golden = Path(__file__).parent / "golden_summary.txt"
    text = "\n".join(profile_text.summary_lines(NOW, diagnose(NOW))) + "\n"
    text += "\n" + "\n".join(profile_text.summary_lines(NOW, diagnose(NOW), THEN)) + "\n"
    text += "\n" + "\n".join(profile_text.comparison_lines(THEN, NOW)) + "\n"
    text += "\n" + profile_text.markdown(THEN, NOW) + "\n"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_an_unknown_number_is_a_dash() -> None:
    kernel = NOW.kernels[0]
    lines = profile_text.summary_lines(replace(NOW, kernels=(replace(kernel, dram_pct=None),)), diagnose(NOW))
    assert any(line.startswith("DRAM       -  ") for line in lines)


def test_facts_without_counters() -> None:
    profile = Profile(case="c", facts=(Facts("_rms", 40, 0, 2048, 8, 3, 75.0, "registers"), Facts("other")))
    lines = profile_text.summary_lines(profile, diagnose(profile))
    assert lines[0] == "c  solution  no counters"
    assert "_rms: 40 registers, 0 spills," in lines
    assert "  max occupancy 75% (limit: registers)" in lines
    assert "other: - registers, - spills," in lines
    assert profile_text.facts_lines([Facts("k", 1, 1, 0, 1, 1)]) == [
        "k: 1 register, 1 spill,",
        "  0.0 KB shared, 1 warp, 1 stage",
    ]


def test_the_hottest_lines_of_a_real_report() -> None:
    text = (DATA / "page_source.txt").read_text()
    lines = hot_lines(text, Path("/home/dev/kernels/rms_norm"))
    assert (lines[0].file, lines[0].line, lines[0].stall) == ("solution.py", 15, "long_sb")
    assert lines[0].text.startswith("row = tl.load(x + start")
    assert lines[0].samples == 707
    assert lines[0].share == pytest.approx(707 / sum(line.samples for line in lines))
    assert lines[0].sass
    assert lines[1].file.endswith("triton/language/standard.py")
    assert all(len(line) <= 80 for line in profile_text.hot_lines(lines))


def test_a_line_is_named_by_the_users_file_whichever_snapshot_compiled_it(tmp_path: Path) -> None:
    """Triton keeps what it compiled: the line info may name an earlier snapshot, or the folder of another checkout."""
    text = (DATA / "page_source.txt").read_text()
    earlier = text.replace("/home/dev/kernels/rms_norm/", f"/home/x/toy/.kernbench/sources/{'a' * 64}/")
    assert hot_lines(earlier)[0].file == "solution.py"
    (tmp_path / "solution.py").write_text("\n" * 14 + "    " + hot_lines(text)[0].text + "\n")
    assert hot_lines(text, tmp_path)[0].file == "solution.py"
    (tmp_path / "solution.py").write_text("\n" * 14 + "    something else\n")
    assert hot_lines(text, tmp_path)[0].file == "/home/dev/kernels/rms_norm/solution.py"


def test_a_snapshot_that_is_gone_does_not_take_the_text_of_a_line_with_it(tmp_path: Path) -> None:
    text = (DATA / "page_source.txt").read_text()
    words = hot_lines(text)[0].text
    gone = re.sub(rf'"?[^",\n]*{re.escape(words)}"?', "<Unable to open source file>", text)
    gone = gone.replace("/home/dev/kernels/rms_norm/", f"/home/x/toy/.kernbench/sources/{'a' * 64}/")
    (tmp_path / "solution.py").write_text("\n" * 14 + "    " + words + "\n")
    assert (hot_lines(gone, tmp_path)[0].file, hot_lines(gone, tmp_path)[0].text) == ("solution.py", words)
    assert hot_lines(gone)[0].text == ""
    deeper = gone.replace(f"sources/{'a' * 64}/", f"sources/{'a' * 64}/lib/")
    assert (hot_lines(deeper, tmp_path)[0].file, hot_lines(deeper, tmp_path)[0].text) == ("lib/solution.py", "")
    foreign = gone.replace(f"/home/x/toy/.kernbench/sources/{'a' * 64}/", "/opt/vendor/")
    assert (hot_lines(foreign, tmp_path)[0].file, hot_lines(foreign, tmp_path)[0].text) == (
        "/opt/vendor/solution.py",
        "",
    )


def test_a_damaged_source_page_gives_what_it_has() -> None:
    text = (DATA / "page_source.txt").read_text()
    for end in range(0, len(text), 501):
        hot_lines(text[:end])
    assert hot_lines("") == ()
    assert "no line was sampled" in profile_text.hot_lines(())[0]
