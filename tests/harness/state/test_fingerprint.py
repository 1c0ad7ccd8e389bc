"""The fingerprint, tried in a separate process: what counts as a change, who made it, and what is restored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

HEAD = """
import json, os, sys, types
import torch
from harness.state.process_watch import ProcessWatch

def module(name, text, file):
    made = types.ModuleType(name)
    made.__file__ = file
    sys.modules[name] = made
    exec(compile(text, file, "exec"), vars(made))
    return made

sent = []
def emit(event, **fields):
    sent.append(fields)

def run(text):
    sent.clear()
    watch.before_load()
    module("_kb_solution_00000000", text, "solution.py")
    codes = [found.code for found in watch.look(emit)]
    codes += [found.code for found in watch.look(emit, is_over=True, mentions=lambda name: name in text)]
    kinds = "restored", "replaced", "left", "packages"
    return {"codes": codes, **{kind: [item for fields in sent for item in fields[kind]] for kind in kinds}}
"""
QUIET: dict[str, list[Any]] = {"codes": [], "restored": [], "replaced": [], "left": [], "packages": []}


PLAY = """
import harness.check.elements
for line in sys.stdin:
    child = os.fork()
    if not child:
        watch = ProcessWatch()
        print(json.dumps([eval(step) for step in json.loads(line)]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("failed", flush=True)
"""
Play = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def played() -> Iterator[Play]:
    """The result of each step, an expression, in a copy of a process that has loaded torch."""
    command = [sys.executable, "-c", HEAD + PLAY]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, said = process.stdin, process.stdout

        def play(*steps: str) -> list[dict[str, Any]]:
            given.write(json.dumps(steps) + "\n")
            given.flush()
            found: list[dict[str, Any]] = json.loads(said.readline())
            return found

        yield play
        given.close()


@pytest.fixture(scope="module")
def results(played: Play) -> list[dict[str, Any]]:
    return played(
        "run('import torch\\nX = 1')",
        "run('import torch\\ntorch.set_default_dtype(torch.float64)')",
        "run('X = str(__import__(\"torch\").get_default_dtype())')",
        "run('import torch\\nold = torch.relu\\ntorch.relu = lambda x: old(x)')",
        "run('X = 2')",
        "run('import torch\\ntorch.relu = lambda x: x')",
        "run('import torch\\ntorch.Tensor.relu = lambda x: x')",
    )


def test_a_source_that_only_defines_names_changes_nothing(results: list[dict[str, Any]]) -> None:
    assert results[0] == QUIET


def test_a_setting_is_restored_when_the_run_is_over(results: list[dict[str, Any]]) -> None:
    assert results[1] == {**QUIET, "restored": ["the default dtype"]}
    assert results[2] == QUIET


def test_a_replaced_function_is_blamed_on_its_source_and_not_on_the_next(results: list[dict[str, Any]]) -> None:
    assert results[3] == {**QUIET, "codes": ["process_changed"], "replaced": ["torch.relu"]}
    assert results[4] == {**QUIET, "codes": ["changed_before"], "left": ["torch.relu"]}
    assert results[5] == {**QUIET, "codes": ["process_changed"], "replaced": ["torch.relu"]}


def test_a_method_that_hides_an_inherited_one_counts(results: list[dict[str, Any]]) -> None:
    assert "Tensor.relu" in results[6]["replaced"]


def test_what_a_package_does_at_its_import_stays(tmp_path: Path, played: Play) -> None:
    """The import happens only once; a variable that the source names is the source's all the same."""
    (tmp_path / "kb_patcher.py").write_text(
        "import os, sys, torch\nold = torch.relu\ndef relu(x): return old(x)\ntorch.relu = relu\n"
        "os.environ['PATCHER_HOME'] = '1'\nsys.path.append('/patcher')\n"
    )
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\\nimport os, kb_patcher\\nos.environ['MINE'] = '1'"
    found = played(f'run("""{text}""")', "run('X = 1')", "sorted({'PATCHER_HOME', 'MINE'} & os.environ.keys())")
    assert found[0] == {**QUIET, "restored": ["the environment"], "packages": [["torch.relu", "kb_patcher"]]}
    assert found[1] == QUIET
    assert found[2] == ["PATCHER_HOME"]


def test_what_the_first_compile_sets_stays_unless_the_source_names_it(played: Play) -> None:
    """Inductor sets it once, perhaps long after its import: taken away, later compiles would go on without it."""
    compiler = "def first(name):\\n    import os\\n    os.environ[name] = 'set'"
    program = "import kb_compiler\\nkb_compiler.first"
    compiled, other, named, left = played(
        f"(module('kb_compiler', \"{compiler}\", 'kb_compiler.py'), run(\"{program}('TRITON_' + 'PTXAS_PATH')\"))[1]",
        f"run(\"{program}('TRITON_' + 'OTHER')\")",
        'run(\'import os\\nos.environ["TRITON_PTXAS_PATH"] = "mine"\')',
        "[os.environ['TRITON_PTXAS_PATH'], 'TRITON_OTHER' in os.environ]",
    )
    assert compiled == QUIET
    assert other == named == {**QUIET, "restored": ["the environment"]}
    assert left == ["set", False]


def test_a_lock_of_python_and_a_handler_in_c_count(played: Play) -> None:
    """The harness waits for the one, and copies results that the other could compute."""
    lock, handler = played(
        "run('import threading\\nthreading._active_limbo_lock = threading.RLock()')",
        "run('import ctypes, signal\\nhandle = ctypes.CFUNCTYPE(None, ctypes.c_int)(print)\\n"
        "ctypes.CDLL(None).signal(signal.SIGBUS, handle)')",
    )
    assert lock == {**QUIET, "codes": ["process_changed"], "replaced": ["threading._active_limbo_lock"]}
    assert handler["replaced"] == ["a signal handler"]


def test_what_a_row_is_judged_by_counts_as_the_opponent(played: Play) -> None:
    begin = "(watch.begin_run(task), watch.keep_reference(reference), {})[-1]"
    first, honest, wider, entry, method, again = played(
        "exec('from harness.shared.task import Tolerance; from harness.inputs.reference import Reference;"
        " task = types.SimpleNamespace(tolerance=dict(float32=Tolerance(1, 1)));"
        " reference = types.SimpleNamespace(entry=len, _make=max)', globals()) or " + begin,
        "run('x = 1')",
        "run('import __main__ as m; m.task.tolerance[\\'float32\\'] = 3')",
        "[watch.begin_run(task), run('import __main__ as m; m.reference._make = min')][-1]",
        "run('import harness.shared.results as r; r.Verdict.__getattribute__ = lambda s, n: None')",
        "run('x = 2')",
    )
    assert (first, honest) == ({}, QUIET)
    assert (wider["codes"], wider["replaced"]) == (["opponent_changed"], ["the task's settings"])
    assert (entry["codes"], entry["replaced"]) == (["opponent_changed"], ["reference.make"])
    assert "harness.shared.results.Verdict.__getattribute__" in method["replaced"]
    assert "process_changed" in method["codes"]
    assert again["left"] == ["harness.shared.results.Verdict.__getattribute__"]


def test_a_table_of_the_harness_is_not_to_be_changed(played: Play) -> None:
    (found,) = played("run('import harness.shared.findings as f; f.DEFINITIONS.pop(\"forked\")')")
    assert found["replaced"] == ["a constant of harness.shared.findings"]
    assert found["codes"] == ["process_changed"]


def test_what_compares_the_others_is_compared_without_it(played: Play) -> None:
    """A source that makes everything look the same is seen all the same."""
    builtin, operator = played(
        "run('import builtins, torch\\nbuiltins.all = lambda items: True\\ntorch.relu = print')",
        "run('from harness.state import fingerprint\\nfingerprint.is_ = lambda a, b: True')",
    )
    assert "builtins.all" in builtin["replaced"]
    assert "harness.state.fingerprint.is_" in operator["replaced"]


def test_a_constant_of_the_harness_that_c_code_changed_is_named(played: Play) -> None:
    poke = (
        "import ctypes\\nfrom harness.check import elements\\n"
        "consts = elements._chunk.__code__.co_consts\\n"
        "value = next(item for item in consts if isinstance(item, float))\\n"
        "ctypes.c_double.from_address(id(value) + 16).value = 1e300"
    )
    (found,) = played(f"run('{poke}')")
    assert found["replaced"] == ["harness.check.elements._chunk"]


def test_a_builtin_whose_c_function_is_another_is_named(played: Play) -> None:
    poke = (
        "import ctypes, math\\n"
        "cell = lambda f: ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(id(f) + 16).value + 8)\\n"
        "cell(math.sin).value = cell(math.cos).value"
    )
    (found,) = played(f"run('{poke}')")
    assert found["replaced"] == ["math.sin"]
