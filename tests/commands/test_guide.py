"""`kernbench guide`: the command, and whether its pages still say what the code does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from harness.shared import stats, taskfile
from harness.shared.findings import DEFINITIONS
from harness.shared.task import DEFAULT_TOLERANCE
from harness.shared.taskfile import case_tables
from tests import ROOT

GUIDE = ROOT / "src" / "kernbench" / "guide"
TOPICS = sorted(path.stem for path in GUIDE.glob("*.md"))
WANTED = set(
    "first keys tasks words troubleshooting numbers trust best findings ncu log sharing suites scripting configuration"
    " remote cuda host architecture t4 a100 h100 b200".split()
)
NAMED_PATH = re.compile(r"`((?:src|harness)/[\w./]*)`")


def guide(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernbench", "guide", *words]
    settings = {**os.environ, **environment}
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)


def page(topic: str) -> str:
    return (GUIDE / f"{topic}.md").read_text(encoding="utf-8")


def test_without_a_topic_it_lists_them_with_their_titles() -> None:
    listed = guide()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert set(TOPICS) >= WANTED
    width = max(map(len, TOPICS))
    rows = [line for line in listed.stdout.splitlines() if line.startswith("  ")]
    assert sorted(rows) == [f"  {topic:<{width}}  {page(topic).splitlines()[0].removeprefix('# ')}" for topic in TOPICS]
    assert [line for line in listed.stdout.splitlines() if line not in rows][:2] == ["Start:", "Numbers:"]
    assert rows[0].split()[0] == "first"


def test_a_line_of_the_list_fits_a_narrow_terminal() -> None:
    assert [line for line in guide().stdout.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("topic", TOPICS)
def test_a_pipe_gets_the_page_as_it_is(topic: str) -> None:
    shown = guide(topic)
    assert (shown.returncode, shown.stdout) == (0, page(topic))


def test_a_terminal_gets_the_page_through_the_pager_in_its_width(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    settings |= {"PAGER": f"tee {tmp_path / 'paged'}", "TERM": "xterm"}
    command = [sys.executable, "-m", "kernbench", "guide", "host"]
    with subprocess.Popen(command, env=settings, stdin=theirs, stdout=theirs, stderr=theirs) as shown:
        os.close(theirs)
        with contextlib.suppress(OSError):  # how a pty says that its other end is closed
            while os.read(ours, 4096):
                pass
        os.close(ours)
    assert shown.returncode == 0
    shown_lines = (tmp_path / "paged").read_text(encoding="utf-8").splitlines()
    assert shown_lines[0] == page("host").splitlines()[0].removeprefix("# ")
    assert shown_lines[1] == "=" * len(shown_lines[0])
    assert [line for line in shown_lines if len(line) > 72 and not line.startswith("    ")] == []
    assert "    _cpp.add(x, y, out, x.numel(), float(scale))" in "\n".join(shown_lines)


def section(name: str) -> str:
    """The section of the page about findings, as it is there."""
    return next(part for part in re.split(r"\n(?=## )", page("findings")) if part.startswith(f"## {name}\n"))


@pytest.mark.parametrize("words", [["left between calls"], ["Left", "between", "CALLS"]])
def test_the_name_of_a_finding_prints_its_section_alone(words: list[str]) -> None:
    shown = guide(*words)
    assert (shown.returncode, shown.stdout) == (0, section("left between calls"))


def test_every_name_of_a_finding_is_found() -> None:
    from click.testing import CliRunner

    from kernbench.commands.guide import guide as command

    for name in {known.name for known in DEFINITIONS.values()}:
        assert CliRunner().invoke(command, [name]).output.startswith(f"## {name}\n\n`"), name


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("bset", " (did you mean best?)"), ("unstedy", " (did you mean unsteady?)"), ("zzz", "")],
)
def test_an_unknown_topic_is_one_sentence(topic: str, hint: str) -> None:
    refused = guide(topic)
    assert (refused.returncode, refused.stdout) == (2, "")
    pages = "`kernbench guide` lists its pages"
    assert refused.stderr == f"kernbench: the guide has no page or finding {topic!r}{hint}; {pages}\n"


def test_topics_are_completed() -> None:
    asked = {"_KERNBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "kernbench guide ar", "COMP_CWORD": "2"}
    assert guide(**asked).stdout.split() == ["plain,architecture"]


def test_every_path_in_architecture_exists() -> None:
    named = NAMED_PATH.findall(page("architecture"))
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_folder_of_code_is_in_architecture() -> None:
    files = [*(ROOT / "src" / "kernbench").rglob("*.py"), *(ROOT / "harness").rglob("*.py")]
    folders = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in files if "templates" not in path.parts}
    named = set(NAMED_PATH.findall(page("architecture")))
    assert folders - named == {"src/kernbench/", "harness/"}


def rows(text: str) -> dict[str, str]:
    """The first two cells of the rows of a table of keys."""
    found = re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def test_tasks_lists_every_key_and_no_other() -> None:
    task, case = re.findall(r"^## (?:task\.toml|Keys of a case).*?(?=^## )", page("tasks"), re.MULTILINE | re.DOTALL)
    assert rows(task).keys() == taskfile.TASK_KEYS
    assert rows(case).keys() == case_tables.CASE_KEYS


def test_tasks_has_the_true_defaults(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text('entry = "f"\n[[case]]\nid = "a"\n')
    (tmp_path / "reference.py").write_text("def make_inputs(): ...\ndef f(): ...\n")
    (tmp_path / "solution.py").write_text("def f(): ...\n")
    task, text = taskfile.load(tmp_path), page("tasks")
    said = rows(text.partition("## Keys of a case")[0])
    assert said["device"] == f"`{task.device}`"
    assert said["threads"] == str(task.threads)
    assert said["layout"] == f"`{task.layout}`"
    assert said["baseline"].endswith(f"else `{task.baseline}`")
    for dtype, bounds in DEFAULT_TOLERANCE.items():
        number = re.search(rf"\b{dtype}\s+(\d+e-\d+)", text.partition("Default tolerances")[2])
        assert number is not None
        assert (float(number[1]), float(number[1])) == (bounds.atol, bounds.rtol)


def test_best_names_the_true_limits() -> None:
    limits = {f"{1 + stats.MARGIN:.2f}x", f"{stats.WORST_HEADLINE:.2f}x"}
    assert set(re.findall(r"\d\.\d+x", page("best"))) == limits


def test_findings_says_of_every_code_whether_it_disqualifies() -> None:
    """In the section with its name; every section is about a finding."""
    wanted: dict[str, dict[str, str]] = {}
    for code, known in DEFINITIONS.items():
        wanted.setdefault(known.name, {})[code] = "disqualifies" if known.disqualifying else "is a note"
    names = re.findall(r"^## (.*)$", page("findings"), re.MULTILINE)
    said = {
        name: dict(re.findall(r"`(\w+)` (disqualifies|is a note)", " ".join(section(name).split()))) for name in names
    }
    assert said == wanted
    assert names == sorted(wanted, key=str.lower)


def test_a_section_about_a_finding_is_short() -> None:
    for name in {known.name for known in DEFINITIONS.values()}:
        text = " ".join(section(name).split("\n")[2:])
        assert 2 <= len(re.findall(r"[.?](?= |$)", text)) <= 5, name
        assert len(text) < 480, name


def test_every_page_that_a_page_names_exists() -> None:
    named = {name for topic in TOPICS for name in re.findall(r"`kernbench guide ([a-z0-9]+)`", page(topic))}
    sections = set(re.findall(r"^## (.*)$", page("findings"), re.MULTILINE))
    assert named <= {*TOPICS, *sections}
    assert named >= {"trust", "findings"}
