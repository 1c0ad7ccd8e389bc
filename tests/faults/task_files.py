"""Faults of a task's files, met by commands that only look: status, log, show, run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.faults.row import Command, Fault
from tests.faults.workbench import TASK, write_task

Prepare = Callable[[Path], None]


def replaced(name: str, text: str) -> Prepare:
    return lambda folder: put(folder, name, text)


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")


def linked(name: str, target: str) -> Prepare:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return act


def fifo(name: str) -> Prepare:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return act


def with_cases(text: str) -> Prepare:
    return replaced("cases.json", text)


def with_neighbour(prepare: Prepare) -> Prepare:
    """A second, good task beside the bad one, both below the folder in which the command is given."""

    def act(folder: Path) -> None:
        for name in ("bad", "fine"):
            write_task(folder / name)
        for name in ("task.toml", "reference.py", "solution.py"):
            (folder / name).unlink()
        prepare(folder / "bad")

    return act


def look(
    name: str, done: str, prepare: Prepare, says: str, words: str = "status", code: int | None = 0, **more: object
) -> Command:
    return Command(name=name, group="files", done=done, prepare=prepare, words=words, says=says, code=code, **more)  # type: ignore[arg-type]


def toml(line: str) -> Prepare:
    """task.toml with one more line at its top."""
    return replaced("task.toml", line + TASK)


QUICK = {("task.toml", "a fifo"), ("ITERATIONS.md", "/dev/zero"), (".kernbench/runs.jsonl", "a fifo")}
NO_FILES: list[Fault] = [
    *(
        look(f"F9 {name} is {kind}", done, make(name), name.rpartition("/")[2].replace(".", r"\."), words, code,
             quick=(name, kind) in QUICK, megabytes=500)
        for kind, done, make in (
            ("/dev/zero", "a link to /dev/zero", lambda name: linked(name, "/dev/zero")),
            ("a fifo", "mkfifo in its place", fifo),
        )
        for name, words, code in (
            ("task.toml", "run .", 2),
            ("reference.py", "run .", 2),
            ("ITERATIONS.md", "log", None),
            (".kernbench/runs.jsonl", "log", 2),
        )
    ),
    look("F9 cases.json is /dev/zero", "a link to /dev/zero", linked("cases.json", "/dev/zero"), r"cases\.json", "run", 2, megabytes=500),
    look("F9 one bad task among others", "task.toml of one is a fifo; `status` lists the other",
         with_neighbour(fifo("task.toml")), "fine", "status", 0, quick=True),
    look("F9 a grid of four million points", "rows and cols from 1 to 1999",
         replaced("task.toml", TASK + f"[grid]\nrows = {list(range(1, 2000))}\ncols = {list(range(1, 2000))}\n"),
         "grid", "run", 2, quick=True, megabytes=500),
    look("a directory in the place of task.toml", "mkdir task.toml",
         lambda folder: ((folder / "task.toml").unlink(), (folder / "task.toml").mkdir())[1], "task", "run", 2),
    look("a directory in the place of runs.jsonl", "mkdir .kernbench/runs.jsonl",
         lambda folder: (folder / ".kernbench" / "runs.jsonl").mkdir(parents=True), r"runs\.jsonl", "run", 2),
    look(".kernbench is a file", "a file in its place", replaced(".kernbench", "x"), r"\.kernbench", "run", 2),
]  # fmt: skip

CONTENTS: list[Fault] = [
    look("task.toml is empty", "0 bytes", replaced("task.toml", ""), r"task\.toml", "run", 2),
    look("task.toml is no TOML", "name = ", replaced("task.toml", "name = \n"), r"task\.toml.*line 1|task\.toml:1", "run", 2),
    look("task.toml is binary", "bytes 128 to 255", lambda folder: (folder / "task.toml").write_bytes(bytes(range(128, 256))) and None, r"task\.toml", "run", 2),
    look("an unknown key", "basline = ...", toml('basline = "eager"\n'), "basline", "run", 2),
    look("F12 a tolerance of 400 digits", "atol = 999...", replaced("task.toml", TASK.replace("1e-5", "9" * 400)), r"task\.toml", "run", 2, quick=True),
    look("F12 an integer of 5000 digits", "threads = 999...", toml("big = " + "9" * 5000 + "\n"), r"task\.toml", "run", 2),
    look("F12 3000 nested brackets", "x = [[[...", toml("x = " + "[" * 3000 + "]" * 3000 + "\n"), r"task\.toml", "run", 2),
    look("F12 axes nested 900 deep", "axes = {a = {a = ...", replaced("task.toml", TASK + '[[case]]\nid = "z"\naxes = ' + "{ a = " * 900 + "1" + " }" * 900 + "\n"), r"task\.toml", "run", 2),
    look("F12 threads = 99999999999999999999", "more than any machine has", replaced("task.toml", TASK.replace("threads = 1", "threads = 99999999999999999999")), "threads", "run", 2, real=True, within=60.0),
    look("F12 threads = 1000000", "more than this machine has", replaced("task.toml", TASK.replace("threads = 1", "threads = 1000000")), r"task\.toml: threads|threads = 1000000", "run", None, never="Segmentation|timed out", real=True, within=60.0),
    look("F12 rowwise names no argument", 'rowwise = ["zork"]', toml('rowwise = ["zork"]\n'), "zork", "run", 2, real=True, within=60.0),
    look("F12 cases.json of 100,000 brackets", "[[[...", with_cases("[" * 100000), r"cases\.json", "run", 2, quick=True),
    look("F12 5000 digits in cases.json", "an axis of 5000 digits", with_cases('[{"id": "a", "axes": {"rows": ' + "9" * 5000 + "}}]"), r"cases\.json", "run", 2),
    look("F12 a lone surrogate in cases.json", 'id = "\\ud800"', with_cases('[{"id": "\\ud800", "axes": {"rows": 3, "cols": 3}}]'), "", "run", None, quick=True),
    look("F12 reference.py of 300,000 minus signs", "deeper than Python's parser goes", replaced("reference.py", "x = " + "-" * 300000 + "1\n"), r"reference\.py", "run", 2, quick=True),
    look("reference.py with a syntax error", "def (", replaced("reference.py", "def (\n"), r"reference\.py", "run", 2),
    look("no solution.py", "deleted", lambda folder: (folder / "solution.py").unlink(), r"solution\.py", "run", 2),
    look("F13 solution.py is a fifo", "mkfifo", fifo("solution.py"), r"solution\.py.*(fifo|pipe|not a (regular )?file)", "run", 2, never="no such file", quick=True),
    look("F13 solution.py is a device", "a link to /dev/zero", linked("solution.py", "/dev/zero"), r"solution\.py.*(device|not a (regular )?file)", "run", 2, never="no such file", megabytes=500),
    look("links in a circle", "a -> b -> a", lambda folder: (linked("a", "b")(folder), linked("b", "a")(folder))[0], "", "run", 0),
    look("a folder 120 deep", "d/d/d/...", lambda folder: (folder / ("d/" * 120)).mkdir(parents=True), "", "run", 0),
    look("a file name that is not UTF-8", "b'\\xff.txt'", lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).touch(), "", "run", 0),
]  # fmt: skip


def as_line(data: dict[str, object]) -> str:
    """As kernbench writes it, but for escapes."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def run_line(**more: object) -> str:
    line = {"event": "finished", "run": "20261114T000000-abc", "source": "0" * 64, "at": "2026-11-14T00:00:00+00:00",
            "right": True, "geomean": 1.5, "low": 1.4, "high": 1.6, "verdict": "faster", "iteration": 1,
            "baseline": "eager", "hypothesis": "h", **more}  # fmt: skip
    return as_line(line)


def logged(*lines: str, entries: str = "") -> Prepare:
    def act(folder: Path) -> None:
        put(folder, ".kernbench/runs.jsonl", "".join(lines))
        if entries:
            put(folder, "ITERATIONS.md", entries)

    return act


LOGS: list[Fault] = [
    look("runs.jsonl is garbage", "1 MB of random bytes", lambda folder: ((folder / ".kernbench").mkdir(), (folder / ".kernbench" / "runs.jsonl").write_bytes(os.urandom(1 << 20)))[0], "", "log", 0),
    look("runs.jsonl of the wrong kinds", "every value a list", logged(json.dumps({"event": "finished", "run": [], "source": [], "at": [], "right": []}) + "\n"), "", "log", 0),
    look("runs.jsonl of 100,000 brackets", "[[[...", logged("[" * 100000 + "\n", run_line()), "1", "log", 0),
    look("runs.jsonl with a number of 5000 digits", '"seconds": 999...', logged(run_line().replace("1.5", "9" * 5000), run_line(iteration=2)), "2", "log", 0),
    look("runs.jsonl by a newer version", "schema 99", logged('{"event":"start","run":"r","schema":99}\n'), "update kernbench", "log", 2),
    look("ITERATIONS.md with conflict markers", "<<<<<<<", logged(entries="# I\n\n<<<<<<< HEAD\n## 1 · a · 2x\n=======\n## 1 · b · 3x\n>>>>>>> x\n"), "unresolved merge", "log", 0),
    look("ITERATIONS.md is not UTF-8", "latin-1", lambda folder: (folder / "ITERATIONS.md").write_bytes("## 1 · café · 2x\n".encode("latin-1")) and None, "", "log", 0),
    look("ITERATIONS.md with numbers of 200 digits", "## 999...", replaced("ITERATIONS.md", f"## {'9' * 200} · a · 2x\n"), "", "run -m hello", 0),
    look("config.toml is broken", "theme = [", lambda folder: put_config(folder, "theme = ["), "", "status", 0),
]  # fmt: skip


def put_config(folder: Path, text: str) -> None:
    config = folder.parent / "home" / ".config" / "kernbench"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(text)


TASK_FILES: list[Fault] = [*NO_FILES, *CONTENTS, *LOGS]
