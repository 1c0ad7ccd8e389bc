"""drop removes one entry and nothing else, keeps its text, never frees its number, and can be undone to the byte."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared.task import Task
from kernbench import export
from kernbench.cli import cli
from kernbench.engine.archive import Archive
from kernbench.log import drop_entry, overview
from kernbench.log.entries import iterations_file
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from kernbench.tui.text import headline
from tests.log.logs import make_log, rows_of, summary_of, write_entries


@pytest.fixture
def task(tmp_path: Path) -> Task:
    made = make_log(tmp_path / "t", 4, cases=3)
    write_entries(made)
    return made


def log_of(task: Task) -> Path:
    return Path(task.folder) / "ITERATIONS.md"


def state_of(task: Task) -> Path:
    return Path(task.folder) / ".kernbench"


def said(task: Task, *words: str) -> str:
    """What a command prints, or the sentence it fails with; nobody is there to be asked."""
    result = CliRunner().invoke(cli, [words[0], task.folder, *words[1:]])
    return result.output if result.exception is None else str(result.exception)


def numbers(task: Task) -> list[str]:
    return re.findall(r"(?m)^## (\d+) ·", log_of(task).read_text())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_exactly_the_entry_goes_and_comes_back(task: Task, number: int, end: str) -> None:
    path = log_of(task)
    path.write_bytes(path.read_bytes().replace(b"\n", end.encode()))
    before = path.read_bytes()
    command = f"kernbench drop {task.folder} {number} --undo"
    assert f"dropped entry {number}" in (words := said(task, "drop", str(number)))
    assert f"; `{command}` puts it back\n" in words
    left = path.read_bytes()
    assert numbers(task) == [str(other) for other in range(1, 5) if other != number]
    line = json.loads((state_of(task) / "runs.jsonl").read_text().splitlines()[-1])
    assert (line["event"], line["iteration"]) == ("dropped", number)
    cut = line["text"].encode()
    assert cut.startswith(f"{end}## {number} · ".encode())
    assert cut.endswith(f" -->{end}".encode())
    at = before.index(cut)
    assert before[:at] + before[at + len(cut) :] == left
    listed = said(task, "log").splitlines()
    assert not [row for row in listed[1:] if row.split()[0] == str(number)]
    assert said(task, "drop", str(number)).endswith(f"no entry {number}; it was already dropped: `--undo` puts it back")
    assert said(task, "drop", str(number), "--undo") == f"entry {number} is back in ITERATIONS.md\n"
    assert path.read_bytes() == before
    assert [item.iteration for item in Logbook(path.parent, state_of(task)).iterations()] == [1, 2, 3, 4]
    assert "was not dropped here" in said(task, "drop", str(number), "--undo")


def test_it_comes_back_to_its_place_after_others_moved(task: Task) -> None:
    before = log_of(task).read_bytes()
    for number in ("4", "2", "3"):
        said(task, "drop", number)
    assert numbers(task) == ["1"]
    for number in ("2", "4", "3"):
        said(task, "drop", number, "--undo")
    assert log_of(task).read_bytes() == before


@pytest.mark.parametrize("with_runs", [True, False])
def test_its_number_is_never_given_again(task: Task, with_runs: bool) -> None:
    if not with_runs:
        shutil.rmtree(state_of(task))
    assert "dropped entry 4" in said(task, "drop", "4", "--yes")
    book = Logbook(Path(task.folder), state_of(task))
    rows = rows_of(task, 9, 1.2, {}, 1)
    book.enter(task, lambda: summary_of(task, 9, rows, []), {row.id: row for row in rows})
    assert numbers(task) == ["1", "2", "3", "5"]
    said(task, "drop", "4", "--undo")
    assert numbers(task) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n\n| case |", "\nmy own remark\n\n| case |"),
        ("- hypothesis: ", "- hypothesis: really, "),
        ("| ▲ faster |", "| ▲ faster, twice |"),
        ("- next: ", "- mine\n- next: "),
    ],
)
def test_what_a_person_wrote_is_not_removed_unasked(task: Task, old: str, new: str) -> None:
    head, mark, rest = log_of(task).read_text().partition("## 3 ·")
    assert old in rest
    log_of(task).write_text(head + mark + rest.replace(old, new, 1))
    before = log_of(task).read_bytes()
    runs = (state_of(task) / "runs.jsonl").read_bytes()
    reason = "entry 3 was not dropped: it has lines added or changed by hand; `--yes` drops it anyway"
    assert said(task, "drop", "3") == reason
    assert log_of(task).read_bytes() == before
    assert (state_of(task) / "runs.jsonl").read_bytes() == runs
    said(task, "drop", "3", "--yes")
    assert numbers(task) == ["1", "2", "4"]
    said(task, "drop", "3", "--undo")
    assert log_of(task).read_bytes() == before


def test_a_trailer_with_fewer_digits_is_no_doubt(task: Task) -> None:
    """Numbers had six digits in it once."""
    text = log_of(task).read_text()
    head, mark, rest = text.partition("## 3 ·")
    shorter = re.sub(r"(?<=\d\.\d{5})\d+", "", rest)
    assert shorter != rest
    log_of(task).write_text(head + mark + shorter)
    assert "dropped entry 3" in said(task, "drop", "3")


def test_what_the_tool_changed_itself_is_no_doubt(task: Task) -> None:
    book = Logbook(Path(task.folder), state_of(task))
    book.reword(book.journal.summaries[2], "other words", "a step")
    iterations_file.add_evidence(book.path, book.journal.summaries[2], "registers 32")
    assert "dropped entry 3" in said(task, "drop", "3")


def test_a_pulled_entry_is_asked_about(task: Task) -> None:
    shutil.rmtree(state_of(task))
    before = log_of(task).read_bytes()
    words = said(task, "drop", "2")
    assert words.startswith("entry 2 was not dropped: it is from another machine, ")
    said(task, "drop", "2", "--yes")
    assert numbers(task) == ["1", "3", "4"]
    said(task, "drop", "2", "--undo")
    assert log_of(task).read_bytes() == before


def test_bytes_that_are_not_text_come_back(task: Task) -> None:
    data = log_of(task).read_bytes().replace(b"\n\n## 3 ", b"\n\xff\xfe\n\n## 3 ")
    log_of(task).write_bytes(data)
    said(task, "drop", "2", "--yes")
    assert b"\xff" not in log_of(task).read_bytes()
    said(task, "drop", "2", "--undo")
    assert log_of(task).read_bytes() == data


@pytest.mark.parametrize("with_runs", [True, False])
def test_a_dropped_best_stays_the_best_and_every_door_says_so(task: Task, with_runs: bool) -> None:
    if not with_runs:
        shutil.rmtree(state_of(task))
    book = Logbook(Path(task.folder), state_of(task), task)
    best = book.best_now()
    assert best is not None
    words = said(task, "drop", str(best.iteration), "--yes")
    assert f"dropped entry {best.iteration}; its source stays the best until another takes over; " in words
    again = Logbook(Path(task.folder), state_of(task), task).best_now()
    assert again is not None
    assert (again.iteration, again.source, again.dropped) == (best.iteration, best.source, True)
    assert overview.of(Path(task.folder)).best.endswith(f"x (#{best.iteration}, dropped)")
    assert f"kernbench: the best is still #{best.iteration} (" in said(task, "log")
    header = headline.against_best(None, again)[0][0]
    assert re.fullmatch(r"best [\d.]+x, entry dropped", header)
    assert f"#{best.iteration}" in export.text(task, state_of(task), "md").split("## Iterations")[0]
    assert f"\n## {best.iteration} ·" not in export.text(task, state_of(task), "md")


def test_a_workbench_that_is_open_notices(task: Task) -> None:
    book = Logbook(Path(task.folder), state_of(task), task)
    assert len(book.iterations()) == 4
    said(task, "drop", "4")
    assert book.changed()
    assert [item.iteration for item in book.iterations()] == [1, 2, 3]
    assert book.set_next("go on") == 3
    said(task, "drop", "4", "--undo")
    assert book.changed()
    assert [item.iteration for item in book.iterations()] == [1, 2, 3, 4]


def test_of_two_entries_with_one_number_none_is_dropped(task: Task) -> None:
    text = log_of(task).read_text()
    entry = text[text.index("## 4 ·") :]
    source = Journal(state_of(task)).summaries[3].source
    log_of(task).write_text(text + "\n" + entry.replace(source[:8], "0000beef"))
    assert said(task, "drop", "4", "--yes").startswith("two entries are numbered 4")
    assert numbers(task) == ["1", "2", "3", "4", "4"]


@pytest.mark.parametrize(("answer", "left"), [("n", ["1", "2", "3", "4"]), ("y", ["1", "2", "4"])])
def test_a_person_at_a_terminal_is_asked(task: Task, answer: str, left: list[str]) -> None:
    log_of(task).write_text(log_of(task).read_text().replace("\n\n## 4 ·", "\nmy own remark\n\n## 4 ·"))
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "kernbench", "drop", task.folder, "3"]
    result = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert "Entry 3: it has lines added or changed by hand. Drop it anyway? [y/N]:" in result.stderr
    assert (result.returncode == 0) == (answer == "y")
    assert numbers(task) == left


@pytest.mark.parametrize("words", [["best"], ["1", "2"], []])
def test_a_number_has_to_be_given(task: Task, words: list[str]) -> None:
    result = CliRunner().invoke(cli, ["drop", *words])
    assert result.exit_code == 2


@pytest.mark.anyio
async def test_the_screen_drops_and_puts_back_with_its_own_log(task: Task) -> None:
    """The session's list is the same without the entry and with it again, and so is the file."""
    book = Logbook(Path(task.folder), state_of(task), task)
    archive, path = Archive(task, book), log_of(task)
    before, listed = path.read_bytes(), list(book.numbers())
    assert await archive.doubt(2) == ""
    assert (await archive.drop(2)).startswith("dropped entry 2; `kernbench drop 2 --undo`")
    assert (numbers(task), book.numbers()) == (["1", "3", "4"], [1, 3, 4])
    with pytest.raises(drop_entry.DropError, match="no entry 2"):
        await archive.drop(2)
    assert await archive.put_back(2) == "entry 2 is back in ITERATIONS.md"
    assert (path.read_bytes(), book.numbers()) == (before, listed)
    await book.in_thread.close()
