"""Recognizes problems of other suites by their syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.shared.used_files import syntax_tree, text_of

Format = Literal["kernelbench"]
KERNELBENCH = {"Model", "get_inputs", "get_init_inputs"}
RANDOM = {"dropout", "dropout1d", "dropout2d", "dropout3d", "rand", "randn", "randint", "bernoulli", "rand_like"}
"""Names that draw random numbers if a model uses them; compared in lower case."""


@dataclass(frozen=True)
class Problem:
    format: Format
    path: Path
    draws: bool
    """Whether a call draws random numbers."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def title(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"


def detect(path: Path) -> Problem | None:
    """The problem in a file; None if it is in no format that is known."""
    if path.suffix != ".py":
        return None
    try:
        tree = syntax_tree(text_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    if not defined.keys() >= KERNELBENCH:
        return None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return Problem("kernelbench", path.resolve(), any(_draws(node) for node in classes))


def _draws(node: ast.AST) -> bool:
    names = (item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in ast.walk(node))
    return any(str(name).lower() in RANDOM for name in names)


def problems(source: Path) -> Iterator[Problem]:
    """The problem in a file, or all problems in a folder."""
    paths = sorted(source.rglob("*.py"), key=_by_number) if source.is_dir() else [source]
    for path in paths:
        if (found := detect(path)) is not None:
            yield found


def _by_number(path: Path) -> tuple[str, int, str]:
    number = path.name.partition("_")[0]
    return str(path.parent), int(number) if number.isdecimal() else 0, path.name
