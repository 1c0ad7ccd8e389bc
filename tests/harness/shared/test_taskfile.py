"""A task that cannot be used gives one sentence with file and key; one that can is read whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.lines import decode, to_dict
from harness.shared.task import Task, Tolerance
from harness.shared.taskfile.values import TaskError
from harness.shared.used_files import reached
from kernbench.task.lookup import shipped_tasks

GOOD = """
name = "toy"
entry = "toy"
device = "cpu"
[tolerance]
float32 = { atol = 1e-3, rtol = 2e-3 }
[[case]]
id = "small"
axes = { rows = 4, dtype = "float32" }
[[smoke]]
id = "tiny"
axes = { rows = 1, dtype = "float32" }
[grid]
rows = [1, 3]
dtype = ["float32", "float16"]
"""
REFERENCE = "def make_inputs(case, seed, device, spread=1.0, offset=0.0): ...\ndef toy(x): ...\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(GOOD)
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "solution.py").write_text("def toy(x): ...\n")
    return tmp_path


def refusal(folder: Path) -> TaskError:
    with pytest.raises(TaskError) as caught:
        taskfile.load(folder)
    assert "\n" not in str(caught.value)
    return caught.value


MALFORMED = [
    ("no entry", ('entry = "toy"\n', ""), "entry", "missing"),
    ("entry is no name", ('entry = "toy"', 'entry = "to y"'), "entry", "not a function name"),
    ("entry not in reference.py", ('entry = "toy"', 'entry = "other"'), "entry", "does not define 'other'"),
    ("unknown key", ('device = "cpu"', 'devise = "cpu"'), "devise", "unknown key"),
    ("unknown key in a case", ('id = "small"', 'id = "small"\nshape = [1]'), "case[0].shape", "unknown key"),
    ("unknown device", ('device = "cpu"', 'device = "tpu"'), "device", "not one of cuda, cpu"),
    ("unknown dtype", ('4, dtype = "float32"', '4, dtype = "float23"'), "case[0].axes.dtype", "'float23'"),
    ("unknown dtype in the grid", ('"float16"', '"half"'), "grid.dtype", "'half'"),
    ("unknown dtype in the tolerance", ("float32 = {", "float23 = {"), "tolerance.float23", "not a torch dtype"),
    ("negative tolerance", ("atol = 1e-3", "atol = -1"), "tolerance.float32", "non-negative"),
    ("a share above 1", ("atol = 1e-3", "matched = 1.5"), "tolerance.float32.matched", "up to 1, not 1.5"),
    ("no share", ("atol = 1e-3", "matched = 0"), "tolerance.float32.matched", "above 0"),
    ("a negative cap", ("atol = 1e-3", "cap = -0.1"), "tolerance.float32.cap", "non-negative number, not -0.1"),
    ("a share of a word", ("atol = 1e-3", 'matched = "most"'), "tolerance.float32.matched", "not 'most'"),
    (
        "a tolerance of a case without a dtype",
        ('id = "small"', 'id = "small"\ntolerance = { atol = 1e-3 }'),
        "case[0].tolerance.atol",
        "not a torch dtype",
    ),
    (
        "unknown key in a tolerance",
        ("atol = 1e-3", "absolute = 1e-3"),
        "tolerance.float32.absolute",
        "the known keys are atol, cap, matched, rtol",
    ),
    ("an unknown judge", ('device = "cpu"', 'judge = "me"'), "judge", "not one of truth, reference, check"),
    ("a judge without a check", ('device = "cpu"', 'judge = "check"'), "judge", "does not define 'check', which judge"),
    ("an unknown choice of dtype", ('device = "cpu"', 'dtype = "half"'), "dtype", "not one of reference, any"),
    ("two cases with one id", ('id = "tiny"', 'id = "small"'), "case 'small'", "two cases have this id"),
    ("a case without an id", ('id = "small"\n', ""), "case[0].id", "missing"),
    ("a headline that is not timed", ('id = "tiny"', 'id = "tiny"\nheadline = true'), "smoke[0].headline", "timed"),
    (
        "no weight",
        ('id = "small"', 'id = "small"\nweight = 0'),
        "case[0].weight",
        "a number from 1e-09 to 1e+09, not 0",
    ),
    ("a weight as text", ('id = "small"', 'id = "small"\nweight = "2"'), "case[0].weight", "a number from"),
    ("a weight that is true", ('id = "small"', 'id = "small"\nweight = true'), "case[0].weight", "not True"),
    ("an endless weight", ('id = "small"', 'id = "small"\nweight = inf'), "case[0].weight", "a date or another value"),
    ("a huge weight", ('id = "small"', 'id = "small"\nweight = 1e10'), "case[0].weight", "a number from"),
    ("no such baseline", ('device = "cpu"', 'baseline = "other.py"'), "baseline", "is not eager, compile, or a file"),
    ("a baseline in a folder", ('device = "cpu"', 'baseline = "sub/base.py"'), "baseline", "a file next to task.toml"),
    (
        "an unknown side",
        ('device = "cpu"', 'compare = ["fast.py"]'),
        "compare",
        "'fast.py' is not eager, compile, or a",
    ),
    ("the baseline again", ('device = "cpu"', 'compare = ["eager"]'), "compare", "'eager' is the baseline; name other"),
    ("a side twice", ('device = "cpu"', 'compare = ["compile", "compile"]'), "compare", "'compile' is named twice"),
    ("the solution as a side", ('device = "cpu"', 'compare = ["solution.py"]'), "compare", "is the solution"),
    ("too many sides", ('device = "cpu"', f"compare = {['compile'] * 5}"), "compare", "names 5 sides; use at most 4"),
    ("sides without a list", ('device = "cpu"', 'compare = "compile"'), "compare", "a list of strings"),
    ("no threads", ('device = "cpu"', "threads = 0"), "threads", "an integer from 1 to 1024, not 0"),
    (
        "an ignored solution",
        ('device = "cpu"', 'ignore = ["*.py"]'),
        "ignore",
        "'*.py' matches solution.py, which every run",
    ),
    (
        "libraries by name",
        ('device = "cpu"', 'libraries = ["cublas"]'),
        "libraries",
        "must be true or false, not ['cublas']",
    ),
    ("libraries as a number", ('device = "cpu"', "libraries = 1"), "libraries", "must be true or false, not 1"),
    ("an ignored table", ('device = "cpu"', 'ignore = ["cases*"]'), "ignore", "matches cases.json"),
    ("ignore without a list", ('device = "cpu"', 'ignore = "out.pt"'), "ignore", "list"),
    ("an empty axis", ("rows = [1, 3]", "rows = []"), "grid", "no values"),
    ("a grid that is no table", ("[grid]\nrows = [1, 3]\n", "[[grid]]\n"), "grid", "table of lists"),
    ("a case that is no table", ('[[case]]\nid = "small"', '[case]\nid = "small"'), "case", "[[case]]"),
]


@pytest.mark.parametrize(("change", "key", "says"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_a_mistake_is_named_by_file_and_key(folder: Path, change: tuple[str, str], key: str, says: str) -> None:
    assert GOOD.count(change[0]) == 1
    (folder / "task.toml").write_text(GOOD.replace(*change))
    problem = refusal(folder)
    assert problem.key == key
    assert says in str(problem)
    assert str(problem).startswith(str(folder.resolve()))


def test_ignore_names_files_and_folders(folder: Path) -> None:
    (folder / "task.toml").write_text(GOOD.replace('device = "cpu"', 'device = "cpu"\nignore = ["e*", "dumps/"]'))
    assert taskfile.load(folder).ignore == ("e*", "dumps")


def test_a_task_says_whether_libraries_are_its_matter(folder: Path) -> None:
    assert taskfile.load(folder).libraries is False
    (folder / "task.toml").write_text(GOOD.replace('device = "cpu"', 'device = "cpu"\nlibraries = true'))
    assert taskfile.load(folder).libraries is True


def test_a_byte_order_mark_is_no_mistake(folder: Path) -> None:
    for name in ("task.toml", "reference.py"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert taskfile.load(folder).name == "toy"


def test_bad_toml_names_the_line(folder: Path) -> None:
    (folder / "task.toml").write_text('name = "toy\n')
    assert "line 1" in str(refusal(folder))


def test_no_cases(folder: Path) -> None:
    (folder / "task.toml").write_text('name = "toy"\nentry = "toy"\n[grid]\nrows = [1]\n')
    assert "no cases" in str(refusal(folder))


def test_no_task_file(tmp_path: Path) -> None:
    assert "kernbench new" in str(refusal(tmp_path))


def test_a_solution_that_is_a_directory(folder: Path) -> None:
    (folder / "solution.py").unlink()
    (folder / "solution.py").mkdir()
    problem = refusal(folder)
    assert problem.file.name == "solution.py"
    assert ": a folder, not a regular file" in str(problem)


@pytest.mark.parametrize("missing", ["solution.py", "reference.py"])
def test_a_missing_file(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    assert refusal(folder).file.name == missing


def test_a_reference_that_does_not_parse(folder: Path) -> None:
    (folder / "reference.py").write_text("def toy(x:\n")
    problem = refusal(folder)
    assert problem.file.name == "reference.py"
    assert problem.key == "line 1"


def test_a_reference_without_make_inputs(folder: Path) -> None:
    (folder / "reference.py").write_text("def toy(x): ...\n")
    assert refusal(folder).key == "make_inputs"


@pytest.mark.parametrize("text", ["{", '{"id": 1}', "[1]", '[{"id": "small"}]', '[{"id": "x", "size": 1}]'])
def test_cases_json_is_held_to_the_same_rules(folder: Path, text: str) -> None:
    (folder / "cases.json").write_text(text)
    refusal(folder)


def test_the_grid_is_the_product_of_its_lists(folder: Path) -> None:
    checks = [case for case in taskfile.load(folder).cases if case.kind == "check"]
    assert [case.axes for case in checks] == [
        {"rows": 1, "dtype": "float32"},
        {"rows": 1, "dtype": "float16"},
        {"rows": 3, "dtype": "float32"},
        {"rows": 3, "dtype": "float16"},
    ]
    assert len({case.id for case in checks}) == 4


def test_every_timed_case_is_a_headline_where_none_is_named(folder: Path) -> None:
    (folder / "cases.json").write_text(json.dumps([{"id": "listed", "axes": {"rows": 2}}]))
    task = taskfile.load(folder)
    assert [(case.id, case.headline) for case in task.timed] == [("small", True), ("listed", True)]
    assert not task.case("tiny").headline


def test_tolerances_are_the_defaults_with_the_tasks_own_put_in(folder: Path) -> None:
    tolerance = taskfile.load(folder).tolerance
    assert (tolerance["float32"].atol, tolerance["float32"].rtol) == (1e-3, 2e-3)
    assert tolerance["bfloat16"] == taskfile.DEFAULT_TOLERANCE["bfloat16"]


def test_a_tolerance_may_have_a_share_and_a_cap_and_a_case_one_of_its_dtypes(folder: Path) -> None:
    text = GOOD.replace("atol = 1e-3", "matched = 0.99, cap = 1, atol = 1e-3")
    text = text.replace('id = "small"', 'id = "small"\ntolerance = { float16 = { atol = 0.5 } }')
    (folder / "task.toml").write_text(text)
    task = taskfile.load(folder)
    assert task.tolerance["float32"] == Tolerance(1e-3, 2e-3, 0.99, 1.0)
    assert task.tolerance_of(task.case("small")) == {**task.tolerance, "float16": Tolerance(0.5, 0.0)}
    assert task.tolerance_of(task.case("tiny")) == task.tolerance
    assert decode(Task, json.loads(json.dumps(to_dict(task)))) == task


def test_a_task_says_what_judges_it_and_which_dtypes_are_right(folder: Path) -> None:
    assert (taskfile.load(folder).judge, taskfile.load(folder).dtype) == ("truth", "reference")
    (folder / "reference.py").write_text(f"{REFERENCE}def check(axes, inputs, outputs): ...\n")
    (folder / "task.toml").write_text(GOOD.replace('device = "cpu"', 'device = "cpu"\njudge = "check"\ndtype = "any"'))
    assert (taskfile.load(folder).judge, taskfile.load(folder).dtype) == ("check", "any")


def test_an_edit_of_the_solution_keeps_the_hash(folder: Path) -> None:
    before = taskfile.load(folder).hash
    (folder / "solution.py").write_text("def toy(x): return x\n")
    assert taskfile.load(folder).hash == before


@pytest.mark.parametrize("name", ["softmax_host", "rms_norm"])
def test_shipped_tasks_load(name: str) -> None:
    task = taskfile.load(shipped_tasks()[name])
    kinds = {case.kind for case in task.cases}
    assert task.name == name
    assert kinds == {"case", "smoke", "check"}


def test_the_cpp_behind_a_baseline_is_part_of_the_task(tmp_path: Path) -> None:
    for name, text in {
        "task.toml": 'entry = "f"\nbaseline = "baseline.py"\n[[case]]\nid = "a"\naxes = { rows = 1 }\n',
        "reference.py": "def make_inputs(case, seed, device): ...\ndef f(): ...\n",
        "solution.py": "def f(): ...\n",
        "baseline.py": "import part\nfrom harness import host\nhost.load('baseline.cpp')\ndef f(): ...\n",
        "baseline.cpp": '#include "inner.h"\n',
        "inner.h": "// 1\n",
        "part.py": "",
        "notes.txt": "",
    }.items():
        (tmp_path / name).write_text(text)
    assert reached(tmp_path, ["baseline.py"]) == ["baseline.py", "baseline.cpp", "part.py", "inner.h"]


def test_sides_for_comparison_belong_to_the_task_and_not_to_its_hash(folder: Path) -> None:
    before = taskfile.load(folder)
    (folder / "fast.py").write_text("from parts import f\n\n\ndef toy(x): ...\n")
    (folder / "parts.py").write_text("f = 1\n")
    text = GOOD.replace('device = "cpu"', 'device = "cpu"\ncompare = ["compile", "fast.py"]')
    (folder / "task.toml").write_text(text)
    task = taskfile.load(folder)
    assert (task.compare, task.compare_files) == (("compile", "fast.py"), ("fast.py", "parts.py"))
    assert (task.hash, task.files) == (before.hash, before.files)
    assert set(task.own_files) == {"reference.py", "fast.py", "parts.py"}
    (folder / "fast.py").write_text("def toy(x): return x\n")
    assert taskfile.load(folder).hash == before.hash
    (folder / "task.toml").write_text(text.replace("compare", 'ignore = ["fast*"]\ncompare'))
    assert "'fast*' matches fast.py" in str(refusal(folder))
    (folder / "task.toml").write_text(text)
    (folder / "fast.py").write_text("def other(x): ...\n")
    assert "the file does not define 'toy'" in str(refusal(folder))
