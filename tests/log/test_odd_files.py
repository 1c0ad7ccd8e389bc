"""Logs and state that are not files, or lead elsewhere: commands answer, and nothing leaves the folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.shared.task import Task
from kernbench.cli import cli
from kernbench.diagnosis.counters import Profile
from kernbench.engine.workbench_lock import WorkbenchLock
from kernbench.log import overview, profile_evidence
from kernbench.log.entries.log_lock import LogbookError
from kernbench.log.logbook import Logbook
from kernbench.log.runs import runs_file
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import JournalError
from kernbench.ncu.profile_store import Profiles
from kernbench.task import snapshot
from kernbench.tui.actions import draft_file
from tests.log.logs import make_log, rows_of, summary_of, write_entries

SHAPES: dict[str, Callable[[Path], None]] = {
    "a fifo": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    task = make_log(tmp_path / "t", 3, cases=2)
    write_entries(task)
    return task


def replace(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    SHAPES[kind](path)


def told(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words])


@pytest.mark.parametrize("kind", SHAPES)
def test_a_log_that_is_not_a_file_hides_neither_the_runs_nor_other_tasks(task: Task, kind: str) -> None:
    log = Path(task.folder) / "ITERATIONS.md"
    replace(log, kind)
    result = told("log", task.folder)
    assert result.exit_code == 0, result.output
    assert f"ITERATIONS.md is {kind}, not a regular file; move it out of the way" in result.stderr
    assert "16-byte loads" in result.stdout
    assert overview.of(Path(task.folder)).problem is None
    for words in (("show", task.folder, "2"), ("export", task.folder, "--format", "md", "-o", "-")):
        assert told(*words).exit_code == 0
    book = Logbook(log.parent, log.parent / ".kernbench", task)
    rows = rows_of(task, 4, 1.0, {}, 1)
    run, problem = book.finish(task, lambda: summary_of(task, 4, rows, []), {row.id: row for row in rows}, 0.0)
    assert run.iteration is None
    assert "ITERATIONS.md" in problem


@pytest.mark.parametrize("kind", SHAPES)
def test_runs_that_are_not_a_file_are_a_sentence(task: Task, kind: str) -> None:
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    journal = Journal(runs.parent)
    replace(runs, kind)
    with pytest.raises(JournalError, match=rf"runs\.jsonl is {kind}, not a regular file"):
        Journal(runs.parent)
    assert "runs.jsonl" in (overview.of(Path(task.folder)).problem or "")
    with pytest.raises(JournalError, match=r"runs\.jsonl.*; the run is not recorded"):
        journal.keep_floor("a", 1.0)


def test_one_endless_line_is_read_in_parts(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    with runs.open("ab") as file:
        file.write(b"x" * 5000)
    size = runs.stat().st_size
    monkeypatch.setattr(runs_file, "LONGEST_LINE", 1 << 12)
    longest = max(len(line) for _place, line in runs_file.RunsFile(runs).scan(size - 5000))
    assert longest == 1 << 12
    monkeypatch.setattr(runs_file, "LARGEST", size - 1)
    with pytest.raises(JournalError, match=r"runs\.jsonl: it is 0 MB; move it elsewhere"):
        Journal(runs.parent)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"event":"words","iteration":' + "9" * 5000 + "}"])
def test_lines_that_no_parser_takes_are_passed_over(task: Task, line: str) -> None:
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    with runs.open("a") as file:
        file.write(line + "\n" + '{"event":"start","run":"r","schema":' + "9" * 5000 + "}\n")
    assert len(Journal(runs.parent).summaries) == 3


@pytest.mark.parametrize("kind", SHAPES)
def test_what_else_the_state_folder_holds_is_passed_over(task: Task, kind: str) -> None:
    state = Path(task.folder) / ".kernbench"
    kept = Profiles(state).keep(Profile(source="ab", case="a", gpu="g", ncu="n"))
    (path,) = (state / "profiles").glob("*.json")
    for place in (path, state / "next-hypothesis.txt", state / "workbench.lock", state / "workbench-2.lock"):
        replace(place, kind)
    assert kept is not None
    assert (Profiles(state).newest(), profile_evidence.profiles(state)) == ([], [])
    assert draft_file.read(state) == ""
    assert WorkbenchLock(state).announce() == ""
    if kind == "a fifo":
        draft_file.keep(state, "try this")
        assert draft_file.read(state) == "try this"


def rewritten(task: Task, source: str) -> None:
    """The last run's line names this source."""
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    lines[-1]["source"] = source
    runs.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


@pytest.mark.parametrize("source", ["../../../secret", "{tmp}/secret", "..", "."])
def test_a_source_is_never_a_path(task: Task, tmp_path: Path, source: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "solution.py").write_text("SECRET = 1\n")
    before = (Path(task.folder) / "solution.py").read_text()
    rewritten(task, source.format(tmp=tmp_path))
    (Path(task.folder) / "ITERATIONS.md").unlink()  # it names the true source
    for words in (("show", task.folder, "3", "--source"), ("restore", task.folder, "3"), ("diff", task.folder, "3")):
        result = told(*words)
        assert result.exit_code != 0, words
        assert "SECRET" not in result.output
    assert (Path(task.folder) / "solution.py").read_text() == before
    assert len(Journal(Path(task.folder) / ".kernbench").summaries) == 2


@pytest.mark.parametrize("whole", [True, False])
def test_a_stored_source_that_links_out_is_not_followed(task: Task, tmp_path: Path, whole: bool) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "solution.py").write_text("SECRET = 1\n")
    before = (Path(task.folder) / "solution.py").read_text()
    stored = (
        Path(task.folder) / ".kernbench" / "sources" / Journal(Path(task.folder) / ".kernbench").summaries[2].source
    )
    shutil.rmtree(stored)
    if whole:
        stored.symlink_to(tmp_path / "secret")
    else:
        stored.mkdir()
        (stored / "solution.py").symlink_to(tmp_path / "secret" / "solution.py")
    for words in (("show", task.folder, "3", "--source"), ("diff", task.folder, "3"), ("restore", task.folder, "3")):
        result = told(*words)
        assert "SECRET" not in result.output
        assert "is damaged" in str(result.exception)
    assert (Path(task.folder) / "solution.py").read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_changed_log_keeps_its_owner(task: Task) -> None:
    write_entries(task)
    log = Path(task.folder) / "ITERATIONS.md"
    os.chown(log, 65534, 65533)
    log.chmod(0o640)
    assert told("drop", task.folder, "2", "--yes").exit_code == 0
    about = log.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (65534, 65533, 0o640)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_log_in_utf_16_gets_no_entry(task: Task, encoding: str) -> None:
    log, state = Path(task.folder) / "ITERATIONS.md", Path(task.folder) / ".kernbench"
    log.write_bytes("\ufeff# Iterations\n".encode(encoding))
    before = log.read_bytes()
    item = Journal(state).summaries[-1]
    with pytest.raises(LogbookError, match="is UTF-16, as PowerShell's `>` writes it; save it as UTF-8"):
        Logbook(log.parent, state, task).enter(task, lambda: item, {})
    assert log.read_bytes() == before


def test_a_source_is_printed_byte_for_byte(task: Task) -> None:
    state, data = Path(task.folder) / ".kernbench", b"# -*- coding: latin-1 -*-\n# \xfc\n"
    kept = snapshot.keep({"solution.py": data}, state)
    assert data in told("show", task.folder, kept.sha[:8], "--source").stdout_bytes
