"""A real worker process on the CPU: one run end to end, and what each kind of mistake becomes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness import worker
from harness.load import compiled
from harness.private.torch_private import COMPILE_IMPORTS
from harness.shared.lines import decode
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.taskfile import load
from tests.harness.child import REFERENCE, SOLUTION, TASK, Child, findings, results, write_task

SMALL = ("small",)


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def only(events: list[dict[str, Any]], case: str = "small") -> dict[str, Any]:
    return results(events)[case]


def try_solution(child: Child, folder: Path, source: str, **more: Any) -> dict[str, Any]:
    """The small case of the scale task with another solution."""
    return only(child.run(write_task(folder, solution_py=source), cases=SMALL, **more))


def test_it_greets_before_and_after_importing_torch(child: Child) -> None:
    hello, ready = child.greeting
    assert (hello["event"], hello["protocol"]) == ("hello", 1)
    environment = decode(Environment, ready["environment"])
    assert environment.device == "cpu"
    assert environment.torch
    assert environment.device_name


def test_a_gpu_that_is_there_and_cannot_be_had_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has it for itself, or it is full: torch's reason is the first of its lines."""
    import torch

    def taken(number: int) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with more.")

    said: list[tuple[str, str]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", taken)
    monkeypatch.setattr(worker, "_unusable", lambda channel, code, message: said.append((code, message)))
    worker._open_gpu(cast(worker.Channel, None), "cuda")
    ((code, message),) = said
    assert code == "no_device"
    assert message.startswith("cuda:0 cannot be used: CUDA error: all CUDA-capable devices are busy or unavailable; ")


MANY = f"""
import sys, types
sys.modules.update((f"module_{{n}}", types.ModuleType("module")) for n in range({worker.MANY_MODULES} + 1))
"""
ASKS = """
import gc

class Held:
    \"\"\"A class is a cycle: only a collection can free it.\"\"\"

def scale(x, factor):
    held = sum(kind.__name__ == "Held" for kind in object.__subclasses__())
    raise RuntimeError(f"{held} {gc.get_freeze_count()} held and frozen")
"""


def test_what_a_run_imported_is_left_out_of_later_collections(tmp_path: Path) -> None:
    """torch.compile's modules are hundreds of thousands of objects, and a save that comes at once would wait."""
    with Child() as child:
        said = [
            try_solution(child, tmp_path / str(number), more + ASKS)["detail"]
            for number, more in enumerate(("", MANY, ""))
        ]
    held, frozen = zip(*((int(word) for word in detail.split()[-5:-3]) for detail in said), strict=True)
    assert frozen[1] <= frozen[0]
    assert frozen[2] > frozen[0] + worker.MANY_MODULES
    assert held[2] == 1  # nothing of the source that brought them in


def test_triton_keeps_the_cache_that_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch.compile names another where none is named."""
    from triton import knobs

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    before = knobs.cache.dir
    assert before.startswith(str(tmp_path))
    worker._pin_triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == knobs.cache.dir == before
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "a person's own"))
    worker._pin_triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "a person's own")


def test_a_home_that_cannot_be_written_leaves_the_cache_to_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    for home, writable in ((tmp_path / "file", True), (tmp_path / "mounted read-only", False)):
        monkeypatch.setenv("TRITON_HOME", str(home))
        monkeypatch.setattr(os, "access", lambda *_, writable=writable: writable)
        worker._pin_triton_cache()
        assert "TRITON_CACHE_DIR" not in os.environ


def test_no_other_emit_fits_into_the_channel() -> None:
    channel = worker.Channel(0, 1)
    with pytest.raises(AttributeError):
        channel.emit = print  # type: ignore[method-assign]
    assert not hasattr(channel, "__dict__")


@pytest.mark.parametrize("pieces", [0, 2, len(COMPILE_IMPORTS)])
def test_a_worker_is_warm_when_nothing_slow_is_left(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Also the imports that it makes while it is idle: a save that comes meanwhile waits for one of them, and the rest
    follows the run."""
    seen: list[str] = []
    monkeypatch.setattr(compiled, "_waiting", [])
    monkeypatch.setattr(compiled, "_pieces", list(COMPILE_IMPORTS))

    def imported(name: str) -> None:
        seen.append(name)
        raise ImportError(name)  # another torch's

    monkeypatch.setattr(worker.importlib, "import_module", imported)
    channel: Any = SimpleNamespace(
        quiet_for=lambda seconds: len(seen) <= pieces, emit=lambda event, **_: seen.append(event)
    )
    gpu = SimpleNamespace(warm=lambda: seen.append("GPU"), memory_free=lambda: 0.25)
    worker._warm_up(channel, gpu)
    is_whole = pieces == len(COMPILE_IMPORTS)
    assert seen == ["GPU", *COMPILE_IMPORTS[:pieces], *(["warm"] if is_whole else [])]
    seen.clear()
    left, pieces = COMPILE_IMPORTS[pieces:], len(COMPILE_IMPORTS)
    worker._load_compiler(channel)
    assert seen == ([] if is_whole else [*left, "warm"])
    seen.clear()
    worker._warm_up(channel, None)
    assert seen == ["warm"]


@pytest.mark.parametrize(
    ("source", "step"),
    [
        ("import os, numpy as np\nfrom torch import nn\nfrom helper import f\n# like triton or cupy", "check"),
        ("import triton", "check"),
        ("import math; print(math.pi, end=' ')", "check"),
        ("import os, kb_compiler as compiler", "build"),
        ("def late():\n    from kb_compiler.parts import f", "build"),
        ("compiled = lambda f: torch.compile(f)", "build"),
    ],
)
def test_a_source_that_imports_a_package_has_a_builds_time_for_its_first_call(
    child: Child, tmp_path: Path, source: str, step: str
) -> None:
    """On a CPU, Triton is interpreted. No text in a comment matters."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "kb_compiler.py").write_text("")
    start = f"import sys; sys.path.append({str(tmp_path / 'packages')!r})\nimport torch\n{source}\n"
    text = f"{start}\ndef scale(x, factor): return x * factor\n"
    events = child.run(write_task(tmp_path, solution_py=text, helper_py="def f(): pass"), cases=("small",), quick=True)
    steps = [event["step"] for event in events if event["event"] == "step"]
    assert steps[:4] == ["load", "inputs", step, "check"]
    assert results(events)["small"]["status"] == "ok"


def test_one_run_from_start_to_end(child: Child, tmp_path: Path) -> None:
    events = child.run(write_task(tmp_path), controls=True)
    assert child.warmed
    words = [event["event"] for event in events if event["event"] not in ("step", "built")]
    assert words == ["started", "controls", "case", "case", "case", "case", "finished"]
    assert events[0]["environment"]["threads"] == 1
    assert "cold caches" in events[0]["environment"]["condition"]
    assert all(event["run"] == events[0]["run"] and event["at_ms"] >= 0 for event in events)
    steps = [(event["step"], event["case"]) for event in events if event["event"] == "step"]
    assert steps[0] == ("load", None)
    of_large = [step for step, case in steps if case == "large"]
    assert of_large == ["inputs", "check", "check", "baseline", "time", "recheck"]
    for result in results(events).values():
        case = decode(CaseResult, result)
        assert (case.status, case.clock, case.checked) == ("ok", "wall", 2)
        assert case.baseline_us is not None
        assert case.ratio is not None
        assert case.wall is not None
        assert case.error is not None
        assert case.samples is not None
        assert set(case.samples) == {"baseline", "solution"}


def test_best_is_timed_beside_baseline_and_solution(child: Child, tmp_path: Path) -> None:
    best = write_task(tmp_path / "best")
    result = only(child.run(write_task(tmp_path / "now"), best=str(best), cases=SMALL))
    assert result["best_us"] is not None
    assert result["vs_best"]["verdict"] in ("faster", "same", "slower", "unclear")
    assert set(result["samples"]) == {"baseline", "best", "solution"}


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("def scale(x, factor): return x * 3", "output 0 differs at ["),
        ("import torch\ndef scale(x, factor): return torch.empty_like(x)", "output 0 was never written"),
        ("def scale(x, factor): return None", "it returned None"),
        ("def scale(x, factor): return 5", "output 0 has shape [], expected [8, 33]"),
        ("def scale(x, factor): return (x * 2).double()", "output 0 is float64, expected float32"),
        ("def scale(x, factor): return (x * 2).t().contiguous().t()", "output 0 has strides [1, 8], expected [33, 1]"),
        ("def scale(x, factor): return (x * 2, x)", "2 outputs, expected 1"),
        ("def scale(x, factor): return x.mul_(2)", "the call wrote to its input 'x', which is not listed in mutates"),
        ("def scale(x, factor): return x * 2 if abs(x[0, 0] + 0.82013) > 1e-4 else x * 3", "(seed 7)"),
        ("def scale(x, factor): return (x * 2).clamp(-10, 10)", "(seed 8, spread 64)"),
        ("def scale(x, factor): return x * 2 if (x > 0).double().mean() < 0.9 else x", "(seed 10, offset 3)"),
        ("n = []\ndef scale(x, factor):\n    n.append(1)\n    return x * 2 if len(n) < 4 else x", "(in a timed call)"),
    ],
)
def test_wrong_is_wrong_and_has_no_time(child: Child, tmp_path: Path, source: str, detail: str) -> None:
    result = try_solution(child, tmp_path, source)
    assert result["status"] == "wrong"
    assert detail in result["detail"]
    assert result["solution_us"] is None
    assert result["speedup"] is None


def test_inputs_made_with_a_sources_settings_are_not_kept_for_the_next(tmp_path: Path) -> None:
    """A new worker has kept no inputs yet, so the leaking source's are the first that it could keep."""
    leaking = "import torch\ntorch.set_default_dtype(torch.float64)\ndef scale(x, factor):\n    return x * factor\n"
    with Child() as fresh:
        fresh.run(write_task(tmp_path, solution_py=leaking))
        rows = results(fresh.run(write_task(tmp_path)))
    assert {row["status"] for row in rows.values()} == {"ok"}, rows


def test_results_remembered_by_address_are_wrong(child: Child, tmp_path: Path) -> None:
    source = """
    known, calls = {}, []
    def scale(x, factor):
        calls.append(1)
        if len(calls) < 4:
            return x * factor
        if x.data_ptr() not in known:
            known[x.data_ptr()] = x * factor
        return known[x.data_ptr()]
    """
    result = try_solution(child, tmp_path, source)
    assert result["status"] == "wrong"
    assert "(in a timed call)" in result["detail"]
    assert [finding["name"] for finding in result["findings"]] == ["stale result"]


WRONG_LATER = """
import torch
calls, kept = [], None
def scale(x, factor):
    global kept
    calls.append(1)
    kept = torch.empty_like(x) if kept is None or not KEEPS else kept
    torch.mul(x, factor, out=kept)
    return kept.add_(1) if len(calls) > 12 else kept
"""


@pytest.mark.parametrize(("keeps", "names"), [(False, []), (True, ["output kept between calls"])])
def test_a_wrong_timed_result_that_lies_in_kept_memory_is_named(
    child: Child, tmp_path: Path, keeps: bool, names: list[str]
) -> None:
    result = try_solution(child, tmp_path, WRONG_LATER.replace("KEEPS", str(keeps)))
    assert (result["status"], "(in a timed call)" in result["detail"]) == ("wrong", True)
    assert [finding["name"] for finding in result["findings"]] == names


def test_a_wrong_timed_result_stays_wrong_if_memory_is_too_short_to_say_why(tmp_path: Path) -> None:
    full = """
import torch
from harness.run import case_timing
def copies(inputs):
    raise torch.OutOfMemoryError("full")
case_timing.copies = copies
"""
    with Child(before=full) as short_of_memory:
        result = try_solution(short_of_memory, tmp_path, WRONG_LATER.replace("KEEPS", "False"))
    assert (result["status"], "(in a timed call)" in result["detail"]) == ("wrong", True)


def test_a_point_of_the_grid_is_held_to_leave_its_inputs_alone(child: Child, tmp_path: Path) -> None:
    source = """
    def scale(x, factor):
        out = x * factor
        if x.shape[0] == 3:
            x.add_(1)
        return out
    """
    grid = "[grid]\nrows = [3, 5]\ncolumns = [9]\n"
    events = child.run(write_task(tmp_path, solution_py=source, task_toml=TASK + grid))
    found = {case: result["status"] for case, result in results(events).items() if "rows" in case}
    assert sorted(found.values()) == ["ok", "wrong"]
    wrong = next(result for case, result in results(events).items() if found.get(case) == "wrong")
    assert wrong["detail"] == "the call wrote to its input 'x', which is not listed in mutates"


def test_an_output_inside_an_input_is_wrong(child: Child, tmp_path: Path) -> None:
    folder = write_task(
        tmp_path,
        reference_py=REFERENCE.replace("return x * factor", "return x[:4].clone()"),
        solution_py="def scale(x, factor): return x[:4]",
    )
    result = only(child.run(folder, cases=SMALL))
    assert (result["status"], result["checked"]) == ("wrong", 2)
    assert result["detail"] == "output 0 shares memory with input 'x'; return a new tensor"


def test_what_raises_has_a_place(child: Child, tmp_path: Path) -> None:
    result = try_solution(child, tmp_path, "def scale(x, factor):\n    return x.nothing\n")
    assert result["status"] == "runtime_error"
    assert result["detail"] == "AttributeError: 'Tensor' object has no attribute 'nothing'"
    assert result["where"] == {"file": "solution.py", "line": 2, "text": "return x.nothing"}


@pytest.mark.parametrize("statement", ["raise KeyboardInterrupt", "import sys; sys.exit(1)", "raise GeneratorExit"])
def test_the_worker_outlives_whatever_is_raised(child: Child, tmp_path: Path, statement: str) -> None:
    result = try_solution(child, tmp_path / "bad", f"def scale(x, factor):\n    {statement}\n")
    assert result["status"] == "runtime_error"
    assert try_solution(child, tmp_path / "good", SOLUTION)["status"] == "ok"


def test_random_results_are_a_finding_not_a_failure(child: Child, tmp_path: Path) -> None:
    source = "import torch\ndef scale(x, factor): return x * factor + torch.rand_like(x) * 1e-6\n"
    result = try_solution(child, tmp_path, source)
    assert result["status"] == "ok"
    names = {finding["name"] for finding in result["findings"]}
    assert names == {"nondeterministic"}


@pytest.mark.parametrize(
    ("statement", "amount"),
    [
        ("print('row', x.shape[0])", "6 bytes"),
        ("os.write(1, b'by hand')", "7 bytes"),
        ("ctypes.CDLL(None).puts(b'in C')", "5 bytes"),
        ("print('once') if first.pop('here', 0) else None", ""),
    ],
)
def test_printing_while_timed_is_a_note(child: Child, tmp_path: Path, statement: str, amount: str) -> None:
    source = "import ctypes, os\nfirst = {'here': 1}\ndef scale(x, factor):\n    STATEMENT\n    return x * factor\n"
    result = try_solution(child, tmp_path, source.replace("STATEMENT", statement))
    found = {finding["code"]: finding["help"] for finding in result["findings"] if not finding["red"]}
    said = f"each call writes {amount} to stdout or stderr, and printing is timed too; remove it"
    assert (result["status"], found) == ("ok", {"prints": said} if amount else {})


def test_threads_left_running_are_a_finding(child: Child, tmp_path: Path) -> None:
    source = """
    import threading, time
    def scale(x, factor):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        return x * factor
    """
    events = child.run(write_task(tmp_path, solution_py=source), cases=SMALL)
    assert "left threads running" in findings(events)


def test_more_threads_than_the_task_allows_are_a_red_finding(child: Child, tmp_path: Path) -> None:
    source = "import torch\ndef scale(x, factor):\n    torch.set_num_threads(2)\n    return x * factor\n"
    found = try_solution(child, tmp_path, source)["findings"]
    assert [(finding["name"], finding["red"]) for finding in found] == [("too many threads", True)]
    assert not try_solution(child, tmp_path / "next", SOLUTION)["findings"]


def test_a_source_that_cannot_be_loaded_ends_the_run(child: Child, tmp_path: Path) -> None:
    snapshot = write_task(tmp_path / "snapshot", solution_py="import torch\nx = (1\n")
    folder = write_task(tmp_path / "user")
    last = child.run(folder, snapshot)[-1]
    assert (last["event"], last["status"]) == ("failed", "build_error")
    assert last["message"] == "SyntaxError: '(' was never closed"
    assert last["where"] == {"file": "solution.py", "line": 2, "text": "x = (1"}
    assert "snapshot" not in json.dumps(last)


def test_a_task_whose_inputs_fail_is_to_blame_itself(child: Child, tmp_path: Path) -> None:
    bad = REFERENCE.replace('case["rows"]', 'case["lines"]')
    last = child.run(write_task(tmp_path, reference_py=bad))[-1]
    assert (last["event"], last["status"]) == ("failed", "bad_task")
    assert last["message"] == "make_inputs failed for case small: KeyError: 'lines'"
    assert last["where"]["file"] == "reference.py"


def test_a_reference_that_was_broken_and_put_back_is_loaded_again(child: Child, tmp_path: Path) -> None:
    """Another folder each time, as snapshots are; the first and the last hold the same."""
    good = write_task(tmp_path / "good")
    broken = write_task(tmp_path / "broken", reference_py=REFERENCE + "import nonexist\n")
    assert only(child.run(good))["status"] == "ok"
    task = load(good)
    child.request(task, broken)
    assert child.events()[-1]["status"] == "bad_task"
    assert only(child.run(good))["status"] == "ok"


def test_older_tasks_without_spread_and_offset_still_run(child: Child, tmp_path: Path) -> None:
    plain = REFERENCE.replace(", spread=1.0, offset=0.0", "").replace("x * spread + offset", "x")
    assert only(child.run(write_task(tmp_path, reference_py=plain)))["status"] == "ok"


def test_mutating_tasks_are_restored_before_every_call(child: Child, tmp_path: Path) -> None:
    files = {
        "task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nmutates = ["x"]'),
        "reference_py": REFERENCE.replace("return x * factor", "x.mul_(factor)"),
    }
    right = only(child.run(write_task(tmp_path / "right", **files, solution_py="def scale(x, factor): x.add_(x)")))
    assert (right["status"], right["checked"]) == ("ok", 2)
    assert right["speedup"] is not None
    wrong = only(child.run(write_task(tmp_path / "wrong", **files, solution_py="def scale(x, factor): return x * 2")))
    assert (wrong["status"], wrong["detail"][:10]) == ("wrong", "x differs ")


RETURNED = {
    "def scale(x, factor): return x.mul_(factor)": "ok",
    "def scale(x, factor): return x.mul_(factor).clone()": "ok",
    "def scale(x, factor): return x.mul_(factor) * 0": "wrong: output 0 differs",
    "def scale(x, factor): x.mul_(factor)": "wrong: it returned None",
    "def scale(x, factor): return x * factor": "wrong: x differs",
}


@pytest.mark.parametrize(("solution", "outcome"), RETURNED.items())
def test_what_an_in_place_reference_returns_is_judged_too(
    child: Child, tmp_path: Path, solution: str, outcome: str
) -> None:
    files = {
        "task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nmutates = ["x"]'),
        "reference_py": REFERENCE.replace("return x * factor", "return x.mul_(factor)"),
    }
    result = only(child.run(write_task(tmp_path, **files, solution_py=solution)))
    assert f"{result['status']}: {result['detail']}".startswith(outcome)


def test_a_returned_tensor_may_have_the_name_of_a_mutated_input(child: Child, tmp_path: Path) -> None:
    files = {
        "task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nmutates = ["x"]'),
        "reference_py": REFERENCE.replace("return x * factor", "return {'x': x.mul_(factor)}"),
    }
    solution = "def scale(x, factor): return {'x': x.mul_(factor) * 0}"
    wrong = only(child.run(write_task(tmp_path, **files, solution_py=solution)))
    assert wrong["detail"].startswith("returned x differs")


def test_the_tasks_own_checks_count(child: Child, tmp_path: Path) -> None:
    own = REFERENCE + "\ndef check(case, inputs, outputs):\n    return [('sum', abs(outputs.sum().item()), 1e-9)]\n"
    result = only(child.run(write_task(tmp_path, reference_py=own), cases=SMALL))
    assert result["status"] == "wrong"
    assert result["detail"].startswith("check 'sum': error ")


def test_a_baseline_that_fails_leaves_the_row_its_own_time(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, baseline_py="def scale(x, factor):\n    raise ValueError('not here')\n")
    result = only(child.run(folder, baseline="baseline.py", cases=SMALL))
    assert result["status"] == "ok"
    assert result["solution_us"] > 0
    assert (result["baseline_us"], result["speedup"], result["verdict"]) == (None, None, None)
    assert result["reason"] == "baseline_fails"
    assert result["detail"] == "baseline: failed (baseline.py:2: ValueError: not here)"


def test_a_file_and_best_can_be_the_baseline(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, baseline_py=SOLUTION)
    assert only(child.run(folder, baseline="baseline.py", cases=SMALL))["speedup"] is not None
    assert only(child.run(folder, baseline="best", best=str(folder), cases=SMALL))["vs_best"] is not None
    assert only(child.run(folder, baseline="best", cases=SMALL))["reason"] == "no_best_yet"


def test_a_spelled_out_operator_gets_no_comparison_with_best(child: Child, tmp_path: Path) -> None:
    source = """
    import torch
    from torch import Tensor
    @torch.library.custom_op("literal::scale", mutates_args=())
    def op(x: Tensor, factor: float) -> Tensor:
        return x * factor
    def scale(x, factor):
        return torch.ops.literal.scale(x, factor)
    """
    folder = write_task(tmp_path, solution_py=source)
    events = child.run(folder, best=str(folder), cases=SMALL)
    assert findings(events) == {"shared operator name"}
    assert (only(events)["status"], only(events)["vs_best"]) == ("ok", None)


def test_operators_of_one_name_are_kept_apart_across_sides(child: Child, tmp_path: Path) -> None:
    source = """
    import torch
    from torch import Tensor
    @torch.library.custom_op("mine::scale", mutates_args=())
    def op(x: Tensor, factor: float) -> Tensor:
        return x * {factor}
    def scale(x, factor):
        return op(x, factor)
    """
    best = write_task(tmp_path / "best", solution_py=source.format(factor="factor"))
    folder = write_task(tmp_path / "now", solution_py=source.format(factor="3"))
    assert only(child.run(folder, best=str(best), cases=SMALL))["status"] == "wrong"
    folder = write_task(tmp_path / "again", solution_py=source.format(factor="2.0"))
    result = only(child.run(folder, best=str(best), cases=SMALL))
    assert result["status"] == "ok"
    assert result["vs_best"] is not None


def test_cancel_is_answered(child: Child, tmp_path: Path) -> None:
    slow = "import time\ndef scale(x, factor):\n    time.sleep(0.05)\n    return x * factor\n"
    folder = write_task(tmp_path, solution_py=slow)
    run = child.request(load(folder), folder)
    while child.read().get("step") != "check":
        pass
    child.send(request="cancel", run=run)
    assert child.events()[-1]["event"] == "cancelled"
    assert try_solution(child, tmp_path / "next", SOLUTION)["status"] == "ok"


def test_floors_are_measured_on_request(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path)
    child.send(request="floor", run="f", task=task_json(folder), source=str(folder), baseline="eager", cases=["small"])
    events = child.events()
    floor = next(event for event in events if event["event"] == "floor")
    assert floor["case"] == "small"
    assert floor["floor"] >= 0
    assert events[-1]["event"] == "finished"


def task_json(folder: Path) -> dict[str, Any]:
    from harness.shared.lines import to_dict

    return to_dict(load(folder))


def test_saves_do_not_pile_up(child: Child, tmp_path: Path) -> None:
    """Sides of earlier saves are forgotten: no module of them is left."""
    source = """
    import sys
    sides = {name.partition('.')[0] for name in sys.modules if name.startswith('_kb_')}
    assert len(sides) <= 4, f"%d: {sides}"
    def scale(x, factor):
        return x * factor
    """
    for number in range(6):
        folder = write_task(tmp_path / str(number), solution_py=source % number)
        assert only(child.run(folder, cases=SMALL))["status"] == "ok"


CPP_TASK = {
    "reference_py": REFERENCE,
    "solution_py": """
    import torch
    from harness.host import load
    cpp = load("solution.cpp")
    def scale(x, factor):
        out = torch.empty_like(x)
        cpp.scale(x, out, x.numel(), factor)
        return out
    """,
}
CPP = """
#include <cstdint>
extern "C" void scale(const float* x, float* out, int64_t n, double factor) {
    for (int64_t i = %s; i < n %s; ++i) out[i] = x[i] * (float)factor;
}
"""


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
class TestHostKernels:
    def test_right(self, child: Child, tmp_path: Path) -> None:
        result = only(child.run(write_task(tmp_path, **CPP_TASK, solution_cpp=CPP % (0, ""))))
        assert (result["status"], result["checked"]) == ("ok", 2)

    @pytest.mark.parametrize(("span", "words"), [((0, "+ 1"), "past the end"), ((-1, ""), "before the start")])
    def test_one_element_outside(self, child: Child, tmp_path: Path, span: tuple[Any, ...], words: str) -> None:
        result = only(child.run(write_task(tmp_path, **CPP_TASK, solution_cpp=CPP % span)))
        assert result["status"] == "wrong"
        assert result["detail"] == f"the call wrote 1 element {words} of output 0"
        assert [(finding["name"], finding["red"]) for finding in result["findings"]] == [("out-of-bounds write", True)]

    def test_one_element_short(self, child: Child, tmp_path: Path) -> None:
        result = only(child.run(write_task(tmp_path, **CPP_TASK, solution_cpp=CPP % (0, "- 1"))))
        assert (result["status"], result["detail"]) == ("wrong", "output 0 was not written at [7, 32]")

    def test_a_compile_error_has_a_place(self, child: Child, tmp_path: Path) -> None:
        bad = 'extern "C" void scale(const float* x) {\n    return undefined_name;\n}\n'
        snapshot = write_task(tmp_path / "snapshot", **CPP_TASK, solution_cpp=bad)
        last = child.run(write_task(tmp_path / "user", **CPP_TASK, solution_cpp=bad), snapshot)[-1]
        assert (last["event"], last["status"]) == ("failed", "build_error")
        assert last["where"] == {"file": "solution.cpp", "line": 2, "text": "return undefined_name;"}
        assert "undefined_name" in last["message"]


def test_what_the_kernel_prints_or_reads_stays_out_of_the_pipe(tmp_path: Path) -> None:
    source = """
    import os, sys
    def scale(x, factor):
        print('{"event": "forged"}', flush=True)
        os.write(1, b'{"event": "forged"}\\n')
        assert sys.stdin.read() == ""
        return x * factor
    """
    with Child() as child:
        events = child.run(write_task(tmp_path, solution_py=source), cases=SMALL)
        assert only(events)["status"] == "ok"
        assert all(event["event"] != "forged" for event in events)
        child.process.stdin.close()  # type: ignore[union-attr]
        assert "forged" in child.process.stderr.read()  # type: ignore[union-attr]


def test_a_crash_is_an_exit_after_the_step_that_names_it(tmp_path: Path) -> None:
    source = "import ctypes\ndef scale(x, factor):\n    ctypes.string_at(0)\n"
    child = Child()
    events = child.run(write_task(tmp_path, solution_py=source), cases=SMALL)
    assert events[-1]["event"] == "gone"
    assert (events[-2]["step"], events[-2]["case"]) == ("check", "small")
    assert child.process.wait(timeout=20) == -signal.SIGSEGV
    for stream in (child.process.stdin, child.process.stdout, child.process.stderr):
        stream.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("evidence", "folder"),
    [(None, "FOLDER"), ('{"folder": "/src/py"}', "/src/py"), ('{"folder": ""}', "FOLDER"), ("[", "FOLDER")],
)
def test_a_missing_module_is_looked_for_where_the_capture_found_it(
    child: Child, tmp_path: Path, evidence: str | None, folder: str
) -> None:
    if evidence is not None:
        (tmp_path / "capture.json").write_text(evidence)
    failed = child.run(write_task(tmp_path, solution_py="import no_such_module\n"), cases=SMALL)[-1]
    assert failed["message"] == (
        "ModuleNotFoundError: No module named 'no_such_module'; "
        f"KERNBENCH_PYTHONPATH={folder} puts a folder on the worker's sys.path"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_another_root_folder_is_a_crash_of_the_source(tmp_path: Path) -> None:
    source = f"import os\ndef scale(x, factor):\n    os.chroot({str(tmp_path)!r})\n    return x * factor\n"
    child = Child()
    events = child.run(write_task(tmp_path, solution_py=source), cases=SMALL)
    assert events[-1]["event"] == "gone"
    assert child.process.wait(timeout=20) == 1
    assert "the source changed the root folder of its process (chroot)" in child.process.stderr.read()  # type: ignore[union-attr]
    for stream in (child.process.stdin, child.process.stdout, child.process.stderr):
        stream.close()  # type: ignore[union-attr]


def test_a_device_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Child("cuda:99") as child:
        assert child.greeting[1]["event"] == "unusable"
        assert child.greeting[1]["code"] == "no_device"
        assert child.process.wait(timeout=20) == 3


def test_memory_that_runs_out_in_the_slow_checks_leaves_the_time(child: Child, tmp_path: Path) -> None:
    greedy = REFERENCE.replace(
        "    return {", "    if spread != 1.0:\n        raise torch.OutOfMemoryError('full')\n    return {"
    )
    last = only(child.run(write_task(tmp_path, reference_py=greedy), cases=SMALL))
    assert (last["status"], last["checked"]) == ("ok", 2)
    assert last["solution_us"] is not None
    assert [finding["name"] for finding in last["findings"]] == ["fewer checks"]


def test_checks_that_ran_out_of_memory_are_tried_again_after_the_others(child: Child, tmp_path: Path) -> None:
    once = REFERENCE.replace(
        "    return {",
        "    if spread != 1.0 and not tried:\n        tried.append(1)\n"
        "        raise torch.OutOfMemoryError('full')\n    return {",
    )
    events = child.run(write_task(tmp_path, reference_py=f"tried = []\n{once}"), cases=("small", "large"))
    landed = [event for event in events if event["event"] == "case" and event["result"]["checked"] == 2]
    assert [event["result"]["id"] for event in landed] == ["large", "small"]
    assert [(row["status"], row["findings"]) for row in results(landed).values()] == [("ok", []), ("ok", [])]


RUNS_IN = """
import sys

def runs_in(name):
    frame, files = sys._getframe(), set()
    while frame is not None:
        files.add(frame.f_code.co_filename.rpartition("/")[2])
        frame = frame.f_back
    return name in files
"""


def test_kept_results_are_judged_again_when_memory_ran_out(child: Child, tmp_path: Path) -> None:
    """The source is wrong in measured calls alone, and memory runs out while the first of these is judged."""
    source = f"{RUNS_IN}\ndef scale(x, factor):\n    return x * factor + runs_in('clocks.py')\n"
    truth = (
        "tried = []\ndef truth(x, factor):\n    if runs_in('slow_checks.py') and not tried:\n"
        "        tried.append(1)\n        raise torch.OutOfMemoryError('full')\n    return scale(x.double(), factor)\n"
    )
    task = write_task(tmp_path, solution_py=source, reference_py=f"{REFERENCE}\n{RUNS_IN}\n{truth}")
    last = only(child.run(task, cases=SMALL))
    assert (last["status"], last["checked"]) == ("wrong", 2)
    assert last["detail"].endswith("(in a timed call)")
