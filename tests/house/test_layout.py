"""The layout of both packages: sizes, names, and imports that never run in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.house import layout


def tree(root: Path, **files: str) -> Path:
    """A made-up checkout; a keyword is a dotted module name with `__` for the dot, its value the text."""
    for name in ("kernbench", "harness"):
        (root / layout.HALVES[name]).mkdir(parents=True, exist_ok=True)
        (root / layout.HALVES[name] / "__init__.py").touch()
    for keyword, text in files.items():
        half, *parts = keyword.split("__")
        path = (root / layout.HALVES[half]).joinpath(*parts).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


SOUND = {
    "kernbench__app": "from kernbench.log import book, page\n",
    "kernbench__log__book": "from harness.shared.run_request import Run\nfrom . import page\n",
    "kernbench__log__page": "import harness\nimport json\n",
    "kernbench__tui__board": "from textual.app import App\nfrom kernbench.tui.panes.page import Page\n",
    "kernbench__tui__panes__page": "Page = 1\n",
    "kernbench__tui__panes__rows": "",
    "harness__worker": "from harness.shared.run_request import Run\nfrom .shared import taskfile\n",
    "harness__shared__run": "Run = 1\n",
    "harness__shared__taskfile": "import tomllib\n",
}


@pytest.mark.parametrize("rule", layout.RULES, ids=lambda rule: rule.__name__)
def test_both_packages_keep_the_rule(rule: layout.Rule) -> None:
    offenders = rule(ROOT)
    assert not offenders, "\n".join(offenders)


def test_the_rules_see_every_module() -> None:
    found = layout.modules(ROOT)
    assert {"kernbench", "kernbench.cli", "kernbench.tui.app", "harness.worker", "harness.shared.task"} <= set(found)
    assert not [name for name in found if "templates" in name]
    graph = layout.file_graph(ROOT)
    assert graph["kernbench"] >= {"kernbench.version", "kernbench.export.history"}  # the second for type checkers
    assert "harness.cuda.plans" in graph["harness.cuda"]  # relative


@pytest.mark.parametrize("rule", layout.RULES, ids=lambda rule: rule.__name__)
def test_a_sound_tree_has_no_offender(tmp_path: Path, rule: layout.Rule) -> None:
    assert rule(tree(tmp_path, **SOUND)) == []


TYPES_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kernbench.app import App\n"
OFFENCES: dict[str, tuple[layout.Rule, dict[str, str], list[str]]] = {
    "two files import each other": (
        layout.file_circles,
        {"kernbench__log__page": "def late():\n    from kernbench.log import book\n"},
        ["kernbench.log.book <-> kernbench.log.page"],
    ),
    "one of them for type checkers": (
        layout.file_circles,
        {"kernbench__log__page": TYPES_ONLY},
        ["kernbench.app <-> kernbench.log.book <-> kernbench.log.page"],
    ),
    "by relative imports": (
        layout.file_circles,
        {"kernbench__log__page": "from .book import x\n"},
        ["kernbench.log.book <-> kernbench.log.page"],
    ),
    "two folders import each other": (
        layout.room_circles,
        {
            "kernbench__task__a": "import kernbench.log.book\n",
            "kernbench__task__b": "",
            "kernbench__log__page": "from kernbench.task import b\n",
        },
        [
            "kernbench.log -> kernbench.task: kernbench.log.page imports kernbench.task.b",
            "kernbench.task -> kernbench.log: kernbench.task.a imports kernbench.log.book",
        ],
    ),
    "a flat module and a folder": (
        layout.room_circles,
        {"kernbench__tui__panes__rows": "from kernbench.tui import board\n"},
        [
            "kernbench.tui.board -> kernbench.tui.panes: kernbench.tui.board imports kernbench.tui.panes.page",
            "kernbench.tui.panes -> kernbench.tui.board: kernbench.tui.panes.rows imports kernbench.tui.board",
        ],
    ),
    "the workbench takes the worker": (
        layout.foreign_imports,
        {"kernbench__app": "from harness import worker\nfrom harness.shared import run\n"},
        ["kernbench.app imports harness.worker"],
    ),
    "the worker takes the workbench": (
        layout.foreign_imports,
        {"harness__worker": "import kernbench.app\ndef screen():\n    from textual import app\n"},
        ["harness.worker imports kernbench.app", "harness.worker imports textual.app"],
    ),
    "a word that 3.10 lacks": (
        layout.too_new_for_3_10,
        {"harness__worker": "try:\n    pass\nexcept* ValueError:\n    pass\n"},
        ["harness.worker: Exception groups are only supported in Python 3.11 and greater"],
    ),
    "a module that 3.10 lacks": (
        layout.too_new_for_3_10,
        {"harness__worker": "from tomllib import loads\n"},
        ["harness.worker imports tomllib"],
    ),
    "a folder of one module": (
        layout.crowded_folders,
        {"kernbench__log__lonely__only": ""},
        ["kernbench.log.lonely has one module"],
    ),
    "a full corridor": (
        layout.crowded_folders,
        {f"harness__m{number}": "" for number in range(5)},
        ["harness has 7 modules, more than 6"],
    ),
    "a long file": (layout.long_files, {"kernbench__app": "x = 1\n" * 601}, ["kernbench.app has 601 lines"]),
    "a long function": (
        layout.long_functions,
        {"kernbench__app": "class A:\n    async def f(self):\n" + "        x = 1\n" * 60},
        ["kernbench.app:2 f has 61 lines"],
    ),
    "two modules of one name": (
        layout.shared_names,
        {"kernbench__worker__app": "", "kernbench__tui__panes__app": "", "harness__app": ""},
        ["kernbench.app and kernbench.worker.app"],
    ),
}


@pytest.mark.parametrize(("rule", "files", "offenders"), OFFENCES.values(), ids=OFFENCES)
def test_an_offender_is_named(tmp_path: Path, rule: layout.Rule, files: dict[str, str], offenders: list[str]) -> None:
    assert rule(tree(tmp_path, **{**SOUND, **files})) == offenders


def test_every_rule_is_tried_on_an_offender() -> None:
    assert {rule for rule, _, _ in OFFENCES.values()} == set(layout.RULES)
