"""The recorder and the inputs made from its records, in this process."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.capture.captured import Captured
from harness.capture.recorder import MOST_FORMS, Recorder, signature
from harness.injection import import_hook
from kernbench.capture import captured_task
from kernbench.capture.command_run import Recorded, SiteRecord

LAYERS = """
import torch

class Gate(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.act = torch.nn.functional.silu
        self.eps = 0.5
        self.handle = object()
        self.register_buffer("scale", torch.full((size,), 2.0))

    def forward(self, x, *more, scale=None):
        return self.act(self.linear(x)) * self.scale + self.eps + sum(more)

def scaled(x, factor=2.0):
    return x * factor

def add_to(x, y):
    x += y

def noisy(x):
    return x + torch.randn_like(x)

def keyed(x, **options):
    return x * options.get("factor", 1.0)

def named(x):
    return "text"

def boxed(x, what):
    return x
"""


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "kb_layers.py").write_text(LAYERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("kb_layers", None)
    return __import__("kb_layers")


def record(layers: ModuleType, name: str, calls: Callable[[Callable[..., Any]], None]) -> SiteRecord:
    """What calls of a function of the module came to, through JSON as between the two processes."""
    owner: Any = layers
    *parents, last = name.split(".")
    for part in parents:
        owner = getattr(owner, part)
    recorder = Recorder(f"kb_layers:{name}", getattr(owner, last), False, lambda: None)
    calls(recorder.wrapper())
    forms = [json.loads(json.dumps(form.plain())) for form in recorder.forms.values()]
    return SiteRecord(recorder.site, str(layers.__file__), forms, recorder.left_out)


def written(tmp_path: Path, found: SiteRecord, name: str = "made") -> Captured:
    """The task of a record, and its inputs."""
    folder = tmp_path / name
    captured_task.write(folder, Recorded(("python", "step.py"), 0, [], {found.site: found}), found)
    return Captured("capture.json", {"__file__": str(folder / "reference.py")})


def test_calls_of_one_form_are_one_case_with_their_count(layers: ModuleType, tmp_path: Path) -> None:
    def calls(scaled: Callable[..., Any]) -> None:
        for _ in range(3):
            scaled(torch.ones(2, 3))
        scaled(torch.ones(4, 3), factor=0.5)

    found = record(layers, "scaled", calls)
    assert sorted((form["calls"], form["timed"]) for form in found.forms) == [(1, 0), (3, 2)]
    for form in found.forms:
        form["ms"] = float(form["calls"])
    written(tmp_path, found)
    cases = json.loads((tmp_path / "made" / "cases.json").read_text())
    assert [(case["id"], case["known"]["calls"], case["weight"]) for case in cases] == [
        ("2x3_fp32", 3, 3.0),
        ("4x3_fp32", 1, 1.0),
    ]
    assert (
        "def made(x, factor):\n    return captured.original(x=x, factor=factor)"
        in (tmp_path / "made" / "reference.py").read_text()
    )


def test_what_custom_op_makes_has_the_signature_of_its_schema() -> None:
    def turned(x, *, by=2): ...  # type: ignore[no-untyped-def]

    turned.__annotations__ = {"x": torch.Tensor, "by": int, "return": None}
    made = torch.library.custom_op("kb_signature::turned", turned, mutates_args=("x",))
    assert str(signature(made)) == "(x, *, by=2)"
    assert str(signature(torch.ops.aten.mul.Tensor)) == "(self, other)"
    assert str(signature(torch.ops.aten.relu)) == "(self)"
    assert str(signature(turned)) == "(x: torch.Tensor, *, by: int = 2) -> None"


def test_inputs_have_the_recorded_form_and_range(layers: ModuleType, tmp_path: Path) -> None:
    qkv = torch.randn(4, 3, 100, generator=torch.Generator().manual_seed(0)) * 3 + 20
    given = {
        "sliced": qkv[:, 1],
        "turned": qkv[:, 0].t(),
        "wide": torch.ones(1, 5).expand(6, 5),
        "mask": torch.tensor([True, False] * 50),
        "places": torch.arange(7, 27),
        "bounds": torch.tensor([0, 3, 3, 11], dtype=torch.int32),
        "sparse": torch.zeros(1000).index_fill(0, torch.arange(300), 5.0),
        "off": torch.ones(33)[1:],
        "none": None,
        "several": [torch.ones(2), (3, "text")],
        "dtype": torch.bfloat16,
    }
    found = record(layers, "keyed", lambda keyed: keyed(torch.ones(1), **given))
    captured = written(tmp_path, found)
    made = captured.make_inputs({"form": "f0"}, 1, "cpu")
    assert list(made) == ["x", *given]
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            assert (made[name].shape, made[name].stride()) == (value.shape, value.stride()), name
            assert made[name].dtype == value.dtype
            assert made[name].data_ptr() % 64 == value.data_ptr() % 64, name
    assert made["sliced"].mean() == pytest.approx(20, abs=1)
    assert made["sliced"].std() == pytest.approx(3, abs=0.5)
    assert made["sliced"].min() >= given["sliced"].min() - 1e-3
    assert torch.equal(made["places"], given["places"])
    assert torch.equal(made["bounds"][[0, -1]], torch.tensor([0, 11], dtype=torch.int32))
    assert torch.equal(made["bounds"], made["bounds"].sort().values)
    assert (made["sparse"] == 0).float().mean() == pytest.approx(0.7, abs=0.1)
    assert (made["none"], made["several"][1], made["dtype"]) == (None, (3, "text"), torch.bfloat16)
    assert not torch.equal(captured.make_inputs({"form": "f0"}, 2, "cpu")["sliced"], made["sliced"])
    assert found.forms[0]["aliases"] == [["sliced", "turned"]]


def test_one_tensor_under_two_names_stays_one(layers: ModuleType, tmp_path: Path) -> None:
    x = torch.randn(8)
    found = record(layers, "boxed", lambda boxed: boxed(x, x))
    made = written(tmp_path, found).make_inputs({"form": "f0"}, 1, "cpu")
    assert made["x"] is made["what"]


def test_a_module_is_made_again_with_its_weights(layers: ModuleType, tmp_path: Path) -> None:
    gate = layers.Gate(4).requires_grad_(False)
    found = record(layers, "Gate.forward", lambda forward: forward(gate, torch.ones(2, 4), 1.0))
    captured = written(tmp_path, found)
    text = (tmp_path / "made" / "reference.py").read_text()
    assert "def made(self, x, more_0, scale):\n    return captured.original(self, x, more_0, scale=scale)" in text
    assert "setup = captured.setup" in text
    seen: dict[str, Any] = {}
    call = captured.setup({"form": "f0"}, "cpu", torch.float32, lambda **named: seen.update(named))
    call(**captured.make_inputs({"form": "f0"}, 1, "cpu"))
    made = seen["self"]
    assert type(made) is layers.Gate
    assert (made.eps, made.act, made.linear.weight.shape) == (0.5, torch.nn.functional.silu, (4, 4))
    assert torch.equal(made.scale, gate.scale)
    assert captured.original(made, seen["x"], 1.0).shape == (2, 4)
    (argument, *_) = found.forms[0]["arguments"]
    assert argument["value"]["left_out"] == ["handle"]
    (case,) = json.loads((tmp_path / "made" / "cases.json").read_text())
    assert (case["id"], case["axes"]["shapes"]) == ("2x4_fp32", {"x": [2, 4]})
    exact = captured.setup({"form": "f0"}, "cpu", torch.float64, lambda **named: named["self"])
    assert exact(x=None).linear.weight.dtype == torch.float64


def test_what_it_writes_to_and_draws_is_in_the_task(layers: ModuleType, tmp_path: Path) -> None:
    found = record(layers, "add_to", lambda add_to: add_to(torch.ones(3), torch.ones(3)))
    written(tmp_path, found)
    assert 'mutates = ["x"]\n' in (tmp_path / "made" / "task.toml").read_text()
    with torch.inference_mode():  # such tensors count no versions
        found = record(layers, "add_to", lambda add_to: add_to(torch.ones(3), torch.ones(3)))
    assert found.forms[0]["mutates"] == ["x"]
    written(tmp_path, record(layers, "noisy", lambda noisy: noisy(torch.ones(3))), "random")
    assert "seeded = true" in (tmp_path / "random" / "task.toml").read_text()
    assert "seeded" not in (tmp_path / "made" / "task.toml").read_text()


def test_arguments_that_only_some_calls_have_are_passed_on(layers: ModuleType, tmp_path: Path) -> None:
    def calls(keyed: Callable[..., Any]) -> None:
        keyed(torch.ones(3))
        keyed(torch.ones(4), factor=2.0)

    written(tmp_path, record(layers, "keyed", calls))
    text = (tmp_path / "made" / "reference.py").read_text()
    assert "def made(x, **more):\n    return captured.original(x=x, **more)" in text


def test_every_number_a_form_of_its_own_is_cut_short(layers: ModuleType) -> None:
    found = record(
        layers, "scaled", lambda scaled: [scaled(torch.ones(1), factor=index) for index in range(60)] and None
    )
    assert (len(found.forms), found.left_out, found.calls) == (MOST_FORMS, 60 - MOST_FORMS, MOST_FORMS)


def test_nothing_that_the_recorder_cannot_do_stops_the_program(layers: ModuleType) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("odd")

    recorder = Recorder("kb_layers:boxed", layers.boxed, False, lambda: None)
    call, x = recorder.wrapper(), torch.ones(1)
    assert call(x, Odd()) is x
    assert recorder.problem == "a call could not be described: RuntimeError: odd"
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(x, wrong=1)
    assert call(x, None) is x
    assert [form.calls for form in recorder.forms.values()] == [1]


def test_a_call_that_fails_is_not_a_form(layers: ModuleType) -> None:
    answers = iter([ValueError("once"), torch.ones(1)])

    def failing(x: torch.Tensor) -> torch.Tensor:
        answer = next(answers)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    recorder = Recorder("kb_layers:failing", failing, False, lambda: None)
    with pytest.raises(ValueError, match="once"):
        recorder.wrapper()(torch.ones(1))
    assert recorder.forms == {}
    recorder.wrapper()(torch.ones(1))
    assert [(form.calls, form.result["kind"]) for form in recorder.forms.values()] == [(1, "tensor")]


def test_a_module_of_another_folder_is_not_mistaken(layers: ModuleType, tmp_path: Path) -> None:
    found = record(layers, "scaled", lambda scaled: scaled(torch.ones(1)))
    found.file = str(tmp_path / "elsewhere" / "kb_layers.py")
    with pytest.raises(ImportError, match="kb_layers is already imported from"):
        written(tmp_path, found)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("boxed", (torch.ones(1), lambda: None), "its argument 'what' has a builtins.function, which cannot be made"),
        ("scaled", (2.0,), "no tensor is among its arguments"),
        ("named", (torch.ones(1),), None),
    ],
)
def test_what_cannot_be_a_task_is_refused(
    layers: ModuleType, tmp_path: Path, name: str, arguments: tuple[Any, ...], says: str | None
) -> None:
    found = record(layers, name, lambda function: function(*arguments))
    with pytest.raises(captured_task.Refused, match=says or "it returns text"):
        written(tmp_path, found)
    assert not (tmp_path / "made").exists()


def test_a_module_is_patched_before_its_importers_copy_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kb_first.py").write_text("def f():\n    return 1\n")
    (tmp_path / "kb_second.py").write_text("from kb_first import f\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    import_hook.after_import({"kb_first": lambda module: setattr(module, "f", lambda: 2)})
    assert importlib.util.find_spec("kb_first") is not None  # as programs do that look for what is installed
    assert __import__("kb_second").f() == 2
