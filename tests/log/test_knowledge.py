"""What the logs know: entries by their words, each with what it changed against the best before it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import cli
from kernbench.diagnosis.techniques import TECHNIQUES
from kernbench.log import knowledge
from kernbench.log.knowledge import Tried
from tests.log.logs import make_log, write_entries


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    write_entries(make_log(folder / "kernels" / "toy", 8, 3))
    return folder


def known(project: Path) -> list[Tried]:
    return knowledge.entries([project / "kernels" / "toy"])


def test_an_entry_is_compared_with_the_best_before_it(project: Path) -> None:
    first, *later = known(project)
    assert (first.best, first.gain, first.row, first.times) == (None, None, None, "")
    best = first.number
    for item in later:
        assert item.best is not None
        assert item.best.number == best
        best = item.number if item.outcome == "improved" else best
    item = later[0]
    row, best_entry = item.row, item.best
    assert row is not None
    assert best_entry is not None
    assert f"| {row.label} | " in item.text
    assert f"| {knowledge.fmt.microseconds(row.before)} | " in best_entry.text
    assert f"| {knowledge.fmt.microseconds(row.after)} | " in item.text
    assert (row.after < row.before) == ((item.gain or 0) > 1)


def test_entries_of_another_device_are_compared_with_nothing(project: Path, tmp_path: Path) -> None:
    log = tmp_path / "toy" / "ITERATIONS.md"
    log.parent.mkdir()
    text = (project / "kernels" / "toy" / "ITERATIONS.md").read_text()
    head, *entries = text.split("\n## ")
    entries[1] = entries[1].replace("NVIDIA H200", "NVIDIA B200")
    log.write_text("\n## ".join([head, *entries]))
    first, other, third, *_rest = knowledge.entries([log.parent])
    assert (other.device, other.best) == ("NVIDIA B200", None)
    assert third.best is not None
    assert third.best.number == first.number


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("eight warps, which spilled", "spills", True),
        ("no Spilling any more", "spill", True),
        ("overspill", "spill", False),
        ("16-byte loads", "16-byte loads", True),
        ("loads of 16 bytes", "16-byte loads", False),
        ("one pass", "pass", True),
        ("anything", "?!", False),
    ],
)
def test_words_are_found_whatever_their_ending(text: str, words: str, found: bool) -> None:
    assert knowledge.mentions(text, words) is found


def test_only_words_about_the_attempt_are_searched(project: Path) -> None:
    everything = known(project)
    assert [item.number for item in knowledge.search(everything, ["persistent", "wave"])] == [6]
    assert knowledge.search(everything, ["persistent", "evict"]) == []
    assert knowledge.search(everything, ["H200"]) == []
    assert knowledge.search(everything, ["triton"]) == []


def test_the_largest_gain_comes_first(project: Path) -> None:
    gains = [item.gain for item in knowledge.search(known(project), ["hypothesis"])]
    numbers = [gain for gain in gains if gain is not None]
    assert len(gains) == 8
    assert gains == [*sorted(numbers, reverse=True), *[None] * gains.count(None)]
    assert numbers[0] > 1 > numbers[-1]
    assert None in gains  # the first, and one that failed


def test_a_technique_has_the_entry_that_gained_most_and_the_one_that_lost_most(project: Path) -> None:
    some = next(item for item in known(project) if item.best)
    names = ("wins", "loses", "is between", "is about others", "has no best")
    wins, loses, between, other, first = (replace(some, task=name, hypothesis="16-byte loads") for name in names)
    everything = [
        replace(between, direct=1.1),
        replace(loses, direct=0.9, outcome="slower"),
        replace(wins, direct=1.3, outcome="improved"),
        replace(other, direct=9.0, hypothesis="nothing of the kind"),
        replace(first, best=None),
    ]
    lines = knowledge.by_technique(everything)[TECHNIQUES["vector loads"].name]
    assert [line.partition(" #")[0] for line in lines] == ["tried in wins", "tried in loses"]
    assert lines[0].endswith(" us, improved")
    assert "->" in lines[0]


def test_every_technique_has_names() -> None:
    assert all(technique.known_as for technique in TECHNIQUES.values())
    assert all(isinstance(technique.known_as, tuple) for technique in TECHNIQUES.values())


def test_a_log_is_read_again_only_when_it_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = known(project)
    monkeypatch.setattr(knowledge.pulled_entries, "read_with_text", lambda path: pytest.fail("read again"))
    assert known(project) == before
    monkeypatch.undo()
    log = project / "kernels" / "toy" / "ITERATIONS.md"
    whole = log.read_bytes()
    log.write_bytes(whole + b"\n## 99 \xc2\xb7 a note by hand\n")
    assert [item.number for item in known(project)][-1] == 99
    log.write_bytes(whole)


def test_the_command_prints_numbers_and_where_to_look(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    found = CliRunner().invoke(cli, ["know", "evict first", "weight"])
    item = next(item for item in known(project) if item.number == 8)
    assert item.row is not None
    assert item.best is not None
    first, title, where = found.stdout.splitlines()
    assert first == f"toy #8  {item.outcome}  {item.speedups}  {item.row.label}: {item.times}"
    assert title == "    evict-first on the output keeps the weight in L2"
    assert where == f"    kernbench show toy 8 · kernbench diff toy {item.best.number} 8"
    assert found.stderr.startswith("1 of ")
    line = json.loads(CliRunner().invoke(cli, ["know", "evict first", "weight", "--json"]).stdout)
    assert (line["task"], line["iteration"], line["row"]["after_us"]) == ("toy", 8, item.row.after)


def test_the_shipped_logs_are_searched_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli, ["know", "behind the bounds branch"])
    assert found.stdout.startswith("norm_infer #5  improved  1.07x -> 1.09x  heads 16384x128: 3.157 -> 3.005 us\n")
    assert "diff" not in found.stdout  # their sources are not stored here
    nothing = CliRunner().invoke(cli, ["know", "perpetuum mobile"])
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr.startswith("none of the ")
