"""Sides: every snapshot runs its own text, its own helpers and its own operators."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.load.failure import Paths, describe
from harness.load.side import MissingEntry, Side
from tests.harness.child import write_task

MakeSide = Callable[..., Side]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[MakeSide]:
    """Makes a side from file texts; all of them are closed at the end."""
    made: list[Side] = []

    def make(role: str, **files: str) -> Side:
        folder = tmp_path / f"{role}{len(made)}"
        write_task(folder, **files)
        made.append(Side(role, str(folder), str(tmp_path / "user")))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_equal_length_saves_within_a_second_run_their_own_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    seen = []
    for value in (1, 2, 3):
        source = f"from part import f\ndef scale(): return {value}, f()\n"
        write_task(tmp_path, solution_py=source, part_py=f"def f(): return {value}\n")
        one = Side("solution", str(tmp_path), str(tmp_path))
        seen.append(one.entry("solution.py", "scale")())
        one.close()
    assert seen == [(1, 1), (2, 2), (3, 3)]
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    "source",
    [
        "from part import f\ndef scale(): return f()",
        "import part\ndef scale(): return part.f()",
        "from .part import f\ndef scale(): return f()",
        "def scale():\n    from part import f\n    return f()",
        "def scale():\n    import part as p\n    return p.f()",
        "def scale():\n    import importlib\n    return importlib.import_module('part').f()",
        "from importlib import import_module\ndef scale(): return import_module('part').f()",
        "def scale(): return __import__('part').f()",
        "from pack.deep import f\ndef scale(): return f()",
        "import pack.deep\ndef scale(): return pack.deep.f()",
        "def scale():\n    from pack import deep\n    return deep.f()",
    ],
)
def test_helpers_of_one_name_stay_on_their_side(side: MakeSide, source: str) -> None:
    functions = []
    for role in ("solution", "best"):
        text = f"def f(): return {role!r}\n"
        made = side(role, solution_py=source, part_py=text)
        (Path(made.folder) / "pack").mkdir()
        (Path(made.folder) / "pack" / "__init__.py").write_text("")
        (Path(made.folder) / "pack" / "deep.py").write_text(text)
        functions.append(made.entry("solution.py", "scale"))
    assert [function() for function in functions] == ["solution", "best"]
    assert "part" not in sys.modules


def test_a_helper_may_import_another_and_torch(side: MakeSide) -> None:
    part = "import other, torch\ndef f(): return other.x, torch"
    source = "from part import f\ndef scale(): return f()"
    made = side("solution", solution_py=source, part_py=part, other_py="x = 4")
    assert made.entry("solution.py", "scale")() == (4, torch)


def test_the_reference_side_may_import_solution(side: MakeSide) -> None:
    made = side("reference", reference_py="import solution\nmark = solution.mark", solution_py="mark = 5")
    assert made.module("reference.py").mark == 5


def test_source_lines_are_those_that_ran(side: MakeSide) -> None:
    made = side("solution", solution_py="def scale():\n    return 1  # this very line\n")
    function = made.entry("solution.py", "scale")
    assert "this very line" in inspect.getsource(function)


def test_the_same_operator_name_in_two_sources_runs_two_bodies(side: MakeSide) -> None:
    source = """
    import torch
    from torch import Tensor

    @torch.library.custom_op("mine::scale", mutates_args=())
    def op(x: Tensor) -> Tensor:
        return x * {factor}

    @op.register_fake
    def _(x):
        return torch.empty_like(x)

    def scale(x):
        return op(x)
    """
    first = side("best", solution_py=source.format(factor=2)).entry("solution.py", "scale")
    second = side("solution", solution_py=source.format(factor=3)).entry("solution.py", "scale")
    x = torch.ones(2)
    assert [first(x)[0].item(), second(x)[0].item()] == [2.0, 3.0]


def test_library_definitions_are_renamed_with_their_implementations(side: MakeSide) -> None:
    source = """
    import torch
    lib = torch.library.Library("mine", "DEF")
    lib.define("twice(Tensor x) -> Tensor")

    @torch.library.impl("mine::twice", "CPU")
    def twice(x):
        return x * {factor}

    def scale(x):
        return torch._ops.OpOverloadPacket.__call__(getattr(getattr(torch.ops, lib.ns), "twice"), x)
    """
    sides = [side(role, solution_py=source.format(factor=n)) for role, n in (("best", 2), ("solution", 3))]
    functions = [one.entry("solution.py", "scale") for one in sides]
    assert [function(torch.ones(1)).item() for function in functions] == [2.0, 3.0]


def test_an_operator_spelled_out_is_left_alone_and_counted(side: MakeSide) -> None:
    source = """
    import torch
    from torch import Tensor

    @torch.library.custom_op("spelled::scale", mutates_args=())
    def op(x: Tensor) -> Tensor:
        return x * 2

    def scale(x):
        return torch.ops.spelled.scale(x)
    """
    made = side("solution", solution_py=source)
    assert made.entry("solution.py", "scale")(torch.ones(1)).item() == 2.0
    assert made.operators.shared == {"spelled"}


def test_closing_a_side_takes_everything_of_it_away(side: MakeSide) -> None:
    part = "class Weights: pass\nheld = Weights()"
    made = side("solution", solution_py="import part\ndef scale(): pass", part_py=part)
    made.entry("solution.py", "scale")
    held = weakref.ref(sys.modules[f"{made.package}.part"].held)
    assert any(name.startswith(made.package) for name in sys.modules)
    made.close()
    assert not any(name.startswith(made.package) for name in sys.modules)
    gc.collect()
    assert held() is None


def test_a_side_notices_another_helper_in_a_new_snapshot(side: MakeSide) -> None:
    text = "import part\ndef scale(): pass"
    made = side("reference", solution_py=text, part_py="x = 1")
    made.module("solution.py")
    same = side("reference", solution_py=text, part_py="x = 1", unused_py="y = 1")
    other = side("reference", solution_py=text, part_py="x = 2")
    assert made.same_in(same.folder)
    assert not made.same_in(other.folder)


def test_a_missing_entry_is_one_sentence(side: MakeSide) -> None:
    made = side("solution", solution_py="x = 1")
    with pytest.raises(MissingEntry, match=r"^it does not define 'scale' \(entry in task.toml\)$"):
        made.entry("solution.py", "scale")


def fault_of(made: Side, tmp_path: Path) -> tuple[str, str, str | None, str]:
    try:
        made.entry("solution.py", "scale")()
    except BaseException as problem:
        fault = describe(problem, Paths(str(tmp_path / "user"), made.folder))
        return fault.message, str(fault.where), fault.where.text if fault.where else None, fault.traceback
    raise AssertionError("nothing was raised")


def test_a_syntax_error_has_file_line_and_text(side: MakeSide, tmp_path: Path) -> None:
    made = side("solution", solution_py="def scale():\n    return (1,\n")
    message, where, text, _ = fault_of(made, tmp_path)
    assert message == "SyntaxError: '(' was never closed"
    assert (where, text) == ("solution.py:2", "return (1,")


def test_an_error_in_a_helper_points_into_the_users_folder(side: MakeSide, tmp_path: Path) -> None:
    made = side("solution", solution_py="import part\ndef scale(): part.f()", part_py="def f():\n    return BLOCK\n")
    message, where, text, trace = fault_of(made, tmp_path)
    assert message == "NameError: name 'BLOCK' is not defined"
    assert (where, text) == ("part.py:2", "return BLOCK")
    assert str(tmp_path / "user" / "part.py") in trace
    assert made.folder not in trace
    assert "_kb_" not in trace


def test_package_names_do_not_reach_the_user(side: MakeSide, tmp_path: Path) -> None:
    made = side("solution", solution_py="from part import missing\ndef scale(): pass", part_py="")
    message, *_ = fault_of(made, tmp_path)
    assert message == "ImportError: cannot import name 'missing' from 'part' (part.py)"


def test_a_compilers_error_points_into_the_kernel(side: MakeSide, tmp_path: Path) -> None:
    source = """
    import ast

    def kernel(x):
        return missing

    class CompilationError(Exception):
        src = "def kernel(x):\\n    return missing\\n"
        node = ast.parse(src).body[0].body[0]

    def scale():
        raise CompilationError("at 2:11:\\ndef kernel(x):\\n    return missing\\n\\nmissing is not defined")
    """
    message, where, text, _ = fault_of(side("solution", solution_py=source), tmp_path)
    assert message == "CompilationError: missing is not defined"
    assert (where, text) == ("solution.py:4", "return missing")


def test_leaving_the_program_is_a_fault_like_any_other(side: MakeSide, tmp_path: Path) -> None:
    made = side("solution", solution_py="import sys\nsys.exit(4)")
    assert fault_of(made, tmp_path)[0] == "it called sys.exit(4)"


def test_a_name_that_is_not_utf8_is_no_hindrance(tmp_path: Path) -> None:
    write_task(tmp_path)
    (tmp_path / os.fsdecode(b"h\xfclle.py")).write_text("x = 1\n")
    assert callable(Side("solution", str(tmp_path), str(tmp_path)).entry("solution.py", "scale"))
