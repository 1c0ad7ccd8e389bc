"""solution.json of SOL-ExecBench and flashinfer-bench: sources with their paths, and an entry `file::function`.

A task gets the sources as files and keeps solution.json with them, so that an export gives it back byte for byte, or
with the new texts. Where the entry is not in solution.py, a solution.py of a few lines takes it from there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from harness.shared.used_files import syntax_tree
from kernbench.suites.formats.foreign_problem import read_source
from kernbench.task.lookup import ProjectError

NAME, ENTRY = "solution.json", "solution.py"
TASK_FILES = frozenset({"task.toml", "cases.json", "reference.py", "definition.json", "baseline.py", NAME})
COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")
IMPORTED = '''"""The solution's entry."""

from {module} import {function}
'''
BUILT = '''"""Builds the solution's sources, and takes the entry from them."""
{imports}
from pathlib import Path

from torch.utils.cpp_extension import load

HERE = Path(__file__).parent
built = load(
    name="solution",
    sources=[str(HERE / name) for name in {sources}],
    extra_include_paths=[str(HERE){include}],
{flags})
{function} = built.{function}
'''
CUTLASS = """, f"{os.environ.get('CUTLASS_DIR', '/usr/local/cutlass')}/include\""""
FLAGS = {"cflags": [], "cuda_cflags": ["-O3", "--use_fast_math"], "ld_flags": ["-lcuda"]}
"""SOL-ExecBench's defaults, if a solution has compile_options at all."""
PASSED_AS = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ld_flags": "extra_ldflags"}


def unpacked(path: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    """The entry's name, the task's files, and what to keep for an export. A Python file is a solution.py."""
    text = read_source(path)
    if path.suffix != ".json":
        return "run", {ENTRY: text}, {}
    try:
        data = json.loads(text)
        function, files = _files(data)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise ProjectError(f"{path} is not a solution with spec and sources ({said})") from None
    return function, files, {NAME: text}


def _files(data: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The entry's name, and the files of a task: the sources, and solution.py if it is none of them."""
    files = {source["path"]: source["content"] for source in data["sources"]}
    for name in files:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or name in TASK_FILES:
            raise ProjectError(f"the solution has a source called {name}, which cannot be a file of a task")
    spec = data["spec"]
    file, _, function = spec["entry_point"].rpartition("::")
    file = file or next(iter(files))
    if file == ENTRY:
        return function, files
    if file.endswith(".py"):
        module = file.removesuffix(".py").replace("/", ".")
        return function, {**files, ENTRY: IMPORTED.format(module=module, function=function)}
    return function, {**files, ENTRY: _builder(spec, file, function, list(files))}


def _builder(spec: dict[str, Any], file: str, function: str, names: list[str]) -> str:
    """A solution.py that compiles the sources, with the solution's own flags."""
    if not file.endswith(COMPILED):
        raise ProjectError(f"the solution's entry is in {file}, which kernbench cannot build; it builds C++ and CUDA")
    binding = spec.get("binding") or ("tvm-ffi" if "language" in spec else "torch")
    if binding != "torch":
        raise ProjectError(f"the solution is bound by {binding}, which kernbench cannot load; it loads torch's binding")
    asked = spec.get("compile_options")
    flags = {} if asked is None else {key: asked.get(key, usual) for key, usual in FLAGS.items()}
    lines = "".join(f"    {PASSED_AS[key]}={json.dumps(values)},\n" for key, values in flags.items() if values)
    cutlass = "cutlass" in spec.get("languages", ())
    return BUILT.format(
        imports="\nimport os" if cutlass else "",
        sources=json.dumps([name for name in names if name.endswith(COMPILED)]),
        include=CUTLASS if cutlass else "",
        flags=lines,
        function=function,
    )


def exported(files: dict[str, bytes], origin: Mapping[str, str]) -> bytes:
    """solution.json of a source's files: as it was imported if nothing was edited, else with the new texts."""
    texts = {name: content.decode() for name, content in files.items() if name not in TASK_FILES}
    if NAME not in files:
        data, old = _new(origin), dict[str, str]()
    else:
        data = json.loads(files[NAME])
        old = {source["path"]: source["content"] for source in data["sources"]}
        if ENTRY not in old and texts.get(ENTRY) == _files(data)[1][ENTRY]:
            del texts[ENTRY]
        if texts == old:
            return files[NAME]
        texts = {name: texts[name] for name in (*old, *texts) if name in texts}  # in the old order
    spec, is_own = data["spec"], ENTRY in texts and ENTRY not in old
    if is_own:  # kernbench's solution.py is the entry now
        spec["entry_point"] = f"{ENTRY}::{spec['entry_point'].rpartition('::')[2]}"
        triton = any("import triton" in text for text in texts.values())
        spec |= {"languages": ["triton" if triton else "pytorch"], "language": "triton" if triton else "python"}
    file, _, function = spec["entry_point"].rpartition("::")
    taken = _required(texts[file], function) if file.endswith(".py") and file in texts else None
    if taken is not None:
        spec["destination_passing_style"] = taken > int(origin["inputs"])
    data["sources"] = [{"path": name, "content": text} for name, text in texts.items()]
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _new(origin: Mapping[str, str]) -> dict[str, Any]:
    """A solution that was written in kernbench; both suites read it."""
    about = {"name": f"{origin['definition']}_kernbench", "definition": origin["definition"], "author": "kernbench"}
    return {**about, "spec": {"target_hardware": ["LOCAL"], "entry_point": f"{ENTRY}::run", "dependencies": []}}


def _required(text: str, function: str) -> int | None:
    """How many arguments a function of a file must get; None if it is not defined there."""
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return len(found[-1].posonlyargs) + len(found[-1].args) - len(found[-1].defaults) if found else None
