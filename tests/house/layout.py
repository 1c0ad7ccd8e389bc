"""The rules that the layout of `src/kernbench` and `harness` follows, as functions of a checkout's root.

Each returns its offenders as sentences, so a test shows all of them at once. A room is a folder; a module flat in
`kernbench`, `harness` or `kernbench.tui` is a room by itself.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, set[str]]
HALVES = {"kernbench": "src/kernbench", "harness": "harness"}
NOT_MODULES = {"templates", "guide", "__pycache__"}
"""Folders of files that the package hands out; nothing imports them."""
CORRIDORS = {"kernbench": 10, "kernbench.tui": 10, "harness": 6}
"""Packages whose modules are rooms by themselves, and how many they may have, `__init__` included."""
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
NAMED_AFTER_A_PART = ("kernbench.commands", "kernbench.tui.actions", "kernbench.tui.pages", "kernbench.tui.panes")
"""Modules here have the name of the part that they show or start."""
STDLIB_OF_3_11 = {"tomllib"}


def modules(root: Path) -> dict[str, Path]:
    """Every module by its dotted name; a package goes by its own name."""
    found = {}
    for half, folder in HALVES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if not NOT_MODULES & set(parts):
                found[".".join([half, *(part for part in parts if part != "__init__")])] = path
    return found


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(name: str, path: Path) -> str:
    return name if path.stem == "__init__" else name.rpartition(".")[0]


def imported(name: str, path: Path) -> Iterator[str]:
    """What a file imports, anywhere in it and for type checkers too; `from a import b` as a.b."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = package_of(name, path).split(".")
            above = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)


def file_graph(root: Path) -> dict[str, set[str]]:
    """Which module imports which of ours."""
    known = modules(root)

    def module_of(name: str) -> str:
        while name and name not in known:
            name = name.rpartition(".")[0]
        return name

    return {name: {module_of(taken) for taken in imported(name, path)} - {"", name} for name, path in known.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Groups in which each reaches every other."""

    def reached_from(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(graph.get(start, ()))
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                ahead.extend(graph.get(node, ()))
        return seen

    reach = {node: reached_from(node) for node in graph}
    groups = {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in graph}
    return sorted(sorted(group) for group in groups if group)


def file_circles(root: Path) -> list[str]:
    return [" <-> ".join(group) for group in circles(file_graph(root))]


def room_circles(root: Path) -> list[str]:
    """Each import that runs along a circle of rooms."""
    known = modules(root)

    def room(name: str) -> str:
        package = package_of(name, known[name])
        return name if package in CORRIDORS else package

    edges = [(name, other) for name, others in file_graph(root).items() for other in sorted(others)]
    edges = [(name, other) for name, other in edges if room(name) != room(other)]
    graph: dict[str, set[str]] = defaultdict(set)
    for name, other in edges:
        graph[room(name)].add(room(other))
    groups = circles(graph)
    return [
        f"{room(name)} -> {room(other)}: {name} imports {other}"
        for name, other in edges
        if any(room(name) in group and room(other) in group for group in groups)
    ]


def foreign_imports(root: Path) -> list[str]:
    """Of harness, kernbench takes harness.shared alone; harness takes nothing of kernbench or Textual."""

    def wrong(half: str, taken: str) -> bool:
        parts = taken.split(".")
        if half == "kernbench":
            return parts[0] == "harness" and parts[1:2] not in (
                [],
                ["shared"],
            )  # a bare `import harness` finds its folder
        return parts[0] in ("kernbench", "textual")

    return [
        f"{name} imports {taken}"
        for name, path in modules(root).items()
        for taken in imported(name, path)
        if wrong(name.partition(".")[0], taken)
    ]


def too_new_for_3_10(root: Path) -> list[str]:
    """Files of harness that Python 3.10 cannot read, or that import what it lacks; taskfile is for the workbench."""
    found = []
    for name, path in modules(root).items():
        if not name.startswith("harness"):
            continue
        try:
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
        except SyntaxError as problem:
            found.append(f"{name}: {problem.msg}")
            continue
        newer = {taken.partition(".")[0] for taken in imported(name, path)} & STDLIB_OF_3_11
        if newer and not name.startswith("harness.shared.taskfile"):
            found.append(f"{name} imports {', '.join(sorted(newer))}")
    return found


def crowded_folders(root: Path) -> list[str]:
    """Corridors with too many rooms, and folders of one module."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name, path in modules(root).items():
        inside[package_of(name, path)].append(path.stem)
    found = []
    for package, stems in inside.items():
        count = len(stems) if package in CORRIDORS else len([stem for stem in stems if stem != "__init__"])
        if package in CORRIDORS and count > CORRIDORS[package]:
            found.append(f"{package} has {count} modules, more than {CORRIDORS[package]}")
        if count == 1 and package not in CORRIDORS:
            found.append(f"{package} has one module")
    return found


def long_files(root: Path) -> list[str]:
    counts = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(root).items()}
    return [f"{name} has {count} lines" for name, count in counts.items() if count > LONGEST_FILE]


def long_functions(root: Path) -> list[str]:
    return [
        f"{name}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for name, path in modules(root).items()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]


def shared_names(root: Path) -> list[str]:
    """Modules of one half with the same name."""
    named: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, path in modules(root).items():
        if path.stem != "__init__" and package_of(name, path) not in NAMED_AFTER_A_PART:
            named[name.partition(".")[0], path.stem].append(name)
    return [" and ".join(names) for names in named.values() if len(names) > 1]


Rule = Callable[[Path], list[str]]
RULES: tuple[Rule, ...] = (
    file_circles,
    room_circles,
    foreign_imports,
    too_new_for_3_10,
    crowded_folders,
    long_files,
    long_functions,
    shared_names,
)
