"""What a kernel writes below its task's folder is reported with the run, before the row that it belongs to."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from harness.run import written_files
from tests.harness.child import Child, write_task

HEAD = "import os, pathlib, subprocess, sys, tempfile, torch\nHERE = pathlib.Path(FOLDER)\n"
TAIL = "\ndef scale(x, factor): return x * factor\n"


@pytest.fixture(scope="module")
def child() -> Any:
    with Child() as process:
        yield process


def wrote(events: list[dict[str, Any]]) -> tuple[set[str], bool]:
    told = [event for event in events if event["event"] == "wrote"]
    return {name for event in told for name in event["files"]}, any(event["unseen"] for event in told)


@pytest.mark.parametrize(
    ("code", "files", "unseen"),
    [
        ('(HERE / "made.py").write_text("x = 1")', {"made.py"}, False),
        ('open(HERE / "solution.py", "a").write("# more")', {"solution.py"}, False),
        ('os.close(os.open(bytes(HERE) + b"/made.h", os.O_WRONLY | os.O_CREAT))', {"made.h"}, False),
        (
            'name = tempfile.mkstemp(dir="/tmp")[1]; os.replace(name, HERE / "sub.py")',
            {"sub.py"},
            False,
        ),
        ('os.chdir(HERE); open("near.py", "w").close()', {"near.py"}, False),
        ('(HERE / "link").symlink_to("."); (HERE / "link" / "made.py").write_text("")', {"link", "made.py"}, False),
        ('(HERE / ".kernbench").mkdir(); (HERE / ".kernbench" / "made.py").write_text("")', set(), False),
        ('(HERE / "solution.py").read_text(); open(HERE / "task.toml").close()', set(), False),
        ('open("/dev/null", "w").write("x")', set(), False),
        ('subprocess.run(["true"])', set(), True),
        ('os.system("true")', set(), True),
    ],
)
def test_what_is_written_is_reported(child: Child, tmp_path: Path, code: str, files: set[str], unseen: bool) -> None:
    write_task(tmp_path, solution_py=HEAD.replace("FOLDER", repr(str(tmp_path))) + code + TAIL)
    events = child.run(tmp_path, cases=("small",))
    assert events[-1]["event"] == "finished", events[-1]
    assert wrote(events) == (files, unseen)
    assert [event["event"] for event in events].index("case") > max(
        [index for index, event in enumerate(events) if event["event"] == "wrote"], default=0
    )


def test_a_write_in_the_last_moment_is_reported_before_the_end(child: Child, tmp_path: Path) -> None:
    late = repr(str(tmp_path / "late.py"))
    write_task(tmp_path, solution_py=f"def scale(x, factor):\n    open({late}, 'w').close()\n    return x * factor\n")
    events = child.run(tmp_path, cases=("small",))
    assert wrote(events) == ({"late.py"}, False)  # once, however often it is called


TABLE = """
import pathlib, torch, common
HERE = pathlib.Path(FOLDER)

def make_inputs(case, seed, device):
    common.store(HERE / "table.txt")
    return {"x": torch.randn(case["rows"], case["columns"]), "factor": 2.0}

def scale(x, factor):
    return x * factor
"""
STORE = "def store(path): path.write_text('1 2 3')\n"


@pytest.mark.parametrize(
    ("code", "blamed"),
    [
        ("", set()),
        ('(HERE / "reference.py").read_text()', set()),
        ('(HERE / "made.py").write_text("x = 1")', set()),
        ('open(HERE / "reference.py", "a").close()', {"reference.py"}),
        ('(HERE / "cases.json").write_text("[]"); os.remove(HERE / "cases.json")', {"cases.json"}),
        ('import common; common.store(HERE / "table.txt")', {"table.txt"}),
        ('os.rename(HERE / "table.txt", HERE / "old.txt")', {"table.txt"}),
    ],
)
def test_a_source_is_blamed_for_task_files_that_it_writes_and_the_task_is_not(
    child: Child, tmp_path: Path, code: str, blamed: set[str]
) -> None:
    head, reference = (text.replace("FOLDER", repr(str(tmp_path))) for text in (HEAD, TABLE))
    write_task(tmp_path, solution_py=head + code + TAIL, reference_py=reference, common_py=STORE, table_txt="1 2 3")
    events = child.run(tmp_path, cases=("small",))
    told = [event for event in events if event["event"] == "wrote"]
    assert {name for event in told for name in event["task_files"]} == blamed
    assert "table.txt" in wrote(events)[0]


def test_a_failing_report_is_not_the_kernels_failure() -> None:
    with written_files.reported("/nowhere", "/nowhere", lambda event, **fields: None):
        for strange in (3, None, b"\xff", "\ud800"):
            written_files._hook("open", (strange, "w", 577))
        written_files._hook("open", ("x", None, None))


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (".kernbench/sources/5eed/solution.py", True),
        (".kernbench/sources/01d0/solution.py", True),
        (".kernbench/sources/5eed/made.txt", False),
        (".kernbench/build/made.so", False),
    ],
)
def test_stored_sources_are_the_tasks_own(tmp_path: Path, place: str, told: bool) -> None:
    source = tmp_path / ".kernbench" / "sources" / "5eed"
    for folder in (source, source.parent / "01d0", tmp_path / ".kernbench" / "build"):
        folder.mkdir(parents=True)
        (folder / "solution.py").touch()
    sent: list[list[str]] = []
    with written_files.reported(str(tmp_path), str(source), lambda _, **said: sent.append(said["task_files"])) as emit:
        (tmp_path / place).write_text("forged")
        emit("case", task_files=[])
    assert [place in names for names in sent[:1]] == [told]


WAYS = """
def write(path): path.open("a").write("forged")
def descriptor(path): os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"forged")
def replace(path): (path.parent / "other").write_text("forged"); os.replace(path.parent / "other", path)
def remove(path): path.unlink()
def truncate(path): os.truncate(path, 0)
def symlink(path): (path.parent / "link").symlink_to(path); (path.parent / "link").write_text("forged")
def link(path): os.link(path, path.parent / "link"); (path.parent / "link").write_text("forged")
def open_by_folder(path): os.open(path.name, os.O_WRONLY | os.O_APPEND, dir_fd=os.open(path.parent, os.O_RDONLY))
def remove_by_folder(path): os.remove(path.name, dir_fd=os.open(path.parent, os.O_RDONLY))
def rename_folder(path): os.rename(path.parent, str(path.parent) + ".aside")
def late(path): threading.Timer(0.2, lambda: write(path)).start()
"""


@pytest.mark.parametrize("place", ["ITERATIONS.md", ".kernbench/runs.jsonl"])
@pytest.mark.parametrize("way", re.findall(r"^def (\w+)", WAYS, re.MULTILINE))
def test_only_the_workbench_writes_the_log(child: Child, tmp_path: Path, way: str, place: str) -> None:
    source = tmp_path / ".kernbench" / "sources" / "5eed"
    path = source.parents[1] / "runs.jsonl" if "runs" in place else tmp_path / place
    code = f"import threading\n{WAYS}\n{way}(pathlib.Path({str(path)!r}))"
    write_task(source, solution_py=HEAD.replace("FOLDER", repr(str(tmp_path))) + code + TAIL)
    write_task(tmp_path, solution_py="")
    path.write_text("as it was")
    events = child.run(tmp_path, cases=("small",), source=source)
    if way != "late":
        assert events[-1]["event"] == "failed"
        assert "only kernbench writes its log" in events[-1]["message"]
    time.sleep(0.5 * (way == "late"))
    assert path.read_text() == "as it was"


def test_a_file_of_that_name_elsewhere_is_not_the_log(child: Child, tmp_path: Path) -> None:
    code = 'place = tempfile.mkdtemp()\nopen(place + "/runs.jsonl", "w").close()\n__import__("shutil").rmtree(place)'
    write_task(tmp_path, solution_py=HEAD.replace("FOLDER", repr(str(tmp_path))) + code + TAIL)
    assert child.run(tmp_path, cases=("small",))[-1]["event"] == "finished"


def test_no_other_audit_hook_is_added(child: Child, tmp_path: Path) -> None:
    """It would be given the addresses of the copies that are judged; a source that adds one is not harmed."""
    code = 'seen = []\nsys.addaudithook(lambda *about: seen.append(about))\nsys.audit("kb.mine")\nassert not seen'
    write_task(tmp_path, solution_py=HEAD.replace("FOLDER", repr(str(tmp_path))) + code + TAIL)
    assert child.run(tmp_path, cases=("small",))[-1]["event"] == "finished"
