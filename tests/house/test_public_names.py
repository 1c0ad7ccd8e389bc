"""The names that users write in their own files: kernels in their folders, notebooks, scripts."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernbench
from kernbench.export.history import history
from kernbench.version import __version__
from tests import ROOT

PUBLIC = ("harness.cuda", "harness.host")


def used_names(text: str) -> Iterator[str]:
    """What a kernel's file takes of the harness, as dotted names: what it imports, and attributes of that."""
    tree, bound = ast.parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            taken = {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            taken = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        else:
            continue
        bound |= {name: dotted for name, dotted in taken.items() if dotted.split(".")[0] == "harness"}
    yield from bound.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in bound:
            yield f"{bound[ast.unparse(node.value)]}.{node.attr}"


def missing(name: str) -> bool:
    """Whether neither a module nor an attribute of one has this name."""
    try:
        importlib.import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        return not module or missing(module) or not hasattr(importlib.import_module(module), attribute)
    return False


def test_both_doors_of_the_harness_open() -> None:
    from harness import cuda, host

    assert callable(host.load)
    assert callable(cuda.load)
    assert [name for name in cuda.__all__ if not hasattr(cuda, name)] == []


def test_everything_that_the_shipped_kernels_use_is_there() -> None:
    files = sorted([*(ROOT / "kernels").rglob("*.py"), *(ROOT / "src" / "kernbench" / "templates").rglob("*.py")])
    files = [path for path in files if ".kernbench" not in path.parts]  # sources that a tried-out task keeps
    used = {(name, str(path.relative_to(ROOT))) for path in files for name in used_names(path.read_text())}
    names = {name for name, _ in used}
    assert {"harness.cuda.load", "harness.cuda.Plans", "harness.cuda.outputs_like", "harness.host.load"} <= names
    assert [use for use in sorted(used) if not use[0].startswith(PUBLIC)] == []
    assert [use for use in sorted(used) if missing(use[0])] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from harness.cuda import launch", "harness.cuda.launch"),
        ("from harness import host\nlibrary = host.open('a.cpp')", "harness.host.open"),
        ("from harness import cuda as c\ndef f():\n    return c.nothing", "harness.cuda.nothing"),
        ("import harness.host\nharness.host.unload()", "harness.host.unload"),
        ("from harness import gpu", "harness.gpu"),
    ],
)
def test_a_name_that_is_gone_is_seen(text: str, name: str) -> None:
    assert [used for used in used_names(text) if missing(used)] == [name]


def test_history_is_a_function_of_the_package() -> None:
    assert kernbench.history is history
    assert kernbench.__version__ == __version__
    with pytest.raises(AttributeError, match="no attribute 'histories'"):
        kernbench.histories  # noqa: B018


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernbench", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["kernbench", __version__]), done.stderr
