"""Whatever happens to the log's files: nothing that was reported as written is lost, nothing of the user's changes.

Seeded. KERNBENCH_FAULT_RUNS=500 makes the long killing test as long as one likes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.run_request import Environment
from kernbench import atomic_write
from kernbench.log.entries import iterations_file, pulled_entries
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from tests import ROOT
from tests.commands.test_commands import kernbench
from tests.log.logs import make_log
from tests.sessions import TASK, toy

LONG = int(os.environ.get("KERNBENCH_FAULT_RUNS", "200"))
SEED = 20261114


def drive(folder: Path, count: int, *words: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.log.driver", str(folder), str(count), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths})


def reports(output: bytes) -> list[dict[str, Any]]:
    """Whole lines only: what a killed process was about to say was not said."""
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


def verify(folder: Path, said: list[dict[str, Any]]) -> None:
    """Everything that was said is in runs.jsonl, and every number in ITERATIONS.md."""
    journal = Journal(folder / ".kernbench")
    finished = {item.run: item for item in journal.summaries}
    lines = [json.loads(line) for line in journal.path.read_bytes().split(b"\n") if _is_row(line)]
    landed = {(line["run"], line["id"], line["checked"]): line["solution_us"] for line in lines}
    log = folder / "ITERATIONS.md"
    for item in said:
        if "case" in item:
            assert landed[item["run"], item["case"], item["checked"]] == item["us"]
        elif "finished" in item:
            assert finished[item["finished"]].iteration == item["iteration"]
            entry = iterations_file.entry_of(log, item["iteration"], item["source"])
            assert entry is not None
            assert f"· source {item['source'][:8]} ·" in entry
    numbers = [int(number) for number in iterations_file.HEADING.findall(log.read_text())]
    assert numbers == list(range(1, len(numbers) + 1))
    for written in pulled_entries.read(log):  # no entry without its run
        assert finished[written.run].iteration == written.iteration


def _is_row(line: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return bool(json.loads(line)["event"] == "case")
    return False


@pytest.mark.parametrize(
    "runs", [4, pytest.param(LONG, marks=[pytest.mark.long, pytest.mark.timeout(max(120, LONG * 3))])]
)
def test_killed_at_random_moments(folder: Path, runs: int) -> None:
    rng = random.Random(SEED)
    said: list[dict[str, Any]] = []
    notes: list[bytes] = []
    log = folder / "ITERATIONS.md"
    kills = 0
    while sum("finished" in item for item in said) < runs:
        with drive(folder, runs) as process:
            assert process.stdout is not None
            # How far it gets is counted in lines, so a busy machine needs no more processes than a quiet one; the
            # short rest spreads the kills over what happens between two lines.
            heard = [process.stdout.readline() for _ in range(rng.randrange(1, 50))]
            time.sleep(rng.uniform(0.0, 0.006))
            process.send_signal(signal.SIGKILL)
            said += reports(b"".join(heard) + process.stdout.read())
        kills += 1
        note = f"\nnote {kills} of mine: {rng.random()}\n".encode()
        with log.open("ab") as file:
            file.write(note)
        notes.append(note)
    print(f"\n{kills} kills, {len(said)} things said, {sum('finished' in item for item in said)} runs")
    verify(folder, said)
    text = log.read_bytes()
    places = [text.find(note) for note in notes]
    assert -1 not in places
    assert places == sorted(places)
    assert (folder / "task.toml").read_text() == TASK
    after = kernbench(folder, "run", "-m", "after all that", "--json")
    assert after.returncode == 0
    entered = Journal(folder / ".kernbench")
    assert not entered.waiting
    assert {run.run for run in entered.numbered()} == {entry.run for entry in pulled_entries.read(log)}
    assert "another machine" not in kernbench(folder, "log").stdout


def test_two_workbenches_on_one_task(folder: Path) -> None:
    count = 12
    processes = [drive(folder, count, "same") for _ in range(2)]
    said = [item for process in processes for item in reports(process.communicate(timeout=100)[0])]
    assert sum("finished" in item for item in said) == 2 * count
    assert not [item for item in said if "notice" in item]
    verify(folder, said)
    assert len({item["iteration"] for item in said if "finished" in item}) == 2 * count


# -- what users and their editors do to ITERATIONS.md ----------------------------------------------------------------


@pytest.fixture
def book(tmp_path: Path) -> Logbook:
    make_log(tmp_path / "t", 5, cases=2)
    return Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench")


def enter(book: Logbook, number: int) -> int | None:
    item = book.journal.summaries[number]
    return book.enter(taskfile.load(book.path.parent), lambda: item, book.journal.cases_of(item.run)).iteration


def test_replaced_between_two_entries(book: Logbook) -> None:
    assert enter(book, 0) == 6
    mine = "# all new\n\n## 70 · by hand · 9x\n".encode()
    scratch = book.path.with_name("scratch")
    scratch.write_bytes(mine)
    scratch.replace(book.path)
    assert enter(book, 1) == 71
    assert book.path.read_bytes().startswith(mine)


def test_truncated_between_two_entries(book: Logbook) -> None:
    assert enter(book, 0) == 6
    os.truncate(book.path, 0)
    assert enter(book, 1) == 6  # the log on this machine goes to 5, the file is empty
    os.truncate(book.path, 40)
    before = book.path.read_bytes()
    enter(book, 2)
    assert book.path.read_bytes().startswith(before + b"\n\n## ")


def test_converted_to_crlf_between_two_entries(book: Logbook) -> None:
    first = enter(book, 0)
    book.path.write_bytes(book.path.read_bytes().replace(b"\n", b"\r\n"))
    before = book.path.read_bytes()
    second = enter(book, 1)
    data = book.path.read_bytes()
    assert data.startswith(before)
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert [first, second] == [6, 7]
    entered = book.journal.summaries[1]
    iterations_file.reword(book.path, _numbered(entered, 7), _numbered(entered, 7, "with other words"))
    assert b"- hypothesis: with other words\r\n" in book.path.read_bytes()


def _numbered(item: Any, number: int, words: str | None = None) -> Any:
    from dataclasses import replace

    return replace(item, iteration=number, **({} if words is None else {"hypothesis": words}))


@pytest.mark.parametrize("way", ["replace", "rewrite"])
def test_edited_while_entries_are_appended(book: Logbook, way: str) -> None:
    """An editor that takes no lock saves all the time: its text stays whole, and the next entry finds its place."""
    stop = threading.Event()
    saved: list[bytes] = []

    def edit() -> None:
        rng = random.Random(SEED)
        while not stop.is_set():
            text = f"# mine, version {len(saved)} {rng.random()}\n".encode()
            if way == "replace":
                scratch = book.path.with_name(".editor")
                scratch.write_bytes(text)
                scratch.replace(book.path)
            else:
                book.path.write_bytes(text)
            saved.append(text)
            time.sleep(rng.uniform(0.0, 0.004))

    thread = threading.Thread(target=edit)
    thread.start()
    numbers: list[int] = []
    try:
        for _ in range(80):
            with contextlib.suppress(iterations_file.LogbookError):
                numbers.append(enter(book, 0) or 0)
    finally:
        stop.set()
        thread.join()
    assert len(numbers) > 40
    last = enter(book, 1)
    data = book.path.read_bytes()
    assert saved[-1] in data  # the user's last save, byte for byte
    assert iterations_file.entry_of(book.path, last or 0) is not None
    assert data.count(b"# mine") == 1


def test_reword_gives_way_to_a_save_of_this_moment(book: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    item = _numbered(book.journal.summaries[0], enter(book, 0) or 0)
    real = os.fsync

    def save_meanwhile(handle: int) -> None:
        real(handle)
        with book.path.open("a") as file:
            file.write("a line of mine\n")

    monkeypatch.setattr(os, "fsync", save_meanwhile)
    with pytest.raises(iterations_file.LogbookError, match="was just saved by another program; try again"):
        iterations_file.reword(book.path, item, _numbered(item, item.iteration, "other words"))
    assert book.path.read_text().endswith("a line of mine\n")


# -- disks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small file system here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def one_sentence(text: str) -> None:
    assert "Traceback" not in text
    assert re.search(r"^kernbench: .*(No space left|cannot be|Read-only|not recorded).*$", text, re.MULTILINE)


def test_a_full_disk_loses_nothing_that_was_written(small_disk: Path) -> None:
    folder = toy(small_disk / "toy")
    assert kernbench(folder, "run", "-m", "fits").returncode == 0
    log, runs = (folder / "ITERATIONS.md").read_bytes(), (folder / ".kernbench" / "runs.jsonl").read_bytes()
    free = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    for left in (0, 1, 2, 3):
        size = max((free.f_bavail - left) * free.f_bsize, 0)
        ballast.write_bytes(b"x" * size)
        result = kernbench(folder, "run", "-m", f"with {left} pages left")
        one_sentence(result.stderr)
        assert result.returncode == 2
        ballast.unlink()
        assert (folder / "ITERATIONS.md").read_bytes().startswith(log)
        assert (folder / ".kernbench" / "runs.jsonl").read_bytes().startswith(runs)
        assert len(Journal(folder / ".kernbench").summaries) >= 1
        assert not list(folder.glob(f"{atomic_write.PREFIX}*"))
    assert kernbench(folder, "run", "-m", "space again").returncode == 0
    assert Journal(folder / ".kernbench").summaries[-1].hypothesis == "space again"


def test_a_read_only_folder_is_one_sentence(small_disk: Path) -> None:
    folder = toy(small_disk / "toy")
    assert kernbench(folder, "run", "-m", "while it could be written").returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = kernbench(folder, "run", "-m", "too late")
    assert result.returncode == 2
    one_sentence(result.stderr)
    assert "while it could be written" in kernbench(folder, "log").stdout
    assert kernbench(folder, "export", "--format", "csv", "-o", "-").returncode == 0
    refused = kernbench(folder, "export", "--format", "csv", "-o", "out.csv")
    assert refused.returncode == 2
    one_sentence(refused.stderr)
    restored = kernbench(folder, "restore", "1")
    assert restored.returncode in (0, 2)
    assert "Traceback" not in restored.stderr


def test_a_read_only_task_with_its_state_elsewhere_still_runs(small_disk: Path, tmp_path: Path) -> None:
    folder = toy(small_disk / "toy")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = kernbench(folder, "run", "-m", "kept elsewhere", "--state", str(tmp_path / "state"))
    assert result.returncode == 0
    assert "ITERATIONS.md cannot be written: Read-only file system" in result.stderr
    assert Journal(tmp_path / "state").summaries[-1].hypothesis == "kept elsewhere"


def test_environments_of_a_run_are_kept(folder: Path) -> None:
    assert kernbench(folder, "run", "-m", "one").returncode == 0
    (summary,) = Journal(folder / ".kernbench").summaries
    assert isinstance(summary.environment, Environment)
    assert summary.command == "kernbench run toy"
    assert len(summary.baseline_hash) == 64
    assert summary.hypothesis_at <= summary.at
