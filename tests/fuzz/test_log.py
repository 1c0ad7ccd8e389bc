"""Whatever is in runs.jsonl and ITERATIONS.md: the log opens, lists and takes the next run, or says one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from harness.shared import taskfile
from kernbench.cli import cli
from kernbench.log import overview
from kernbench.log.entries import iterations_file, old_entries, pulled_entries, trailer
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import parse
from tests import ROOT
from tests.fuzz.user_files import VALUES, fuzzed, nearly, only_sentences, spoiled, write
from tests.log.test_journal import entry, summary
from tests.sessions import TASK

V1 = (ROOT / "tests" / "log" / "runs_v1.jsonl").read_text()
LINES = [line for line in map(parse, V1.encode().splitlines()) if line is not None]
SHORT = [{**line, "samples": None} if line["event"] == "case" else line for line in LINES]
RUNS = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in SHORT)
ONE_OF_EACH = [
    *{line["event"]: line for line in SHORT}.values(),
    {"event": "words", "iteration": 1, "hypothesis": "h", "next": "n", "run": "r"},
    {"event": "dropped", "iteration": 1, "text": "## 1 · x · 2x\n", "run": "r", "encoding": "utf-8"},
    {"event": "undropped", "iteration": 1, "run": "r"},
    {"event": "entered", "iteration": 1, "run": "r"},
    {"event": "floor", "key": "k", "floor": 0.01},
    {"event": "controls", "task_hash": "h"},
    {"event": "task", "task_hash": "h", "old": "o"},
    {"event": "kept", "source": "ab"},
]
ENTRIES = (ROOT / "tests" / "log" / "golden_entry.md").read_text()
TRAILER = json.loads(ENTRIES.rpartition("kernbench ")[2].removesuffix(" -->\n"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("toy")
    (place / "task.toml").write_text(TASK)
    (place / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (place / "solution.py").write_text("def toy(): ...\n")
    (place / ".kernbench").mkdir()
    return place


def run(folder: Path, *words: str) -> None:
    """The command says something and breaks down in no way."""
    result = CliRunner().invoke(cli, [*words], prog_name="kernbench")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        with only_sentences():
            raise result.exception


def check(folder: Path, runs: str, entries: str) -> None:
    """Every way in which the log is read, and one in which it is written."""
    write(folder / ".kernbench" / "runs.jsonl", runs)
    write(folder / "ITERATIONS.md", entries)
    with only_sentences():
        journal = Journal(folder / ".kernbench")
        for item in journal.summaries[-3:]:
            journal.cases_of(item.run)
        list(journal.runs())
        journal.read_new()
        shown = overview.of(folder)
        assert shown.problem is None or "internal error" not in shown.problem, shown.problem
    for words in (
        ["log", str(folder)],
        ["show", str(folder), "1"],
        ["export", str(folder), "--format", "json", "-o", "-"],
    ):
        run(folder, *words)


@fuzzed(30)
@given(line=st.one_of(*map(nearly, ONE_OF_EACH)), place=st.integers(0, len(LINES)))
@example(line={"event": "finished", "run": "r", "source": "s", "at": "now", "right": True, "geomean": "fast"}, place=0)
@example(line={**ONE_OF_EACH[0], "environment": [1]}, place=0)
def test_a_line_of_runs_jsonl(folder: Path, line: Any, place: int) -> None:
    lines = RUNS.splitlines(keepends=True)
    try:
        made = json.dumps(line, separators=(",", ":")) + "\n"
    except ValueError:  # a number of more digits than Python writes
        return
    check(folder, "".join([*lines[:place], made, *lines[place:]]), ENTRIES)


@fuzzed(20)
@given(text=spoiled(RUNS))
def test_text_of_runs_jsonl(folder: Path, text: str) -> None:
    check(folder, text, ENTRIES)


@fuzzed(40)
@given(text=st.one_of(spoiled(ENTRIES), spoiled(ENTRIES + ENTRIES), st.text(max_size=200)))
@example(text=ENTRIES.replace("- result: ", "- result: " + "1" * 20_000))
def test_text_of_iterations_md(folder: Path, text: str) -> None:
    task = taskfile.load(folder)
    write(folder / "ITERATIONS.md", text)
    for item in pulled_entries.read_text(text):
        iterations_file.span_of(text, item.iteration or 0, item.source or None, item.at)
    with only_sentences():
        pulled_entries.rows(task, text)
        old_entries.rows(task, text)
        trailer.read(text)
    check(folder, "", text)


@fuzzed(60)
@given(data=st.one_of(nearly(TRAILER), VALUES))
@example(data={**TRAILER, "environment": {"": []}})
def test_trailers(data: Any) -> None:
    try:
        line = f"\n<!-- kernbench {json.dumps(data, separators=(',', ':'))} -->\n"
    except ValueError:
        return
    head = ENTRIES.partition("<!--")[0]
    for item in pulled_entries.read_text(head + line):
        assert isinstance(item.right, bool)
    trailer.rows(head + line)


@fuzzed(40)
@given(before=st.one_of(spoiled(ENTRIES), st.text(max_size=80)))
def test_an_entry_is_appended_to_any_text(folder: Path, before: str) -> None:
    """What was there stays, byte for byte, and the number is a new one."""
    path = folder / "ITERATIONS.md"
    write(path, before)
    kept = path.read_bytes()
    number = iterations_file.append(path, entry(folder), 0)
    data = path.read_bytes()
    assert data.startswith(kept)
    assert iterations_file.entry_of(path, number) is not None
    numbers = [int(found[1]) for found in iterations_file.HEADING.finditer(data.decode("utf-8", "surrogateescape"))]
    assert numbers.count(number) == 1
    assert number == max(numbers)


@fuzzed(30)
@given(before=spoiled(RUNS))
def test_a_run_is_appended_to_any_text(folder: Path, before: str) -> None:
    path = folder / ".kernbench" / "runs.jsonl"
    write(path, before)
    kept = path.read_bytes()
    with only_sentences():
        journal = Journal(folder / ".kernbench")
        journal.finish(replace(summary("made"), iteration=journal.highest() + 1), [])
        assert path.read_bytes().startswith(kept)
        assert Journal(folder / ".kernbench").summaries[-1].run == "made"
