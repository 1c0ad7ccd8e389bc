"""What an import brings along, looked at from a fresh interpreter; tests/house/layout.py has the rules about files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernbench.cli import MODULES
from tests import ROOT
from tests.house import layout
from tests.pythons import pythons

HEAVY = {"torch", "triton", "textual", "pandas", "numpy", "matplotlib", "jinja2", "ray"}
IMPORT_EACH = """
import importlib, json, sys
bare, brought = set(sys.modules), {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    brought[name] = sorted({loaded.partition(".")[0] for loaded in set(sys.modules) - before - bare})
print(json.dumps(brought))
"""


def brought_by(*names: str, python: str = sys.executable) -> dict[str, set[str]]:
    """The packages that each module is the first to load, when they are imported one after another."""
    command = [python, "-c", IMPORT_EACH, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name: set(packages) for name, packages in json.loads(done.stdout).items()}


def names_in(half: str, without: str = "-") -> list[str]:
    """Every module of a half that may be imported anywhere."""
    names = [name for name in layout.modules(ROOT) if name.partition(".")[0] == half]
    return [name for name in names if not name.startswith(without) and not name.endswith("__main__")]


def shared() -> list[str]:
    return [name for name in names_in("harness") if name.startswith("harness.shared")]


def offenders(brought: dict[str, set[str]], banned: set[str]) -> dict[str, set[str]]:
    return {name: packages & banned for name, packages in brought.items() if packages & banned}


def test_the_workbench_half_opens_without_heavy_packages() -> None:
    names = names_in("kernbench", without="kernbench.tui")
    assert {"kernbench.cli", "kernbench.export.data_frame", "kernbench.engine.session"} <= set(names)
    assert offenders(brought_by(*names), HEAVY) == {}


def loaded_with(*names: str) -> set[str]:
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_that_only_a_command_needs() -> None:
    assert not {name for name in loaded_with("kernbench.cli") if name.startswith("kernbench.commands.unattended")}
    loaded = loaded_with(*(f"kernbench.commands.{module}" for module in MODULES.values()))
    assert {"kernbench.commands.unattended.mcp", "harness.shared.codes"} <= loaded
    assert loaded & {"asyncio", "harness.shared.results", "harness.shared.model_step"} == set()


def test_the_first_paint_waits_for_nothing_that_only_a_box_needs() -> None:
    loaded = loaded_with("kernbench.cli", "kernbench.tui.tour", "kernbench.suites.opening", "kernbench.engine.session")
    assert {"kernbench.tui.screen", "textual.widgets._input", "harness.shared.results"} <= loaded
    assert loaded & {"textual.widgets._text_area", "harness.shared.model_step", "kernbench.suites.problems"} == set()


def test_the_screen_opens_without_torch() -> None:
    brought = brought_by(*names_in("kernbench"))
    assert any("textual" in packages for packages in brought.values())
    assert offenders(brought, HEAVY - {"textual"}) == {}


def test_the_shared_vocabulary_needs_only_the_standard_library() -> None:
    brought = brought_by(*shared())
    assert len(brought) > 10
    assert set.union(*brought.values()) - sys.stdlib_module_names == {"harness"}


def test_a_package_that_is_brought_along_is_named() -> None:
    assert offenders(brought_by("json", "rich.text"), {"rich"}) == {"rich.text": {"rich"}}


@pytest.mark.long
def test_the_shared_vocabulary_imports_under_every_python() -> None:
    """3.10 is the oldest that a worker may run under; task.toml is read by the workbench, which has tomllib."""
    if len(pythons()) == 1:
        pytest.skip("only one Python here")
    names = [name for name in shared() if not name.startswith("harness.shared.taskfile")]
    for python in pythons():
        assert brought_by(*names, python=python).keys() == set(names), python


def test_the_repository_root_is_not_importable_where_a_worker_runs() -> None:
    code = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, ['kernels', 'tests'])))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "src", timeout=60)
