"""Every private name of triton taken away in turn, and the tables that `kernbench doctor` reads."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import worker
from harness.load import interpreter
from harness.private import report, torch_private, triton_private
from harness.private.lookup import PrivateNames
from harness.private.triton_private import GLUON, NAMES
from tests import ROOT
from tests.harness.child import Child, results, write_task
from tests.harness.precompile.test_server import DRIVER, Builder, cubins, run_python, written
from tests.harness.private.hidden import code, hide

pytest.importorskip("triton.runtime._async_compile")

AHEAD = [
    "triton.runtime._async_compile:active_mode",
    "triton.runtime.jit:JITFunction.run",
    "triton.runtime.autotuner:Autotuner.run",
    "triton.compiler.compiler:make_backend",
    "triton.backends.compiler:GPUTarget",
    "triton.runtime.driver:driver",
]
SET_ACTIVE = "triton.runtime.driver:driver.set_active"
KEY = "triton.runtime.cache:triton_key"
CACHE, LOADED = "triton.knobs:cache", "triton.compiler.compiler:CompiledKernel._init_handles"
LIBDEVICE = "triton.language.extra.libdevice"
INTERPRETER = ["triton.runtime.interpreter:_patch_lang_tensor", "triton.runtime.interpreter:GridExecutor"]
CODE = ["triton.runtime.jit:JITFunction", "triton.runtime.jit:KernelInterface", "triton.runtime.autotuner:Autotuner"]
OUTSIDE = re.compile(
    r"((torch|triton)(\.\w+)*[.:]_[A-Za-z]|triton\.(runtime|compiler|backends|knobs|experimental)\b)[\w.:]*"
)


def test_every_name_is_taken_away_below() -> None:
    assert {*AHEAD, *CODE, *INTERPRETER, SET_ACTIVE, KEY, GLUON, CACHE, LOADED, LIBDEVICE} == set(NAMES.without)


@pytest.mark.parametrize("name", CODE)
def test_without_its_classes_no_machine_code_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.jit import JITFunction

    hide(monkeypatch, NAMES, name)
    function = JITFunction(test_every_name_is_taken_away_below)
    assert list(triton_private.compiled_kernels([function, name])) == []


ASKED = """
from harness.precompile import server
from harness.private import lookup, triton_private
find, answers = lookup._find, {}
for path in PATHS:
    lookup._find = lambda asked: None if asked == path else find(asked)
    triton_private.NAMES._found.clear()
    answers[path] = server.facts("cuda:0")
lookup._find = find
triton_private.NAMES._found.clear()
print(json.dumps([answers, server.facts("cuda:0")]))
"""


def test_nothing_is_compiled_ahead_without_one_of_them() -> None:
    """The worker then has no facts for the process that compiles, and asks nothing of it."""
    without, whole = run_python(DRIVER + ASKED.replace("PATHS", repr([*AHEAD, SET_ACTIVE])))
    assert without == dict.fromkeys([*AHEAD, SET_ACTIVE])
    assert whole["target"] == ["cuda", 90, 32]


def test_what_only_saves_time_ahead_may_be_absent(tmp_path: Path) -> None:
    facts = run_python(DRIVER + "from harness.precompile import server\nprint(json.dumps(server.facts('cuda:0')))\n")
    builder = Builder(before=code([KEY, GLUON], "triton"))
    try:
        assert builder.build(written(tmp_path / "scale"), facts, tmp_path / "cache") == 3
        assert len(cubins(tmp_path / "cache")) == 3
    finally:
        assert builder.close() == ""


@pytest.mark.parametrize("hidden", [False, True])
def test_tritons_cache_is_pinned_where_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hidden: bool
) -> None:
    import triton

    monkeypatch.setattr(NAMES, "_found", {})
    monkeypatch.setattr(triton.knobs, "cache", SimpleNamespace(dir=str(tmp_path / "cache")))
    if hidden:
        hide(monkeypatch, NAMES, CACHE)
    monkeypatch.delenv("TRITON_CACHE_DIR")
    worker._pin_triton_cache()
    assert os.environ.get("TRITON_CACHE_DIR") == (None if hidden else str(tmp_path / "cache"))


@pytest.mark.parametrize("hidden", [False, True])
def test_what_the_compiler_said_is_left_out_of_a_profile(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    from triton.compiler.compiler import CompiledKernel

    loaded: list[Any] = []
    monkeypatch.setattr(CompiledKernel, "_init_handles", loaded.append)
    monkeypatch.setattr(NAMES, "_found", {})
    if hidden:
        hide(monkeypatch, NAMES, LOADED)
    seen = triton_private.watch_kernels()
    if hidden:
        assert not hasattr(CompiledKernel, "_init_handles")
        return
    about = SimpleNamespace(name="scale", shared=16, num_warps=4)
    CompiledKernel._init_handles(SimpleNamespace(metadata=about, hash="1f", n_regs=32, n_spills=0))
    CompiledKernel._init_handles(SimpleNamespace(hash="2f"))  # one that says nothing of itself
    assert len(loaded) == 2
    assert seen == {
        "scale 1f": {
            "name": "scale", "registers": 32, "spills": 0, "shared_bytes": 16, "warps": 4, "stages": None,
        }
    }  # fmt: skip


def test_a_worker_answers_without_libdevice_and_a_cache(tmp_path: Path) -> None:
    with Child(before=code([LIBDEVICE, CACHE, LOADED, *INTERPRETER], "triton")) as child:
        events = child.run(write_task(tmp_path), baseline="eager")
    assert events[-1]["event"] == "finished"
    assert {result["status"] for result in results(events).values()} == {"ok"}


def test_autotuning_is_off_in_the_interpreter_without_libdevice(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    given: list[Any] = []
    monkeypatch.setattr(triton, "autotune", lambda configs, *args, **kwargs: given.append((configs, args, kwargs)))
    hide(monkeypatch, NAMES, LIBDEVICE, *INTERPRETER)
    interpreter.install()
    triton.autotune(["first", "second"], key=["n"], prune_configs_by={})
    assert given == [(["first"], (), {"key": ["n"]})]


def test_a_name_is_looked_up_once_and_only_if_it_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    names = PrivateNames(
        {
            "json:loads": "",
            "json:nothing.inside": "no inside",
            "json.nothing": "no module",
            "nowhere.at.all": "no package",
            "json.tool": "",
        }
    )
    assert names.find("json:loads") is json.loads
    monkeypatch.delattr(json, "loads")
    assert names.find("json:loads") is not None
    assert names.find("json:nothing.inside") is None
    with pytest.raises(KeyError, match="not in the table"):
        names.find("json:dumps")
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    assert names.missing() == {
        "json.nothing.inside": "no inside",
        "json.nothing": "no module",
        "nowhere.at.all": "no package",
    }
    assert "json.tool" not in sys.modules


def test_the_report_imports_no_compiler() -> None:
    look = "import json, sys; from harness.private.report import report; found = report()\n"
    found, modules = run_python(look + "print(json.dumps([found, sorted(sys.modules)]))")
    assert found["count"] >= len(torch_private.NAMES.without) + len(NAMES.without)
    assert found["missing"] == {}
    assert not {"torch._dynamo", "torch._inductor"} & set(modules)


def test_the_report_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, NAMES, CACHE, LIBDEVICE)
    assert set(report.report()["missing"]) == {"triton.knobs.cache", "triton.language.extra.libdevice"}


@pytest.mark.parametrize(
    ("torch", "triton", "says"),
    [
        ("2.11.0+cu130", "3.6.0", ""),
        ("2.13.0+cpu", "3.6.1", ""),
        ("2.13.0+cpu", None, ""),
        ("2.6.0", "3.2.0", "torch 2.6.0 and triton 3.2.0"),
        ("2.13.0", "3.7.0", "torch 2.13.0 and triton 3.7.0"),
        ("2.1.1", None, "torch 2.1.1"),
    ],
)
def test_versions_that_were_not_tried_are_named(torch: str, triton: str | None, says: str) -> None:
    assert report.untried(torch, triton) == says


def test_the_versions_of_the_makefile_were_tried() -> None:
    text = (ROOT / "Makefile").read_text()
    torch, triton = (re.search(rf"^{name} := \w+==(.+)$", text, re.M) for name in ("TORCH_PACKAGE", "TRITON"))
    assert torch
    assert triton
    assert report.untried(torch[1], triton[1]) == ""


def test_an_install_replaces_nobodys_torch() -> None:
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (torch,) = [need for need in needs if need.startswith("torch")]
    (triton,) = [need for need in needs if need.startswith("triton")]
    assert re.fullmatch(r"torch>=[\d.]+", torch)
    assert re.fullmatch(r"triton *;.*", triton)


def used_privately(path: Path) -> list[str]:
    """Private names of torch and triton that a file spells: as attributes, imports or text."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            found.append(ast.unparse(node).replace("self._torch", "torch"))
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text for text in found if OUTSIDE.fullmatch(text)]


def test_private_names_are_spelled_nowhere_else() -> None:
    tables = ("process_state", "torch_private", "triton_private")
    places = {*(f"private/{name}.py" for name in tables), "cuda/torch_internals.py"}
    folder = ROOT / "harness"
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    spelled = {name: used_privately(path) for name, path in files.items()}
    assert {name: found for name, found in spelled.items() if found and name not in places} == {}
    assert all(spelled[name] for name in places)
