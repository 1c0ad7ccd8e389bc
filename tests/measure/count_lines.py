"""Prints how large the code is and how it hangs together: python tests/measure/count_lines.py [CHECKOUT]

Lines of code are those without blank lines, comments and docstrings. Private uses are lines that reach into torch,
triton or Textual outside the modules made for that. Imports under TYPE_CHECKING count as imports. Templates are data.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench import figure

HALVES = {"kernbench": Path("src"), "harness": Path()}
"""Where each package is in a checkout."""
FLAT = ("src/kernbench", "src/kernbench/tui", "harness")
PRIVATE_MODULES = re.compile(r"_private\.py$|torch_internals\.py$|harness/private/")
PRIVATE_USE = re.compile(
    r"\b(?:torch|triton|textual)(?:\.\w+)*\._(?!_)\w"  # torch._C, torch.cuda._sleep
    r"|from (?:torch|triton|textual)[\w.]* import (?:.*\W)?_(?!_)\w"
    r"|\btriton\.(?:runtime|compiler|backends|knobs)\b"  # public by name, without a promise
    r"|\b(?:_fatal_error|_close_messages_no_wait|_character_to_key|_should_skip_dynamo|ignore_compile_internals)\b"
    r"|\b(?:_(?:prepare|enable|disable)_profiler|_init_handles|OPDEF_TO_LIB|TorchDispatchMode)\b|\._destroy\b"
)
NOT_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    | {tokenize.ENDMARKER}
)


def modules(checkout: Path) -> dict[str, Path]:
    """Every file of both packages by its dotted name; of a package, its __init__.py."""
    found: dict[str, Path] = {}
    for package, place in HALVES.items():
        base = checkout / place
        for path in sorted((base / package).rglob("*.py")):
            if "templates" not in path.parts:
                name = ".".join(path.relative_to(base).with_suffix("").parts)
                found[name.removesuffix(".__init__")] = path
    return found


def lines_of_code(text: str) -> int:
    """Without blank lines, comments, docstrings and the strings that document an attribute."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def functions(text: str) -> Iterator[tuple[int, str]]:
    """Length and name of every function, decorators not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, node.name


def private_uses(checkout: Path, files: list[Path]) -> Counter[str]:
    """Lines that use a private name, by file."""
    uses: Counter[str] = Counter()
    for path in files:
        place = path.relative_to(checkout).as_posix()
        if not PRIVATE_MODULES.search(place):
            code = (line.partition("  #")[0] for line in path.read_text(encoding="utf-8").splitlines())
            uses[place] = sum(bool(PRIVATE_USE.search(line)) for line in code)
    return +uses


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the checkout that a module imports, wherever in its text."""
    wanted: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            wanted.update(_nearest(alias.name, known) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = _package(name, path, node.level) if node.level else ""
            origin = ".".join(part for part in (package, node.module) if part)
            wanted.update(_nearest(f"{origin}.{alias.name}", known) for alias in node.names)
    return wanted - {"", name}


def _package(name: str, path: Path, level: int) -> str:
    parts = name.split(".")
    up = level - (path.name == "__init__.py")
    return ".".join(parts[: len(parts) - up])


def _nearest(name: str, known: dict[str, Path]) -> str:
    """The module itself, or the one that holds the name."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other, directly or through others."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    return [set(group) for group in groups]


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def main(checkout: Path) -> None:
    known = modules(checkout)
    files = list(known.values())
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    place = {path: path.relative_to(checkout).as_posix() for path in files}
    for folder in FLAT:
        figure(f"flat in {folder}", str(len(list((checkout / folder).glob("*.py")))), "with __init__.py")
    folders = Counter(place[path].rpartition("/")[0] for path in files if path.name != "__init__.py")
    largest, count = folders.most_common(1)[0]
    figure("folders", str(len(folders)))
    figure("largest folder", str(count), f"{largest}, without __init__.py")
    lengths = sorted((len(text.splitlines()), place[path]) for path, text in texts.items())
    figure("median file", f"{statistics.median(length for length, _place in lengths):.0f} lines", f"{len(files)} files")
    figure("longest file", f"{lengths[-1][0]} lines", lengths[-1][1])
    length, name, owner = max((*function, place[path]) for path, text in texts.items() for function in functions(text))
    figure("longest function", f"{length} lines", f"{name} in {owner}")
    for package in HALVES:
        own = [texts[path] for module, path in known.items() if module.partition(".")[0] == package]
        figure(f"lines of code, {package}", str(sum(map(lines_of_code, own))))
    uses = private_uses(checkout, files)
    figure("private uses", str(uses.total()), f"in {len(uses)} files")
    found = circles({module: imports(module, path, known) for module, path in known.items()})
    figure("import circles", str(len(found)), "; ".join(" ".join(sorted(group)) for group in found))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve())
