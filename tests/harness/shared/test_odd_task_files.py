"""Task files that are no files, far too large, nested too deep or not text: one sentence each, and nothing waits."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.taskfile.values import TaskError
from harness.shared.used_files import LARGEST_FILE
from kernbench.log import overview
from kernbench.task import lookup
from tests.sessions import TASK

READ = ("task.toml", "cases.json", "reference.py", "solution.py")


def refusal(folder: Path) -> TaskError:
    with pytest.raises(TaskError) as caught:
        taskfile.load(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000
    str(caught.value).encode()
    return caught.value


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)


ODD: list[tuple[Callable[[Path], None], str]] = [
    (fifo, "a fifo, not a regular file"),
    (endless, "a device, not a regular file"),
    (directory, "a folder, not a regular file"),
    (large, f"{LARGEST_FILE + 1:,} bytes; kernbench reads at most "),
]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize(("put", "says"), ODD, ids=[put.__name__ for put, _ in ODD])
def test_a_file_that_is_none_is_called_what_it_is(
    folder: Path, name: str, put: Callable[[Path], None], says: str
) -> None:
    (folder / name).unlink(missing_ok=True)
    put(folder / name)
    problem = refusal(folder)
    assert problem.file == folder / name
    assert problem.problem.startswith(says)


DEEP = "[" * 3000 + "]" * 3000
HUGE_HEX = "0x" + "F" * 5000
TOML = {
    "a tolerance of 400 digits": ("[tolerance]\nfloat32 = { atol = 1" + "0" * 400 + " }\n", "tolerance.float32.atol"),
    "an integer of 5000 digits": ("a = 1\nb = 1" + "0" * 5000 + "\n", "line 3"),
    "a key of 100,000 parts": ("a = 1\na" + ".a" * 100_000 + " = 1\n", "line 3"),
    "a quoted key of 5000 parts": ('a = { "a \\"=b"' + ' . "="' * 5000 + " = 1 }\n", "line 2"),
    "an integer of 5000 hex digits": (f"threads = {HUGE_HEX}\n", "threads"),
    "brackets nested 3000 deep": (f"a = {DEEP}\n", ""),
    "axes nested 900 deep": ("a" + ".a" * 900 + " = 1\n", "line 2"),
    "axes nested 30 deep": ("a" + ".a" * 30 + " = 1\n", "a" + ".a" * 20),
    "a key of two lines": ('"a\\nb" = 1\n', "a\\nb"),
    "many threads": ("threads = 99999999999\n", "threads"),
    "a million threads": ("threads = 1000000\n", "threads"),
    "a name of two lines": ('name = "a\\u2028b"\n', "name"),
    "a long wrong value": (f'device = "{"x" * 100_000}"\n', "device"),
    "a baseline with a long name": (f'baseline = "{"x" * 1000}"\n', "baseline"),
    "a dtype that is a list": ('[[smoke]]\nid = "s"\naxes = { dtype = [["float32"]] }\n', "smoke[0].axes.dtype"),
}


@pytest.mark.parametrize(("text", "key"), TOML.values(), ids=TOML)
def test_a_mistake_in_task_toml_is_a_sentence(folder: Path, text: str, key: str) -> None:
    cases = TASK.partition("[[case]]")[2]
    (folder / "task.toml").write_text(f'entry = "toy"\n{text}[[case]]{cases}')
    problem = refusal(folder)
    assert (problem.file, problem.key[:20]) == (folder / "task.toml", key[:20])


JSON = {
    "nested too deep": ("[" * 100_000, "", "nested too deeply"),
    "an integer of 5000 digits": ('[\n{"id": "a", "axes": {"n": 1' + "0" * 5000 + "}}]", "line 2", "too many digits"),
    "an integer of 100 digits": ('[{"id": "z", "axes": {"n": 1' + "0" * 100 + "}}]", "[0].axes.n", "64 bits"),
    "a lone surrogate": ('[{"id": "\\ud800"}]', "[0].id", "lone surrogate"),
    "a lone surrogate in a key": ('[{"id": "z", "axes": {"\\ud800": 1}}]', "[0].axes.\\ud800", "lone surrogate"),
    "infinity": ('[{"id": "z", "axes": {"n": 1e999}}]', "[0].axes", "JSON cannot represent"),
    "not UTF-8": (b'[{"id": "\xff"}]', "", "not UTF-8"),
}


@pytest.mark.parametrize(("text", "key", "says"), JSON.values(), ids=JSON)
def test_a_mistake_in_cases_json_is_a_sentence(folder: Path, text: str | bytes, key: str, says: str) -> None:
    (folder / "cases.json").write_bytes(text.encode() if isinstance(text, str) else text)
    problem = refusal(folder)
    assert (problem.file, problem.key) == (folder / "cases.json", key)
    assert says in problem.problem


def test_a_link_to_cases_that_are_gone_is_not_a_task_without_cases(folder: Path) -> None:
    (folder / "cases.json").symlink_to("elsewhere.json")
    assert "does not exist" in refusal(folder).problem


@pytest.mark.parametrize("text", ["-" * 300_000, "(" * 100 + "-" * 5000 + "1", "x = 1\0", "lambda: " * 9000 + "1"])
def test_a_reference_that_no_parser_takes_is_a_sentence(folder: Path, text: str) -> None:
    (folder / "reference.py").write_text(text)
    assert refusal(folder).file == folder / "reference.py"


def test_a_reference_with_a_warning_is_no_mistake_and_prints_none(folder: Path) -> None:
    with (folder / "reference.py").open("a") as file:
        file.write('PATTERN = "\\d"\n')
    assert taskfile.load(folder).name == "toy"  # pytest would turn the warning into an error


def test_a_grid_is_counted_before_it_is_made(folder: Path) -> None:
    axis = json.dumps(list(range(1, 2000)))
    (folder / "task.toml").write_text(f"{TASK}cols = {axis}\nheads = {axis}\n")
    problem = refusal(folder)
    assert (problem.key, problem.problem) == (
        "grid",
        f"has {3 * 1999 * 1999} combinations, more than 10000; use fewer values",
    )


def test_a_grid_of_long_values_is_not_made(folder: Path) -> None:
    axis = json.dumps(list(range(1, 2000)))
    (folder / "task.toml").write_text(f'{TASK}cols = {axis}\nmode = "{"x" * 200_000}"\n')
    assert "ids of more than 500 characters" in refusal(folder).problem


def test_the_size_of_a_case_has_no_limit(folder: Path) -> None:
    (folder / "cases.json").write_text(
        json.dumps([{"id": "z", "axes": {f"a{n}": 2**63 for n in range(20)} | {"b": 0.5}}])
    )
    assert taskfile.load(folder).case("z").size > 1e300


def test_one_bad_task_hides_no_other_and_leaves_no_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status`, the picker and completion look at all of them."""
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(reports))
    for index, (put, _) in enumerate(ODD):
        bad = tmp_path / f"bad{index}"
        bad.mkdir()
        put(bad / "task.toml")
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "task.toml").write_text(f"a = {DEEP}\n")
    tasks = lookup.list_tasks(tmp_path)
    names = {place.name for place in tasks}
    assert {"toy", "bad0", "bad1", "bad2", "bad3", "deep"} <= names
    rows = {place.name: overview.of(place) for place in tasks if place.parent == tmp_path}
    assert [name for name, row in rows.items() if row.problem is None] == ["toy"]
    assert all("internal error" not in str(row.problem) for row in rows.values())
    assert list(reports.iterdir()) == []
    assert lookup.find_task("toy", tmp_path) == folder.resolve()
    with pytest.raises(lookup.ProjectError, match="no task 'other'"):
        lookup.find_task("other", tmp_path)
