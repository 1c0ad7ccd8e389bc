"""ITERATIONS.md is its reader's to edit: lists, exports and the tool's own changes go by what it says now."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import kernbench
from harness.shared.task import Task
from kernbench import export, render
from kernbench.events import PulledEntry, Summary
from kernbench.log import stored_sources
from kernbench.log.entries import entry_text, iterations_file
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from tests.log.logs import make_log, write_entries


@pytest.fixture
def task(tmp_path: Path) -> Task:
    made = make_log(tmp_path / "t", 3, cases=2)
    write_entries(made)
    return made


@pytest.fixture
def book(task: Task) -> Logbook:
    return Logbook(Path(task.folder), Path(task.folder) / ".kernbench", task)


def edit(book: Logbook, old: str, new: str) -> None:
    text = book.path.read_text()
    assert old in text
    book.path.write_text(text.replace(old, new))


def listed(book: Logbook) -> list[tuple[type, int | None, str]]:
    return [(type(item), item.iteration, item.hypothesis) for item in book.iterations()]


def test_a_heading_with_a_long_number_is_a_remark(task: Task, book: Logbook) -> None:
    book.path.write_text(book.path.read_text() + "\n## 20261116000000000000000 · mine · note\n\nwords\n")
    assert [number for _kind, number, _words in listed(book)] == [1, 2, 3]
    summary = replace(book.journal.summaries[0], run="r4")
    assert book.enter(task, lambda: summary, {}).iteration == 4
    assert "## 20261116000000000000000 · mine · note\n\nwords\n" in book.text(3)


# -- whose entry it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_of_two_entries_of_one_source_a_run_has_the_words_of_its_own_time(book: Logbook, first: bool) -> None:
    mine = book.journal.summaries[2]
    text = iterations_file.entry_of(book.path, 3) or ""
    theirs = text.replace(mine.hypothesis, "theirs").replace(render.minute(mine.at), "2026-01-02 03:04 UTC")
    edit(book, text, f"{theirs}\n{text}" if first else f"{text}\n{theirs}")
    assert listed(book)[2:] == [(Summary, 3, mine.hypothesis), (PulledEntry, 3, "theirs")]


def test_of_two_that_are_alike_in_that_too_it_has_those_that_show_prints(book: Logbook) -> None:
    text = iterations_file.entry_of(book.path, 3) or ""
    edit(book, text, text.replace(book.journal.summaries[2].hypothesis, "theirs") + "\n" + text)
    assert listed(book)[2:] == [(Summary, 3, book.journal.summaries[2].hypothesis)]
    assert book.iterations()[2].hypothesis in book.text(3, book.journal.summaries[2].source)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"^- when .*\n", ""),
        (r"^- when .* UTC", "- when: yesterday, late"),
        (r" · source ", " · commit "),
        (r"^- ", "* "),
        (r"^- ", "-   "),
    ],
)
def test_an_entry_that_lost_its_source_is_still_that_of_the_run(
    task: Task, book: Logbook, pattern: str, instead: str
) -> None:
    text = re.sub(pattern, instead, book.path.read_text(), flags=re.MULTILINE)
    book.path.write_text(text.replace(": two rows a warp hide", ": four rows a warp hide"))
    assert [kind for kind, _number, _words in listed(book)] == [Summary] * 3
    assert book.iterations()[2].hypothesis.startswith("four rows a warp")
    assert stored_sources.find(task, book.journal, "3").name == "3"
    assert book.set_next("on with it") == 3
    assert book.iterations()[2].next == book.next_step() == "on with it"
    assert "next: on with it\n" in (iterations_file.entry_of(book.path, 3, book.journal.summaries[2].source) or "")


def test_one_of_a_number_that_another_has_too_is_somebodys(book: Logbook) -> None:
    book.path.write_text(book.path.read_text() + "\n## 3 · by hand · 1.0x\nwords of theirs\n")
    assert listed(book)[3] == (PulledEntry, 3, "by hand")
    assert "words of theirs" in (iterations_file.entry_of(book.path, 3, "") or "")
    assert "words of theirs" not in (iterations_file.entry_of(book.path, 3, book.journal.summaries[2].source) or "")


# -- which lines are the tool's ----------------------------------------------------------------------------------------


def test_a_remark_that_begins_like_a_field_is_none(book: Logbook) -> None:
    edit(book, "- result: ", "- next to that, the tail wave costs 3 %\n- hypothesis or not\n- result: ")
    assert [item.next for item in book.iterations()] == ["", "", "look at the tail wave"]
    assert listed(book)[0][2] == "as shipped"
    assert entry_text.said(["- when 2026-11-14 21:03 UTC · source ab"], "when") == "2026-11-14 21:03 UTC · source ab"


def test_only_a_newline_ends_a_line(book: Logbook) -> None:
    edit(book, "- hypothesis: as shipped", "- hypothesis: as\u2028shipped, nearly")
    assert listed(book)[0][2] == "as\u2028shipped, nearly"


def test_a_wrapped_next_step_is_replaced_whole(book: Logbook) -> None:
    edit(book, "- next: look at the tail wave", "- next: look at\n  the tail wave\n  once more")
    assert book.next_step() == "look at the tail wave once more"
    book.set_next("done")
    assert "- next: done\n\n| case |" in book.path.read_text()


# -- exports -----------------------------------------------------------------------------------------------------------


def test_every_export_tells_the_words_of_the_file(task: Task, book: Logbook) -> None:
    old, new = "two rows a warp hide the latency of the reduction", "four rows a warp, by hand"
    edit(book, f"- hypothesis: {old}", f"- hypothesis: {new}")
    edit(book, f"## 3 · {old}", f"## 3 · {new}")
    edit(book, "- next: look at the tail wave", "- next: look elsewhere")
    shutil.rmtree(book.state / "sources")  # their diffs have such words too
    texts = {kind: export.text(task, book.state, kind) for kind in ("md", "csv", "json", "html", "pr")}
    assert [kind for kind, text in texts.items() if new not in text or old in text] == []
    rows = csv.DictReader(io.StringIO(texts["csv"]))
    assert {row["next_step"] for row in rows if row["iteration"] == "3"} == {"look elsewhere"}
    frame = kernbench.history(task.folder)
    assert frame.to_csv(index=False, lineterminator="\n") == texts["csv"]
    assert json.loads(texts["json"])["runs"][2]["next"] == "look elsewhere"


def test_md_keeps_evidence_and_what_its_author_wrote(task: Task, book: Logbook) -> None:
    edit(book, "- next: look at", "- evidence: registers 40 -> 32 (ncu)\n- next: look at")
    edit(book, "| case |", "A paragraph of its author's.\n\n| case |")
    edit(book, "- hypothesis: as shipped", "- hypothesis: as it was shipped")  # its heading stays
    md = export.text(task, book.state, "md")
    for number in (1, 2, 3):
        assert f"\n{iterations_file.entry_of(book.path, number)}\n" in md
    assert md.count("A paragraph of its author's.") == 3
    assert "- evidence: registers 40 -> 32 (ncu)\n" in md


def test_md_tells_an_entry_that_was_taken_out_from_its_run(task: Task, book: Logbook) -> None:
    whole = export.text(task, book.state, "md")
    edit(book, iterations_file.entry_of(book.path, 2) or "", "")
    assert export.text(task, book.state, "md") == whole
    book.path.unlink()
    assert export.text(task, book.state, "md") == whole


def test_md_has_the_line_ends_of_one_kind(task: Task, book: Logbook) -> None:
    whole = export.text(task, book.state, "md")
    book.path.write_bytes(book.path.read_bytes().replace(b"\n", b"\r\n"))
    assert export.text(task, book.state, "md") == whole
    assert [item.next for item in Journal(book.state).summaries] == [item.next for item in book.iterations()]


def test_a_list_below_the_next_step_is_its_authors(book: Logbook) -> None:
    head, mark, tail = book.path.read_text().rpartition("- next: look at the tail wave\n")
    book.path.write_text(f"{head}- next: try A\n  - because B\n  1. not before C\n{tail}")
    assert mark
    assert book.next_step() == "try A"
    assert book.set_next("try D") is not None
    assert "- next: try D\n  - because B\n  1. not before C\n" in book.path.read_text()
