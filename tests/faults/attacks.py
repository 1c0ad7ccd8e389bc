"""A stranger's task: escapes in every field, paths that lead out, a repository that runs things, code in every file."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kernbench.task import snapshot
from tests import FAKE
from tests.faults.row import Command, Fault, Outcome, Stage
from tests.faults.task_files import as_line, logged, put, run_line
from tests.faults.workbench import GOOD, TASK, settings

OWNED = "\x1b]0;owned\x07\x1b[31m\x9b31m\u202e"
"""A title, a color in both spellings, and a reversal of the text."""
FORMULA = "=cmd|'/C calc'!A0"
SOURCE = "ab" * 32


def command_row(
    name: str, done: str, prepare: Callable[[Path], None], words: str, says: str = "", **more: object
) -> Command:
    return Command(name=name, group="attacks", done=done, prepare=prepare, words=words, says=says, **more)  # type: ignore[arg-type]


def escaped(folder: Path) -> None:
    """Escapes in every field that a task and its log have."""
    text = json.dumps(f"red{OWNED}end")
    put(
        folder,
        "task.toml",
        TASK.replace('name = "softmax"', f"name = {text}\nsummary = {text}").replace(
            'id = "a_8x32"', f"id = {text}\nlabel = {text}"
        ),
    )
    row = {"event": "case", "id": f"red{OWNED}end", "status": "wrong", "detail": f"red{OWNED}end", "checked": 2,
           "findings": [{"name": f"red{OWNED}end", "help": f"red{OWNED}end", "red": False}], "run": "20261114T000000-abc"}  # fmt: skip
    start = {
        "event": "start",
        "run": "20261114T000000-abc",
        "schema": 1,
        "task": f"red{OWNED}end",
        "source": SOURCE,
        "cases": [],
    }
    line = run_line(source=SOURCE, hypothesis=f"red{OWNED}end", next=f"red{OWNED}end", command=f"red{OWNED}end", baseline=f"red{OWNED}end",
                    not_best=f"red{OWNED}end", environment={"device": "cpu", "device_name": f"red{OWNED}end", "condition": f"red{OWNED}end"})  # fmt: skip
    entry = f"# I\n\n## 1 · red{OWNED}end · 1.50x · first\n- when 2026-11-14 00:00 UTC · source {SOURCE[:8]} · red{OWNED}end\n- hypothesis: red{OWNED}end\n- result: red{OWNED}end\n"
    logged(as_line(start), as_line(row), line, entries=entry)(folder)
    kept = folder / ".kernbench" / "sources" / SOURCE
    kept.mkdir(parents=True)
    (kept / "solution.py").write_text(GOOD + f"# red{OWNED}end\n")


def clean_log(folder: Path) -> str | None:
    data = (folder / "ITERATIONS.md").read_bytes().partition(b"## 2 ")[2]
    return "ITERATIONS.md has an escape" if b"\x1b" in data or b"\x07" in data or b"\xc2\x9b" in data else None


ESCAPES: list[Fault] = [
    command_row("F8 escapes in a task: status", "names, labels, ids, log", escaped, "status", "red", quick=True),
    command_row("F8 escapes in a task: log", "the same", escaped, "log", "red", quick=True),
    command_row("F8 escapes in a task: show", "the same", escaped, "show . 1", "red"),
    command_row("F8 escapes in a task: show --source", "the same", escaped, "show . 1 --source", "red"),
    command_row("F8 escapes in a task: diff", "the same", escaped, "diff . 1 now", "red"),
    command_row("F8 escapes in a task: run", "the same", escaped, "run . -m words", "red", also=clean_log, quick=True),
    *(
        command_row(f"F8 escapes in a task: export {kind}", "the same", escaped, f"export . --format {kind} -o -", "red")
        for kind in ("md", "csv", "json", "html")
    ),
]  # fmt: skip


def formula(folder: Path) -> None:
    row = {
        "event": "case",
        "id": "a_8x32",
        "status": "wrong",
        "detail": FORMULA,
        "checked": 2,
        "run": "20261114T000000-abc",
    }
    line = run_line(
        source=SOURCE,
        hypothesis=FORMULA,
        baseline=FORMULA,
        command="@SUM(A1)",
        next="+1+1",
        environment={"device": "cpu", "device_name": "-1-1"},
    )
    logged(
        as_line(row),
        line,
        entries=f"## 1 · {FORMULA} · 1.50x · first\n- when 2026-11-14 00:00 UTC · source {SOURCE[:8]}\n- hypothesis: {FORMULA}\n",
    )(folder)


def markup(folder: Path) -> None:
    bad = "<script>alert(1)</script><img src=http://evil/x.png onerror=alert(1)> ![x](http://evil/y.png)"
    put(folder, "task.toml", TASK.replace('name = "softmax"', f'name = "softmax"\nsummary = {json.dumps(bad)}'))
    logged(
        run_line(source=SOURCE, hypothesis=bad),
        entries=f"## 1 · x · 1.50x · first\n- when 2026-11-14 00:00 UTC · source {SOURCE[:8]}\n- hypothesis: {bad}\n",
    )(folder)


def no_formula(folder: Path) -> str | None:
    """No cell of the csv may begin as a formula does; it must have the cells."""
    with (folder / "out.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    if not any("calc" in cell for cell in cells):
        return "the csv lacks the cells"
    bad = [cell for cell in cells if cell[:1] in tuple("=@\t") or (cell[:1] in tuple("+-") and not _is_number(cell))]
    return f"cells are formulas: {bad}" if bad else None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell in ("", "-")
    return True


# -- paths that lead out of the folder --------------------------------------------------------------------------------


def led_out(source: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        secret = folder.parent / "secret"
        secret.mkdir()
        (secret / "solution.py").write_text("# the secret of another folder\n")
        where = source.replace("ROOT", str(secret))
        logged(run_line(source=where), entries="## 1 · x · 1.50x · first\n- hypothesis: h\n")(folder)
        (folder / ".kernbench" / "sources").mkdir()

    return act


def untouched(folder: Path) -> str | None:
    return None if (folder / "solution.py").read_text() == GOOD else "solution.py was overwritten"


def linked_out(folder: Path) -> None:
    """solution.py and ITERATIONS.md are links to files elsewhere."""
    kept = snapshot.keep({"solution.py": f"{GOOD}# restored\n".encode()}, folder / ".kernbench")
    put(folder, ".kernbench/runs.jsonl", run_line(source=kept.sha))
    for name in ("solution.py", "ITERATIONS.md"):
        (folder.parent / f"others_{name}").write_text(GOOD)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(folder.parent / f"others_{name}")


def others_untouched(folder: Path) -> str | None:
    changed = [
        name for name in ("solution.py", "ITERATIONS.md") if (folder.parent / f"others_{name}").read_text() != GOOD
    ]
    return f"the file behind the link {changed} was changed" if changed else None


PATHS: list[Fault] = [
    *(
        command_row(f"F11 a run's source is {kind}: {words.split()[0]}", done, led_out(source), words, never="secret of another", code=2,
                    also=untouched, quick=kind == "a path upward")
        for kind, done, source in (("a path upward", '"source": "../../../secret"', "../../../secret"), ("an absolute path", '"source": "/.../secret"', "ROOT"))
        for words in ("show . 1 --source", "restore . 1")
    ),
    command_row("F11 restore over a link", "solution.py leads to a file elsewhere", linked_out, "restore . 1", "link", code=None, also=others_untouched, quick=True),
    command_row("F11 ITERATIONS.md is a link", "it leads to a file elsewhere; a run makes an entry", linked_out, "run . -m words", r"ITERATIONS\.md", code=None, also=others_untouched, quick=True),
]  # fmt: skip

# -- code that nothing may run ----------------------------------------------------------------------------------------

LOOKS = (
    "status",
    "log",
    "show . 1",
    "show . 1 --source",
    "diff . 1 now",
    "export . --format md -o -",
    "export . --format pr -o out --before 1 --after 1",
    "doctor .",
    "doctor --repo .",
    "port . --to other.py --from 1 --dry-run",
)


def traced(folder: Path) -> None:
    """A repository whose every hook, filter and program leaves a trace, and a task whose every module does."""
    trace, script = folder.parent / "trace", folder.parent / "leave_a_trace"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {trace}\ncat 2> /dev/null < /dev/null\nexit 0\n')
    script.chmod(0o755)
    plain = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env=plain)

    logged(
        run_line(source=SOURCE),
        entries=f"## 1 · x · 1.50x · first\n- when 2026-11-14 00:00 UTC · source {SOURCE[:8]}\n- hypothesis: h\n",
    )(folder)
    kept = folder / ".kernbench" / "sources" / SOURCE
    kept.mkdir(parents=True)
    (kept / "solution.py").write_text(GOOD)
    (folder / "other.py").write_text("# a file to be replaced\n")
    git("init", "-q")
    git("-c", "user.name=a", "-c", "user.email=a@b", "add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    (folder / ".gitattributes").write_text("* filter=bad diff=bad merge=bad\n")
    (folder / "solution.py").write_text(GOOD + "# changed\n")
    for key in ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external", "diff.bad.command", "diff.bad.textconv", "filter.bad.clean", "filter.bad.smudge",
                "filter.bad.process", "merge.bad.driver", "credential.helper", "gpg.program", "pager.log", "pager.diff", "pager.status", "interactive.diffFilter", "uploadpack.packObjectsHook"):  # fmt: skip
        git("config", key, str(script))
    git("config", "core.hooksPath", str(folder.parent / "hooks"))
    (folder.parent / "hooks").mkdir()
    for hook in (
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "post-checkout",
        "fsmonitor-watchman",
        "pre-auto-gc",
        "post-merge",
    ):
        (folder.parent / "hooks" / hook).symlink_to(script)
    mark = f"open({str(trace)!r}, 'a').write('code\\n')\n"
    for name in ("reference.py", "solution.py", "conftest.py", "sitecustomize.py"):
        path = folder / name
        path.write_text((path.read_text() if path.exists() else "") + mark)


def no_trace(folder: Path) -> str | None:
    trace = folder.parent / "trace"
    return f"it ran {trace.read_text().splitlines()[0]!r}" if trace.exists() else None


class Look(Command):
    """Whether it succeeds does not matter here; that nothing ran does."""

    def act(self, stage: Stage, outcome: Outcome) -> None:
        super().act(stage, outcome)
        outcome.wrong[:] = [sentence for sentence in outcome.wrong if not sentence.startswith("exits with")]


def completes(folder: Path) -> str | None:
    """Completion of a task's name runs nothing either."""
    given = settings(
        "command",
        KERNBENCH_HARNESS=str(FAKE),
        _KERNBENCH_COMPLETE="bash_complete",
        COMP_WORDS="kernbench run ",
        COMP_CWORD="2",
    )
    subprocess.run(
        [sys.executable, "-m", "kernbench"], cwd=folder, env=given, capture_output=True, check=False, timeout=20
    )
    return no_trace(folder)


TRACES: list[Fault] = [
    *(
        Look(name=f"a task is code, and {words.replace(' . ', ' ').partition(' -o')[0]} runs none", group="attacks", prepare=traced, words=words, also=no_trace, quick=words in ("status", "doctor --repo ."),
             done="every git hook, filter, driver and module leaves a trace", within=60.0, megabytes=0)
        for words in LOOKS
    ),
    Look(name="a task is code, and completion runs none", group="attacks", prepare=traced, words="status", also=completes, done="the same"),
]  # fmt: skip
ATTACKS: list[Fault] = [
    *ESCAPES,
    command_row("F8 formulas in a csv", "= @ + - at the start of a cell", formula, "export . --format csv -o out.csv", also=no_formula, quick=True),
    command_row("F8 markup in a md", "<script>, <img>, a remote image in summary and hypothesis", markup, "export . --format md -o -", never=r"(?<!\\)(<script|<img|!\[x\]\(http)"),
    command_row("F8 markup in a html", "the same", markup, "export . --format html -o -", never=r"<script>alert|<img src=http|onerror=alert\(1\)>"),
    *PATHS,
    *TRACES,
]  # fmt: skip
