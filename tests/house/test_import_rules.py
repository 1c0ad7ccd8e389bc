"""Who may import whom, looked at from a fresh interpreter: what an import drags in is part of what it promises."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "triton", "textual", "pandas", "numpy", "matplotlib", "jinja2"}
SHARED = {f"shared.{path.stem}" for path in (ROOT / "harness" / "shared").glob("[!_]*.py")}
TORCH_FREE = [
    "kernbench",
    "kernbench.cli",
    "kernbench.doctor.installation",
    "kernbench.export",
    "kernbench.export.frame",
    "kernbench.log.runs.journal",
    "kernbench.task.lookup",
    "kernbench.render",
    "kernbench.task.scaffold",
    "kernbench.engine.session",
    "kernbench.worker.supervisor",
]


def loaded_by(module: str) -> set[str]:
    """Top-level names in sys.modules after importing one module, less what a bare interpreter already has."""
    before = "import sys; bare = set(sys.modules)"
    after = "print(*{name.partition('.')[0] for name in set(sys.modules) - bare})"
    code = f"{before}; import {module}; {after}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", TORCH_FREE)
def test_the_workbench_half_opens_without_heavy_packages(module: str) -> None:
    assert loaded_by(module) & HEAVY == set()


def test_the_screen_opens_without_torch() -> None:
    loaded = loaded_by("kernbench.tui.app")
    assert "textual" in loaded
    assert loaded & (HEAVY - {"textual"}) == set()


@pytest.mark.parametrize("module", sorted(SHARED))
def test_the_shared_vocabulary_needs_only_the_standard_library(module: str) -> None:
    assert loaded_by(f"harness.{module}") - sys.stdlib_module_names == {"harness"}


def imports_of(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere, `from a import b` as a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def python_files(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "templates" not in path.parts]


@pytest.mark.parametrize("path", python_files("src/kernbench"), ids=lambda path: str(path.relative_to(ROOT)))
def test_of_harness_only_the_shared_vocabulary_is_imported(path: Path) -> None:
    taken = {name.split(".")[1] for name in imports_of(path) if name.startswith("harness.")}
    assert taken <= {"shared"}


@pytest.mark.parametrize("path", python_files("harness"), ids=lambda path: str(path.relative_to(ROOT)))
def test_harness_imports_nothing_of_kernbench(path: Path) -> None:
    assert not {name for name in imports_of(path) if name.partition(".")[0] in {"kernbench", "textual"}}


@pytest.mark.parametrize("path", python_files("harness"), ids=lambda path: str(path.relative_to(ROOT)))
def test_harness_is_written_for_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    if path.name != "taskfile.py":
        assert not {name.partition(".")[0] for name in imports_of(path)} & {"tomllib"}


def test_the_repository_root_is_not_importable_where_a_worker_runs() -> None:
    code = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, ['kernels', 'tests'])))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "src", timeout=60)
