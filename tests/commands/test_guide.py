"""`kernbench guide`: the command, and whether its pages still say what the code does."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shared import stats, taskfile
from harness.shared.task import DEFAULT_TOLERANCE
from tests import ROOT

GUIDE = ROOT / "src" / "kernbench" / "guide"
TOPICS = sorted(path.stem for path in GUIDE.glob("*.md"))
FIRST_PAGES = {"architecture", "best", "tasks", "words"}
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
    assert set(TOPICS) >= FIRST_PAGES
    width = max(map(len, TOPICS))
    titles = [page(topic).splitlines()[0].removeprefix("# ") for topic in TOPICS]
    assert listed.stdout.splitlines() == [
        f"{topic:<{width}}  {title}" for topic, title in zip(TOPICS, titles, strict=True)
    ]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_pipe_gets_the_page_as_it_is(topic: str) -> None:
    shown = guide(topic)
    assert (shown.returncode, shown.stdout) == (0, page(topic))


def test_a_terminal_gets_the_page_through_the_pager(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    settings = {**os.environ, "PAGER": f"tee {tmp_path / 'paged'}", "TERM": "xterm"}
    command = [sys.executable, "-m", "kernbench", "guide", "best"]
    with subprocess.Popen(command, env=settings, stdin=theirs, stdout=theirs, stderr=theirs) as shown:
        os.close(theirs)
        with contextlib.suppress(OSError):  # how a pty says that its other end is closed
            while os.read(ours, 4096):
                pass
        os.close(ours)
    assert shown.returncode == 0
    assert (tmp_path / "paged").read_text(encoding="utf-8").rstrip() == page("best").rstrip()


@pytest.mark.parametrize(
    ("topic", "hint"), [("bset", "did you mean best?"), ("zzz", "`kernbench guide` lists the topics")]
)
def test_an_unknown_topic_is_one_sentence(topic: str, hint: str) -> None:
    refused = guide(topic)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"kernbench: the guide has no page {topic!r}; {hint}\n"


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
    assert rows(case).keys() == taskfile.CASE_KEYS


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
