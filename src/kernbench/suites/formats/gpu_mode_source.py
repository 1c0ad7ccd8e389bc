"""What the text of a GPU MODE reference.py says: tolerances, inputs that are written to, and a first solution."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from typing import TypeGuard

from harness.shared.used_files import syntax_tree
from kernbench.suites.formats.renaming import renamed

OLD, NEW = "ref_kernel", "custom_kernel"
INPUTS, CHECK, MATCH = "generate_input", "check_implementation", "make_match_reference"
RTOL, ATOL = 1e-5, 1e-8
"""What `make_match_reference` uses without arguments."""
FILLING = {"copy_", "zero_", "fill_"}
"""Methods that write all of a tensor without reading it."""
UNSET = {"empty", "empty_like"}


class Source:
    """The file's text; one that Python cannot parse has nothing in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._body = syntax_tree(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._body = []
        self._functions = {node.name: node for node in self._body if isinstance(node, ast.FunctionDef)}

    @property
    def is_complete(self) -> bool:
        return {OLD, INPUTS} <= self._functions.keys()

    @property
    def packages(self) -> set[str]:
        """Those that it cannot be imported without."""
        found: set[str] = set()
        for node in self._body:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
        return found

    def tolerance(self) -> tuple[float, float] | None:
        """Relative and absolute, if the check is `make_match_reference` with numbers; otherwise None."""
        for node in self._body:
            if not isinstance(node, ast.Assign) or CHECK not in map(ast.unparse, node.targets):
                continue
            call = node.value
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != MATCH:
                return None
            given = {item.arg: item.value for item in call.keywords}
            rtol, atol = _number(given.pop("rtol", None), RTOL), _number(given.pop("atol", None), ATOL)
            return None if given or len(call.args) != 1 or rtol is None or atol is None else (rtol, atol)
        return None

    def written(self) -> tuple[list[str], list[str]]:
        """Inputs that a call may write to, as `data.2`: those that are filled, and those that are modified.

        Filled are those that `generate_input` leaves without values, and those of which `ref_kernel` writes all. One
        that `ref_kernel` only replaces by its result is a place for that result, whether or not it has values.
        """
        made, reference = self._functions[INPUTS], self._functions[OLD]
        filled = {place for place, value in enumerate(_returned(made)) if _is_unset(value, made)}
        mutated: set[int] = set()
        for name, place in _unpacked(reference).items():
            if _is_bound_again(name, reference):
                mutated |= {place} if _is_replaced(name, reference) else set()
                continue
            for is_whole in _writes(name, reference):
                (filled if is_whole else mutated).add(place)
        return [f"data.{place}" for place in sorted(filled)], [f"data.{place}" for place in sorted(mutated - filled)]

    def first_solution(self) -> str:
        """The reference under its new name with what it needs of its file, which is right and as fast as it is."""
        needed, lines = {OLD, "*"}, io.StringIO(self._text).readlines()
        kept: list[ast.stmt] = []
        while more := [node for node in self._body if node not in kept and _defined(node) & needed]:
            kept += more
            needed |= {item.id for node in more for item in ast.walk(node) if isinstance(item, ast.Name)}
        text = ""
        for node in (node for node in self._body if node in kept):
            text += "\n\n" if text and isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""
            text += "".join(lines[_first_line(node) - 1 : node.end_lineno]).rstrip() + "\n"
        return renamed(text, OLD, NEW)


def _number(node: ast.expr | None, default: float) -> float | None:
    """A number as it is written; None for anything else."""
    if node is None:
        return default
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) else None


def _first_line(node: ast.stmt) -> int:
    """That of its first decorator, if it has any."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(item.lineno for item in decorators)])


def _defined(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    inside = list(ast.walk(node))
    imported = {item.asname or item.name.partition(".")[0] for item in inside if isinstance(item, ast.alias)}
    return imported | {item.id for item in inside if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """The parts of the tuple that a function returns last."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return values[-1].elts if values and isinstance(values[-1], ast.Tuple) else []


def _is_unset(value: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether a value is memory from torch.empty that nothing is written to."""
    if isinstance(value, ast.Name):
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        bound = [node.value for node in assigned if any(_is(target, value.id) for target in node.targets)]
        return len(bound) == 1 and not list(_writes(value.id, function)) and _is_unset(bound[0], function)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.func.attr.endswith("_"):
        if isinstance(value.func.value, ast.Name):
            return value.func.value.id == "torch" and value.func.attr in UNSET
        value = value.func.value  # what a method such as contiguous() was called on
    return False


def _unpacked(function: ast.FunctionDef) -> dict[str, int]:
    """The names that the function's argument is unpacked into, by place."""
    data = function.args.args[0].arg if function.args.args else ""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is(node.value, data):
            parts = [target.elts for target in node.targets if isinstance(target, ast.Tuple)]
            found |= {item.id: at for items in parts for at, item in enumerate(items) if isinstance(item, ast.Name)}
    return found


def _is_bound_again(name: str, function: ast.FunctionDef) -> bool:
    in_place = [node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign)]
    stored = [node for node in ast.walk(function) if _is(node, name) and isinstance(node.ctx, ast.Store)]
    return len([node for node in stored if node not in in_place]) > 1


def _is_replaced(name: str, function: ast.FunctionDef) -> bool:
    """Whether a name is returned, and nothing else is read of it but a shape."""
    nodes = list(ast.walk(function))
    read = [node for node in nodes if _is(node, name) and isinstance(node.ctx, ast.Load)]
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    shapes = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "shape"]
    return any(node in returned for node in read) and all(node in returned or node in shapes for node in read)


def _writes(name: str, function: ast.FunctionDef) -> Iterator[bool]:
    """For each place that writes to a tensor of this name, whether all of it is written without being read."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            parts = [item for item in node.targets if isinstance(item, ast.Subscript) and _is(item.value, name)]
            yield from (ast.unparse(item.slice) in ("...", ":") for item in parts)
        elif isinstance(node, ast.AugAssign):
            if name in (ast.unparse(node.target), ast.unparse(getattr(node.target, "value", node.target))):
                yield False
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and _is(node.func.value, name) and node.func.attr.endswith("_"):
                yield node.func.attr in FILLING
            elif any(item.arg == "out" and _is(item.value, name) for item in node.keywords):
                yield True


def _is(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name
