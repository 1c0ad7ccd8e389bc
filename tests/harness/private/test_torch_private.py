"""Every private name of torch taken away in turn: the feature behind it is off, and a run still answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import cuda, target
from harness.check.guard import Guard
from harness.cuda import torch_internals
from harness.device import cupti
from harness.device.activity import LostRecords
from harness.device.kineto import Kineto, read
from harness.load import operator_names
from harness.private import torch_private
from harness.private.torch_private import NAMES
from harness.timing import case_timer, clocks
from tests.harness.child import SOLUTION, Child, findings, results, write_task
from tests.harness.precompile.test_fake_gpu import BELIEVE, PLAIN
from tests.harness.precompile.test_server import run_python
from tests.harness.private.hidden import code, hide

MODE = "torch.utils._python_dispatch:TorchDispatchMode"
HOOKS = [f"{MODE}._should_skip_dynamo", f"{MODE}.ignore_compile_internals"]
BODY = [
    "torch._C:DispatchKey",
    "torch._C:DispatchKeySet",
    "torch._C:_dispatch_has_computed_kernel_for_dispatch_key",
    "torch._ops:OpOverload.redispatch",
]
REGISTRY = ["torch._library.custom_ops:OPDEF_TO_LIB", "torch.library:Library._destroy"]
PROFILER = [f"torch._C._autograd:_{step}_profiler" for step in ("prepare", "enable", "disable")] + [
    f"torch._C._profiler:{name}"
    for name in ("ProfilerActivity", "ProfilerConfig", "ProfilerState", "_ExperimentalConfig")
]
WATCHED = [f"torch.autograd.profiler:_{step}_profiler" for step in ("prepare", "enable")]
COMPILER = [name for name in torch_private.COMPILE_IMPORTS if name.startswith("torch._")]
PHANTOM, DEVICE_TYPE, SLEEP = (
    "torch._C:_disabled_torch_function_impl",
    "torch._C._autograd:DeviceType",
    "torch.cuda:_sleep",
)

OPERATOR = """
import torch
from torch import Tensor

@torch.library.custom_op("mine::scale", mutates_args=())
def op(x: Tensor, factor: float) -> Tensor:
    out = torch.empty_like(x)
    torch.mul(x, factor, out=out)
    return out

def scale(x, factor):
    return op(x, factor)
"""
OVERRUN = """
import ctypes, torch

def scale(x, factor):
    ctypes.memset(x.data_ptr() + x.nbytes, 1, 4)
    return x * factor
"""


def test_every_name_is_taken_away_below() -> None:
    forced = {MODE, *HOOKS, *BODY, *REGISTRY, *PROFILER, *WATCHED, *COMPILER, PHANTOM, DEVICE_TYPE, SLEEP}
    assert forced == set(NAMES.without)
    assert {STREAM, DEVICE, *ALLOCATING, GUARDS} == set(torch_internals.WITHOUT)


@pytest.mark.parametrize(
    ("paths", "source"),
    [
        ([MODE], OPERATOR),
        ([*BODY, *REGISTRY], OPERATOR),
        (
            [*HOOKS, *COMPILER, *PROFILER[:3], DEVICE_TYPE, PHANTOM, SLEEP],
            SOLUTION,
        ),  # torch runs no operator without Dynamo
    ],
    ids=["no mode", "no operators", "no compiler"],
)
def test_a_worker_answers_without_them(tmp_path: Path, paths: list[str], source: str) -> None:
    """Two runs, so that the operators of the first are released; then the borders of inputs, which need no mode."""
    with Child(before=code(paths, "torch")) as child:
        for name in ("first", "second"):
            events = child.run(write_task(tmp_path / name, solution_py=source), baseline="eager")
            assert events[-1]["event"] == "finished", events[-1]
            assert {result["status"] for result in results(events).values()} == {"ok"}
            assert findings(events) == set()
        events = child.run(write_task(tmp_path / "overrun", solution_py=OVERRUN), baseline="eager")
        assert {result["status"] for result in results(events).values()} == {"wrong"}
        assert all("1 element past the end of x" in result["detail"] for result in results(events).values())


@pytest.mark.parametrize("path", BODY)
def test_the_body_of_an_operator_runs_unguarded(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    @torch.library.custom_op(f"kernbench_private::blank{BODY.index(path)}", mutates_args=())
    def blank(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x)

    overload, x = getattr(torch.ops.kernbench_private, f"blank{BODY.index(path)}").default, torch.ones(4)
    assert torch_private.own_kernel(overload, on_gpu=False) is not None
    hide(monkeypatch, NAMES, path)
    assert torch_private.own_kernel(overload, on_gpu=False) is None
    with Guard():
        assert torch.equal(blank(x), x)


def test_operators_stay_registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "source.py"
    made.write_text("")
    names = operator_names.Names("_kb_private_00000000", [str(made)])
    library = torch.library.Library(f"kept{names.suffix}", "DEF")
    library.define("f(Tensor x) -> Tensor")
    names.keep(library)
    hide(monkeypatch, NAMES, *REGISTRY)
    names.release()
    assert hasattr(getattr(torch.ops, f"kept{names.suffix}"), "f")


WARM = """
import json, types
from harness import worker
from harness.private import torch_private
said = []
channel = types.SimpleNamespace(emit=lambda event, **_: said.append(event), quiet_for=lambda seconds: True)
worker._warm_up(channel, types.SimpleNamespace(warm=lambda: said.append("GPU"), memory_free=lambda: 1.0))
print(json.dumps([said, torch_private.dynamo_is_loaded()]))
"""


def test_a_worker_is_warm_without_torchs_compiler() -> None:
    assert run_python(code(COMPILER, "torch") + WARM) == [["GPU", "warm"], False]


@pytest.mark.parametrize("path", PROFILER)
def test_calls_are_timed_by_event_pairs_without_torchs_profiler(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    class Gpu:
        device = "cuda:0"
        flush = staticmethod(lambda condition: None)
        recorder = property(lambda self: Kineto())

    made: Any = case_timer.CaseTimer(SimpleNamespace(condition="cold"), Gpu())  # type: ignore[arg-type]
    monkeypatch.setattr(clocks, "DeviceClock", lambda gpu, flush, recorder: recorder)
    assert isinstance(made.clock(), Kineto)
    hide(monkeypatch, NAMES, path)
    assert isinstance(made.clock(), clocks.EventClock)


def test_the_profilers_events_are_read_by_the_name_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        start_ns, end_ns, device_resource_id, correlation_id = (staticmethod(lambda: 1) for _ in range(4))

        def __init__(self, device: str) -> None:
            self.name, self.device_type = (lambda: device), (lambda: f"DeviceType.{device}")

    hide(monkeypatch, NAMES, DEVICE_TYPE)
    assert [record.name for record in read([Event("CPU"), Event("CUDA")])] == ["CUDA"]


@pytest.mark.parametrize("path", WATCHED)
def test_cupti_is_left_alone_where_profilers_cannot_be_watched(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """gpu.py then asks torch's profiler: see test_torchs_profiler_stands_in_where_cupti_cannot_be_asked."""

    class Library:
        def cuptiGetVersion(self, place: Any) -> int:
            place._obj.value = cupti.OLDEST
            return 0

    monkeypatch.setattr(cupti, "_loaded", Library)
    cupti._notice_profilers.cache_clear()
    try:
        hide(monkeypatch, NAMES, path)
        before = vars(torch.autograd.profiler).copy()
        with pytest.raises(LostRecords, match="cannot detect"):
            cupti.Cupti()
        assert vars(torch.autograd.profiler) == before
    finally:
        cupti._notice_profilers.cache_clear()


class Event:
    def __init__(self, enable_timing: bool) -> None: ...

    def record(self) -> None: ...

    def elapsed_time(self, end: Event) -> float:
        return 0.003


@pytest.mark.parametrize("hidden", [False, True])
def test_without_a_spin_event_pairs_and_profiles_go_on(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    spun: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", spun.append)
    monkeypatch.setattr(NAMES, "_found", {})
    if hidden:
        hide(monkeypatch, NAMES, SLEEP)
    for name, instead in (("Event", Event), ("synchronize", lambda: None)):
        monkeypatch.setattr(torch.cuda, name, instead)
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda: None)
    flush: Any = lambda: None  # noqa: E731
    assert clocks.EventClock(flush).measure([clocks.Call(None, lambda: None)]) == [clocks.Measured(3.0)]
    called: list[str] = []
    target._replayed([lambda: called.append("solution"), lambda: called.append("baseline")])
    assert called == ["solution", "baseline"]
    assert spun == ([] if hidden else [clocks.HEAD_START_CYCLES, 1])


DISABLED = """
made = [x.as_subclass(torch.Tensor), x.t(), phantom.FakeCudaTensor.__torch_function__(torch.Tensor.t, (), (x,), {})]
print(json.dumps([seen, [type(one).__name__ for one in made]]))
"""


@pytest.mark.parametrize("hidden", [[], [PHANTOM]], ids=["", "hidden"])
def test_phantoms_do_without_torchs_own_function(hidden: list[str]) -> None:
    """Torch handles them as plain tensors either way, once the mode that makes them is off."""
    shapes = {"x": PLAIN, "x[:, 1:]": ["cuda:1", [4, 63], [64, 1], 4]}
    believe = BELIEVE.replace("CODE", repr(list(shapes))).replace("print(json.dumps(seen))", DISABLED)
    seen, kinds = run_python(code(hidden, "torch") + believe)
    assert seen == list(shapes.values())
    assert kinds == ["Tensor"] * 3


GUARDS = "torch._C._dynamo.guards:TensorGuards"
ALLOCATING = ["torch._C._dynamo.guards:_empty_strided_cuda", "torch._C:_len_torch_dispatch_stack"]
STREAM, DEVICE = "torch._C:_cuda_getCurrentRawStream", "torch._C:_cuda_getDevice"


def without(patch: pytest.MonkeyPatch, path: str) -> None:
    """harness.cuda keeps nothing that it found."""
    module, _, name = path.partition(":")
    owner: Any = torch._C if module == "torch._C" else torch._C._dynamo.guards  # type: ignore[attr-defined]
    patch.delattr(owner, name, raising=False)  # a build for the CPU has some of them not
    assert path.replace(":", ".") in torch_internals.missing()


def test_forms_are_compared_without_torch_compiles_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, GUARDS)
    same = cuda.same_form_as(torch.zeros(4, 6))
    assert same(torch.ones(4, 6))
    assert not same(torch.ones(6, 4).t())


@pytest.mark.parametrize("path", ALLOCATING)
def test_outputs_are_allocated_by_torchs_public_function(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert torch_internals.allocator() is not None
    without(monkeypatch, path)
    assert torch_internals.allocator() is None
    x = torch.empty(3, 4, device="cuda" if torch.cuda.is_available() else "cpu").t()
    made = cuda.outputs_like(x)()
    assert (made.shape, made.stride(), made.device) == (x.shape, x.stride(), x.device)


def test_a_launch_asks_torchs_public_functions_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (STREAM, DEVICE):
        without(monkeypatch, path)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=40 + device))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert torch_internals.current_device()() == 2
    assert torch_internals.raw_stream()(2) == 42
