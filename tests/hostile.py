"""A stranger's task: escape sequences in every field, and a repository and modules that leave a trace when they run."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import FAKE, ROOT

FORGED = "forged-title"
HOOKS = (
    "applypatch-msg commit-msg post-checkout post-commit post-index-change post-merge post-rewrite pre-applypatch"
    " pre-auto-gc pre-commit pre-merge-commit pre-push prepare-commit-msg pre-rebase reference-transaction"
).split()
TRACE = "trace"


def evil(word: str) -> str:
    """A title (OSC 0), the clipboard (OSC 52), a cursor and a style (CSI), C1, DEL, BEL, a changed direction, and the
    word by which a test finds the field."""
    return f"{word}\x1b]0;{FORGED}\x07\x1b]52;c;Zm9yZ2Vk\x1b\\\x1b[2J\x1b[5m\x9b5m\x9d0;{FORGED}\x9c\x7f\u202e\x08\r<b>"


def quoted(text: str) -> str:
    """For TOML and JSON."""
    return (
        '"'
        + "".join(sign if " " <= sign <= "~" and sign not in '"\\' else f"\\u{ord(sign):04x}" for sign in text)
        + '"'
    )


def field(word: str) -> str:
    """As much of it as a task's field may hold: a line break is refused."""
    return evil(word).replace("\r", "")


def make_task(parent: Path) -> Path:
    folder = parent / f"toy{field('FOLDER')}"
    folder.mkdir(parents=True)
    baseline = f"base{field('BASE')}.py"
    lines = [f"name = {quoted(field('NAME'))}", 'entry = "toy"', f"summary = {quoted(field('SUMMARY'))}"]
    lines += ['device = "cpu"', f"baseline = {quoted(baseline)}"]
    lines += ["[[case]]", f"id = {quoted(field('CASE'))}", f"label = {quoted(field('LABEL'))}"]
    lines += [f"models = [{quoted(field('MODEL'))}]", f"axes = {{ rows = 16, kind = {quoted(field('AXIS'))} }}"]
    lines += ["[[case]]", 'id = "plain"', "axes = { rows = 32 }"]
    (folder / "task.toml").write_text("\n".join(lines) + "\n")
    listed = f'[{{"id": {quoted(field("LISTED"))}, "label": {quoted(field("LISTED-LABEL"))}, "axes": {{"rows": 64}}}}]'
    (folder / "cases.json").write_text(listed)
    trace = f"open({str(parent / TRACE)!r}, 'a').write(__file__)\n"
    (folder / "reference.py").write_text(f"def make_inputs(case, seed, device): ...\ndef toy(): ...\n{trace}")
    (folder / baseline).write_text(f"def toy(): ...\n{trace}")
    for name in ("torch", "click", "json", "sitecustomize", "pandas", "kernbench_trap"):
        (folder / f"{name}.py").write_text(trace)
    (folder / f"part{field('FILE')}.py").write_text(f"# {field('REMARK')}\n{trace}")
    save(folder, "TIME_US = 50.0", trace)
    return folder


def change(folder: Path, mistake: str = "raise") -> None:
    """Another source, whose run ends with an exception or, without an entry, with a compiler's words."""
    next(folder.glob("part*")).write_text(f"# {evil('CHANGED')}\n")
    save(folder, f'DO = "{mistake}"', f"SAYS = {quoted(evil('BROKEN'))}")


def save(folder: Path, *lines: str) -> None:
    (folder / "solution.py").write_text("\n".join(["def toy(): ...", *lines, ""]))


def spoil_log(folder: Path) -> None:
    """Escapes in what a run has written, as if somebody had edited it, and in an entry from another machine."""
    runs = folder / ".kernbench" / "runs.jsonl"
    text = runs.read_text()
    for old, word in (("Fake 9000", "DEVICE"), ("no clock", "CONDITION"), ("a thought", "HYPOTHESIS")):
        assert f'"{old}"' in text
        text = text.replace(f'"{old}"', quoted(evil(word)))
    runs.write_text(text)
    log = folder / "ITERATIONS.md"
    entry = log.read_text().replace("a thought", evil("EDITED")).replace("Fake 9000", evil("MACHINE"))
    entry += (
        f"\n## 7 · {evil('PULLED')} · 1.50x · improved\n- when 2026-01-01 10:00 UTC · source 0123abcd · {evil('GPU')}\n"
    )
    entry += f"- hypothesis: {evil('PULLED-WORDS')}\n- result: {evil('RESULT')}\n- next: {evil('NEXT')}\n"
    log.write_text(entry)


def environment(parent: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    given = {"KERNBENCH_HARNESS": str(FAKE), "PYTHONPATH": paths, "XDG_CONFIG_HOME": str(parent / "config")}
    return {**os.environ, **given, **more}


BATCH = """
import json, os, sys
from kernbench.cli import main
for words in json.loads(sys.argv[1]):
    os.write(1, f"\\n== {' '.join(words)}\\n".encode())
    try:
        main(words)
    except SystemExit:
        pass
    sys.stdout.flush()
"""


def written(folder: Path, parent: Path, commands: Sequence[Sequence[str]], **more: str) -> dict[str, bytes]:
    """The raw bytes that each command writes to a terminal, all in one process."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-c", BATCH, json.dumps([list(words) for words in commands])]
    process = subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(parent, **more)
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            output += chunk
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
        process.wait(timeout=60)
    parts = re.split(rb"(?m)^== (.*)\r\n", output.replace(b"\r\r\n", b"\r\n"))
    return {parts[place].decode(): parts[place + 1] for place in range(1, len(parts), 2)}


OWN_CODES = re.compile(r"\x1b\[2K\r|\x1b\[3[126]m|\x1b\[0m|\r(?=\n)|(?<=\w)\r")
"""Clearing and overwriting the line, and the colors of a diff."""
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def obeyed(raw: bytes) -> list[str]:
    """What a terminal would obey in it, with what is around; strict about UTF-8."""
    text = OWN_CODES.sub("", raw.decode("utf-8"))
    return [repr(text[max(found.start() - 20, 0) : found.end() + 20]) for found in OBEYED.finditer(text)]


def make_traps(parent: Path) -> None:
    """A repository around the task that names a program wherever git lets it, each of which leaves a trace."""

    def git(*words: str, folder: Path = parent) -> None:
        settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
        subprocess.run(["git", *settings, "-C", str(folder), *words], check=True, capture_output=True, timeout=30)

    def trap(name: str) -> str:
        path = parent / ".git" / f"trap-{name}"
        passes_on = "cat" if "filter" in name else "exit 1"
        path.write_text(f"#!/bin/sh\necho {name} >> '{parent / TRACE}'\n{passes_on}\n")
        path.chmod(0o755)
        return f"'{path}'"

    git("init", "-q", "-b", f"main{chr(0x9B)}5m")
    inner = parent / "inner"
    inner.mkdir()
    git("init", "-q", folder=inner)
    (inner / "tracked.txt").write_text("1")
    git("add", ".", folder=inner)
    git("commit", "-qm", "inner", folder=inner)
    git("add", ".")
    git("commit", "-qm", "first")
    for hook in HOOKS:
        link = parent / ".git" / "hooks" / hook
        link.unlink(missing_ok=True)
        link.symlink_to(trap(f"hook-{hook}").strip("'"))
    for place in (parent, inner):
        (place / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        keys = "core.fsmonitor core.pager pager.status core.sshCommand core.askPass core.editor credential.helper"
        keys += " diff.external diff.evil.textconv diff.evil.command merge.evil.driver filter.evil.clean"
        keys += " filter.evil.smudge gpg.program core.alternateRefsCommand sequence.editor"
        for key in keys.split():
            git("config", key, trap(f"{place.name}-{key}"), folder=place)
        git("config", "filter.evil.required", "true", folder=place)
    process = trap("process")
    with (parent / ".git" / "config").open("ab") as file:
        file.write(b'[filter "\xff"]\n\tprocess = ' + process.encode() + b"\n")
    with (parent / ".gitattributes").open("ab") as file:
        file.write(b"solution.py filter=\xff\n")
    (inner / "tracked.txt").write_text("2")
    _promise(parent)


def _promise(parent: Path) -> None:
    """An upstream whose commit is missing: git would fetch it with the repository's own command."""
    config = parent / ".git" / "config"
    branch = (parent / ".git" / "HEAD").read_text().strip().removeprefix("ref: refs/heads/")
    text = config.read_text(errors="surrogateescape").replace(
        "repositoryformatversion = 0", "repositoryformatversion = 1"
    )
    text += (
        '[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\turl = ssh://nowhere.invalid/x\n\tpromisor = true\n'
    )
    text += "\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
    text += f'[branch "{branch}"]\n\tremote = origin\n\tmerge = refs/heads/main\n'
    config.write_text(text, errors="surrogateescape")
    place = parent / ".git" / "refs" / "remotes" / "origin"
    place.mkdir(parents=True)
    (place / "main").write_text("1" * 40 + "\n")


def touch_all(parent: Path) -> None:
    """Let git doubt every file's hash: the same sizes, other times."""
    for path in parent.rglob("*"):
        if path.is_file() and ".git" not in path.parts and path.name != TRACE:
            os.utime(path, (1, 1))
