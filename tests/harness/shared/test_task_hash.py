"""The task hash: what decides right and fast changes it, nothing else does, and every Python gives the same one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.shared import taskfile, used_files
from harness.shared.lines import to_dict
from harness.shared.task import Task, old_task_hash, task_hash
from harness.shared.used_files import reached
from tests import ROOT
from tests.pythons import pythons

FILES = {
    "task.toml": 'name = "toy"\nentry = "toy"\nbaseline = "baseline.py"\nsummary = "s"\n'
    '[tolerance]\nfloat32 = { atol = 1e-4, rtol = 1e-4 }\n[[smoke]]\nid = "small"\naxes = { rows = 2 }\n',
    "cases.json": json.dumps([{"id": "a", "label": "A", "models": ["m"], "known": {"us": 1}, "axes": {"rows": 8}}]),
    "reference.py": "from parts import maths\n\n\ndef make_inputs(case, seed, device):\n    return {}\n\n\n"
    "def toy():\n    return maths.f('table.npy')  # a comment\n",
    "parts/__init__.py": "",
    "parts/maths.py": "from .inner import g\n\n\ndef f(x):\n    return g(x)\n",
    "parts/inner.py": "def g(x):\n    return x\n",
    "table.npy": "0123",
    "baseline.py": "from harness import host\n\nlibrary = host.load('fast.cpp')\n\n\ndef toy():\n    return 1\n",
    "fast.cpp": '#include "fast.h"\nint f() { return 1; }  // one\n',
    "fast.h": "#define ONE 1\n",
    "solution.py": "from helper import h\n\n\ndef toy():\n    return h()\n",
    "helper.py": "def h():\n    return 1\n",
    "notes.md": "plan\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def edited(folder: Path, name: str, old: str, new: str) -> str:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return taskfile.load(folder).hash


COUNTS = {
    "a tolerance": ("task.toml", "atol = 1e-4", "atol = 1e-3"),
    "the share that must match": ("task.toml", "atol = 1e-4", "matched = 0.99, atol = 1e-4"),
    "a cap on errors": ("task.toml", "atol = 1e-4", "cap = 1, atol = 1e-4"),
    "a tolerance of a case": ("cases.json", '"label": "A"', '"tolerance": {"float32": {"atol": 1e-4, "rtol": 1e-4}}'),
    "the judge": ("task.toml", 'summary = "s"', 'summary = "s"\njudge = "reference"'),
    "the dtype of outputs": ("task.toml", 'summary = "s"', 'summary = "s"\ndtype = "any"'),
    "the entry's baseline": ("task.toml", 'baseline = "baseline.py"', 'baseline = "eager"'),
    "a size": ("cases.json", '"rows": 8', '"rows": 9'),
    "a headline": ("cases.json", '"label": "A"', '"kind": "smoke"'),
    "the reference": ("reference.py", "maths.f(", "-maths.f("),
    "what it imports": ("parts/maths.py", "g(x)", "g(x) + 1"),
    "what that imports": ("parts/inner.py", "return x", "return -x"),
    "a table that it names": ("table.npy", "0123", "0124"),
    "the baseline": ("baseline.py", "return 1", "return 2"),
    "the C++ that it loads": ("fast.cpp", "return 1", "return 2"),
    "a header of that": ("fast.h", "ONE 1", "ONE 2"),
}
DOES_NOT = {
    "a comment in task.toml": ("task.toml", "[tolerance]", "# loose\n[tolerance]"),
    "the name": ("task.toml", 'name = "toy"', 'name = "toys"'),
    "the summary": ("task.toml", 'summary = "s"', 'summary = "other"'),
    "a default written out": ("task.toml", 'summary = "s"', 'summary = "s"\nthreads = 1\nlayout = "reference"'),
    "a default tolerance written out": (
        "task.toml",
        "[tolerance]",
        "[tolerance]\nfloat64 = { atol = 1e-9, rtol = 1e-9 }",
    ),
    "a share of all values written out": ("task.toml", "atol = 1e-4", "matched = 1, atol = 1e-4"),
    "the default judge written out": ("task.toml", 'summary = "s"', 'summary = "s"\njudge = "truth"'),
    "an empty tolerance of a case": ("cases.json", '"label": "A"', '"label": "A", "tolerance": {}'),
    "what is ignored": ("task.toml", 'summary = "s"', 'summary = "s"\nignore = ["out.pt"]'),
    "that libraries are allowed": ("task.toml", 'summary = "s"', 'summary = "s"\nlibraries = true'),
    "a label": ("cases.json", '"label": "A"', '"label": "B"'),
    "a model": ("cases.json", '["m"]', '["m", "n"]'),
    "a known time": ("cases.json", '"us": 1', '"us": 2'),
    "a weight": ("cases.json", '"us": 1}', '"us": 1}, "weight": 12.5'),
    "the layout of cases.json": ("cases.json", ", ", ",\n  "),
    "a comment in the reference": ("reference.py", "# a comment", "# another"),
    "the layout of the reference": ("reference.py", "    return {}", "    return (\n        {}\n    )"),
    "a comment in C++": ("fast.cpp", "// one", "// two"),
    "the solution": ("solution.py", "return h()", "return h() + 1"),
    "its helper": ("helper.py", "return 1", "return 2"),
    "notes": ("notes.md", "plan", "plans"),
}


@pytest.mark.parametrize("change", COUNTS.values(), ids=COUNTS)
def test_what_decides_right_and_fast_changes_the_hash(folder: Path, change: tuple[str, str, str]) -> None:
    before = taskfile.load(folder).hash
    assert edited(folder, *change) != before


@pytest.mark.parametrize("change", DOES_NOT.values(), ids=DOES_NOT)
def test_nothing_else_does(folder: Path, change: tuple[str, str, str]) -> None:
    before = taskfile.load(folder).hash
    assert edited(folder, *change) == before


def test_a_field_added_later_changes_no_hash(folder: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class LaterTask(Task):
        warmth: str = "cold"

    task = taskfile.load(folder)
    later = LaterTask(**task.__dict__)
    assert task_hash(later) == task.hash
    assert task_hash(dataclasses.replace(later, warmth="warm")) != task.hash


def test_a_task_without_later_keys_has_the_hash_it_always_had(folder: Path) -> None:
    """As the version before `judge`, `dtype` and shares gave it."""
    assert taskfile.load(folder).hash == "3d752e142856331c"


def test_the_old_hash_is_over_bytes(folder: Path) -> None:
    """As 0.1.0 gave it: what it gave for these very files."""
    before = taskfile.load(folder)
    assert before.old_hash == old_task_hash(folder, "baseline.py") != before.hash
    edited(folder, *DOES_NOT["a comment in task.toml"])
    assert taskfile.load(folder).old_hash != before.old_hash


def test_the_old_hash_of_a_shipped_task_is_the_one_in_its_log() -> None:
    """Its entries were made with it; git keeps these files as they were then."""
    task = taskfile.load(ROOT / "kernels" / "softmax_host")
    assert f"task {task.old_hash[:8]} " in (ROOT / "kernels" / "softmax_host" / "ITERATIONS.md").read_text()


def test_the_tasks_files_are_those_that_it_uses(folder: Path) -> None:
    inner = ["parts/__init__.py", "parts/inner.py", "parts/maths.py", "table.npy"]
    assert sorted(taskfile.load(folder).files) == sorted(["baseline.py", "fast.cpp", "fast.h", "reference.py", *inner])
    assert reached(folder, ["solution.py"]) == ["solution.py", "helper.py"]


def test_kept_runs_and_exports_are_not_looked_through(folder: Path) -> None:
    before = taskfile.load(folder).files
    for place in ("runs/sources/ab", "exports", ".hidden"):
        (folder / place).mkdir(parents=True)
        (folder / place / "table.npy").write_text("another")
    (folder / "runs" / "runs.jsonl").write_text("")
    assert taskfile.load(folder).files == before


@pytest.mark.long
def test_every_python_gives_the_same_hash(folder: Path) -> None:
    (folder / "parts" / "inner.py").write_text(
        "def g(x, /, *a, k=0x10, **kw) -> int:\n    match x:\n        case [1, *_] | None:\n            pass\n"
        "    y = f'{x!r:>{k}} {k=} {x:}' \"é\" f'z'\n    with open(y) as a, open(y) as b: ...\n"
        "    return lambda: (yield) or 1_000.5e3j or b'\\x00' or ... or y[1:2, ::3]\n"
    )
    task = taskfile.load(folder)
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from harness.shared.lines import decode\nfrom harness.shared.task import Task\n"
        "from harness.shared.task import task_hash\n"
        "print(task_hash(decode(Task, json.load(sys.stdin))))"
    )
    given = json.dumps(to_dict(task))
    for python in pythons():
        command = [python, "-I", "-c", code, str(ROOT)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=30)
        assert done.stdout.strip() == task.hash, f"{python}: {done.stderr}"


def test_a_large_file_is_hashed_once_and_not_looked_through(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "table.npy").write_bytes(b"x" * (3 << 20) + b'"notes.md"')
    first = taskfile.load(folder)
    assert "notes.md" not in first.files
    opened: list[Path] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more))
    assert taskfile.load(folder).hash == first.hash
    assert folder / "table.npy" not in opened
    with real(folder / "table.npy", "ab") as file:
        file.write(b"y")
    assert taskfile.load(folder).hash != first.hash


def test_a_pipe_that_is_named_is_not_read(folder: Path) -> None:
    (folder / "table.npy").unlink()
    os.mkfifo(folder / "table.npy")
    assert "table.npy" not in taskfile.load(folder).files


def test_an_import_is_found_by_either_name_of_a_linked_folder(folder: Path) -> None:
    (folder / "alias").symlink_to(folder / "parts")
    (folder / "up").symlink_to(folder.parent)
    before = taskfile.load(folder)
    assert {"parts/maths.py", "parts/inner.py"} <= set(before.files)
    assert not any(name.startswith("up/") for name in before.files)
    assert edited(folder, *COUNTS["what that imports"]) != before.hash


def test_a_folder_full_of_data_hides_no_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = taskfile.load(folder)
    monkeypatch.setattr(used_files, "MOST_FILES", 20)
    (folder / "data").mkdir()
    for number in range(40):
        (folder / "data" / f"{number}.bin").write_text("")
    assert taskfile.load(folder).hash == before.hash


def test_the_solution_is_never_a_file_of_the_task(folder: Path) -> None:
    before = taskfile.load(folder)
    edited(folder, "reference.py", "# a comment", "# see 'solution.py'")
    assert taskfile.load(folder).files == before.files


def test_the_folder_solution_is_the_solution_only_beside_an_adapter(folder: Path) -> None:
    (folder / "solution").mkdir()
    (folder / "solution" / "table.py").write_text("A = 1\n")
    edited(folder, "reference.py", "# a comment", "# see 'table.py'")
    assert "solution/table.py" in taskfile.load(folder).files
    (folder / "bench").mkdir()
    (folder / "bench" / "adapter.py").write_text("")
    assert "solution/table.py" not in taskfile.load(folder).files
