"""Which run counts as best: confirmed, refused, `best?`, or of a version that confirmed nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.results import Ratio
from harness.shared.run_request import Environment
from kernbench import render, report
from kernbench.cli import cli
from kernbench.events import Confirmed, PulledEntry, Summary
from kernbench.log import best as best_source
from kernbench.log.entries import entry_text, iterations_file, pulled_entries, trailer
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import best_of, may_be_best
from tests.log.logs import make_log, write_entries

OLD = Summary("old", "a" * 64, "2026-11-14T21:00:00+00:00", True, 2.0, 1.99, 2.01, "faster", best=True, iteration=1)
NEW = replace(
    OLD, run="new", source="b" * 64, geomean=4.0, vs_best=Ratio(2.0, 1.9, 2.1, "faster"), best_geomean=2.0, awaits=True,
    iteration=2,
)  # fmt: skip
LINE = {"run": "new", "confirmed": True, "why": "it agrees", "geomean": 4.0, "low": 3.9, "high": 4.1, "judged": 300}


@pytest.mark.parametrize(
    ("best", "awaits", "confirmed", "holds", "word"),
    [
        (True, False, None, True, "improved"),  # of an older version
        (True, True, None, False, "best?"),
        (True, True, True, True, "improved"),
        (True, True, False, False, "refused"),
        (True, False, False, False, "refused"),
        (True, False, True, True, "improved"),
        (False, True, True, False, "faster"),  # nobody writes such a line
        (False, False, None, False, "faster"),
    ],
)
def test_the_rule(best: bool, awaits: bool, confirmed: bool | None, holds: bool, word: str) -> None:
    run = replace(NEW, best=best, awaits=awaits, confirmed=confirmed)
    assert (run.holds, render.outcome(run)) == (holds, word)
    found = best_of([OLD, run])
    assert found is (run if holds else OLD)


def test_what_a_run_prints_about_itself() -> None:
    assert " · best? over eager · " in report.outcome(replace(NEW, baseline="eager"))
    assert " · refused over eager · " in report.outcome(replace(NEW, baseline="eager", confirmed=False))
    assert " · best so far over eager · " in report.outcome(replace(NEW, baseline="eager", confirmed=True))


def test_one_that_waits_counts_as_new_and_a_refused_one_does_not_count() -> None:
    slower = [replace(OLD, run=f"s{place}", source=str(place), best=False, best_geomean=2.0) for place in (1, 2)]
    series = [OLD, NEW, *slower]
    assert comparison.streak(series, best=False, counts=True) == 3
    refused = [OLD, slower[0], replace(NEW, confirmed=False), slower[1]]
    assert comparison.streak(refused, best=False, counts=True) == 3  # as if it had not been there
    assert comparison.streak([OLD, slower[0], NEW, slower[1]], best=False, counts=True) == 2


def test_the_level_of_the_best_rises_when_it_is_confirmed() -> None:
    assert comparison.best_levels([OLD, NEW]) == [2.0, 2.0]
    assert comparison.best_levels([OLD, replace(NEW, confirmed=True)]) == [2.0, 4.0]
    assert comparison.best_levels([OLD, replace(NEW, confirmed=False)]) == [2.0, 2.0]


def test_which_may_still_be_best() -> None:
    wrong = replace(NEW, run="again", right=False, best=False, counts={"wrong": 1})
    other = replace(NEW, run="other", source="c" * 64, geomean=5.0, confirmed=True)
    assert may_be_best([OLD, NEW], NEW)
    assert may_be_best([NEW], NEW)  # the old best has turned out wrong
    assert not may_be_best([OLD, NEW, wrong], NEW)
    assert may_be_best([OLD, wrong, NEW], NEW)  # right by now
    assert not may_be_best([OLD, NEW, other], NEW)  # it was not timed against that one
    assert not may_be_best([OLD, replace(NEW, confirmed=True)], replace(NEW, confirmed=True))


def journal(state: Path) -> Journal:
    made = Journal(state)
    for run in (OLD, NEW):
        made.finish(run, ())
    return made


def test_every_reader_sees_a_confirmation(tmp_path: Path) -> None:
    here, there = journal(tmp_path), Journal(tmp_path)
    event = Confirmed("new", False, "it disagrees", 2.0, 1.99, 2.01, 300, 1.5)
    here.confirm(event)
    assert there.read_new()
    assert not there.read_new()
    for reader in (here, there, Journal(tmp_path)):
        assert [run.confirmed for run in reader.summaries] == [None, False]
        assert reader.confirmations == {"new": event}
        assert len(reader.summaries) == 2
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[-1]) == {
        "event": "confirmed", "run": "new", "confirmed": False, "why": "it disagrees", "geomean": 2.0, "low": 1.99,
        "high": 2.01, "judged": 300, "seconds": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"run": "new"},
        {**LINE, "confirmed": "yes"},
        {**LINE, "confirmed": None},
        {**LINE, "confirmed": 1},
        {**LINE, "run": ["new"]},
        {**LINE, "run": "of another log"},
        {**LINE, "why": 3},
        {**LINE, "geomean": "4"},
        {**LINE, "judged": 1.5},
    ],
)
def test_a_line_that_is_not_a_confirmation_changes_nothing(tmp_path: Path, line: dict[str, Any]) -> None:
    open_one = journal(tmp_path)
    text = json.dumps({"event": "confirmed", **line}, separators=(",", ":"))
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write(text + "\n")
    open_one.read_new()
    for reader in (open_one, Journal(tmp_path)):
        assert [run.confirmed for run in reader.summaries] == [None, None]


def test_a_torn_line_is_skipped_and_one_with_more_is_read(tmp_path: Path) -> None:
    made = journal(tmp_path)
    path, text = tmp_path / "runs.jsonl", json.dumps({"event": "confirmed", **LINE}, separators=(",", ":"))
    path.write_text(path.read_text() + text[:40])
    assert [run.confirmed for run in Journal(tmp_path).summaries] == [None, None]
    made.confirm(Confirmed("old", False, "it disagrees"))
    assert [run.confirmed for run in Journal(tmp_path).summaries] == [False, None]
    newer = json.dumps({"event": "confirmed", **LINE, "later": {"key": 1}}, separators=(",", ":"))
    path.write_text(path.read_text() + newer + "\n")
    assert [run.confirmed for run in Journal(tmp_path).summaries] == [False, True]


def test_a_log_without_the_fields_keeps_its_best_and_says_unconfirmed(tmp_path: Path) -> None:
    task = make_log(tmp_path / "rms_norm", 6)
    runs = tmp_path / "rms_norm" / ".kernbench" / "runs.jsonl"
    text = runs.read_text()
    assert '"awaits":true' in text
    for fields in ('"confirmed":true,"awaits":true,', '"confirmed":null,"awaits":false,'):
        text = text.replace(fields, "")
    assert '"awaits"' not in text
    runs.write_text(text)
    write_entries(task)
    found = best_source.find(task, Journal(runs.parent), PulledEntries(tmp_path / "rms_norm" / "ITERATIONS.md"))
    assert found.summary is not None
    said = CliRunner().invoke(cli, ["log", task.folder]).stdout
    (line,) = [line for line in said.splitlines() if "best now" in line]
    assert "unconfirmed" in line
    assert said.count("unconfirmed") == 1
    shown = CliRunner().invoke(cli, ["show", task.folder, "best"])
    assert "kernbench: unconfirmed: " in shown.stderr


def entry(task_folder: Path, **changes: Any) -> tuple[Summary, str]:
    """A run with an entry, and the entry's text."""
    task = make_log(task_folder, 1)
    journal = Journal(task_folder / ".kernbench")
    run = replace(journal.summaries[0], environment=Environment(device_name="elsewhere"), **changes)
    return run, entry_text.EntryText(task, run, journal.cases_of(run.run))(1)


@pytest.mark.parametrize(("confirmed", "word"), [(None, "best?"), (True, "first"), (False, "refused")])
def test_a_pulled_entry_has_the_word_of_its_trailer(tmp_path: Path, confirmed: bool | None, word: str) -> None:
    _run, text = entry(tmp_path, confirmed=confirmed)
    (pulled,) = pulled_entries.read_text(text)
    assert isinstance(pulled, PulledEntry)
    assert (render.outcome(pulled), pulled.holds, pulled.took_over) == (word, confirmed is True, confirmed is True)
    without = "\n".join(line for line in text.split("\n") if not line.startswith("<!--"))
    (pulled,) = pulled_entries.read_text(without)
    assert (render.outcome(pulled), pulled.holds) == (word, confirmed is True)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_an_entry_is_rewritten_as_if_it_had_been_confirmed_at_once(tmp_path: Path, ends: str) -> None:
    run, text = entry(tmp_path, confirmed=None)
    log, event = tmp_path / "ITERATIONS.md", Confirmed(run.run, True, "it <agrees>\nwell")
    log.write_bytes(text.replace("\n", ends).encode())
    iterations_file.add_confirmation(log, run, event, "compile", 0.0)
    _run, later = entry(tmp_path, confirmed=True)
    lines = [line for line in log.read_bytes().decode().split(ends) if not line.startswith("- confirmed: ")]
    assert ends.join(lines) == later.replace("\n", ends)
    (added,) = [line for line in log.read_bytes().decode().split(ends) if line.startswith("- confirmed: ")]
    assert "agrees" in added
    assert "well" in added


def test_a_broken_trailer_stays_as_it_is() -> None:
    for line in ("<!-- kernbench {] -->", "<!-- kernbench 3 -->", '<!-- kernbench {"schema":1} -->', "words"):
        assert trailer.with_confirmation(line, True) == line


def test_a_run_once_refused_stays_refused(tmp_path: Path) -> None:
    """A kernel can append to runs.jsonl; that must not make it best."""
    journal = Journal(tmp_path)
    for confirmed in (False, True):
        journal._fold("confirmed", {**LINE, "confirmed": confirmed})
    assert journal.confirmations["new"].confirmed is False
