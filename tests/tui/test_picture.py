"""The README's picture is what the screen shows of the recorded run. KERNBENCH_UPDATE_GOLDENS=1 draws it anew."""

from __future__ import annotations

import html
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.diagnosis.counters import Kernel, Profile
from kernbench.diagnosis.rules import diagnose
from kernbench.events import ProfileReady
from tests import ROOT
from tests.measure import record_screen
from tests.measure.draw_screen import SIZE, draw
from tests.sessions import Watched
from tests.tui.scene import busy_minute

RECORDING = ROOT / "tests" / "measure" / "screen.jsonl"
PICTURE = ROOT / ".github" / "screen.svg"
LARGEST = 300_000


def text(svg: str) -> list[str]:
    """Its lines, without spaces: where they are is said by coordinates."""
    lines: dict[str, str] = defaultdict(str)
    for y, part in re.findall(r'<text [^>]*\by="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        lines[y] += "".join(html.unescape(part).split())
    return list(lines.values())


@pytest.mark.anyio
async def test_the_picture_is_what_the_screen_shows() -> None:
    drawn = await draw(RECORDING, *SIZE)
    if os.environ.get("KERNBENCH_UPDATE_GOLDENS"):
        PICTURE.write_text(drawn, encoding="utf-8")
    assert len(text(drawn)) > SIZE[1] / 2
    assert text(PICTURE.read_text(encoding="utf-8")) == text(drawn)


def test_the_readme_shows_the_picture_and_both_files_are_small() -> None:
    assert "](.github/screen.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert PICTURE.stat().st_size < LARGEST
    assert RECORDING.stat().st_size < LARGEST
    assert "@font-face" not in PICTURE.read_text(encoding="utf-8")  # they would be fetched from outside


def test_the_recording_names_no_machine() -> None:
    recording = RECORDING.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.])/(?!home/dev/)(?:home|root|tmp|work|usr|opt|mnt)/[^\s\"]*", recording) == []
    assert re.findall(r'"(?:host|uuid)":"[^"]+"', recording) == []


@pytest.mark.anyio
async def test_a_session_is_recorded_and_drawn(
    watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_screen, "REST_SECONDS", 0.1)
    path = tmp_path / "toy.jsonl"
    path.write_text(await record_screen.record(watched().session), encoding="utf-8")
    kernel = Kernel("toy_kernel", duration_us=100.0, sm_pct=35.0, dram_pct=88.0)
    profile = Profile((kernel,), case="b", at=json.loads(path.read_text().splitlines()[0])["now"])
    said = [ProfileReady("b", profile, diagnose(profile)), *busy_minute()]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record_screen.tagged(item)) + "\n" for item in said)
    shown = text(await draw(path, *SIZE))
    for words in ("6/6passed", "toy_kernel", "NVIDIAH200", "confirmedasbest"):
        assert any(words in line for line in shown), (words, shown)
    assert next(line for line in shown if line.startswith(">")).startswith(">b")
    narrow, profiled = text(await draw(path, 80, 24)), text(await draw(path, 80, 24, ["3"]))
    assert [any("toy_kernel" in line for line in lines) for lines in (narrow, profiled)] == [False, True]
