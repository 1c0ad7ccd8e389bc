"""Tasks in the forms that other suites use, in a real worker: each is right, and a wrong solution of it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.child import Child, results, write_task

TASK = """
name = "forms"
entry = "run"
device = "cpu"
MORE
[[case]]
id = "small"
axes = { rows = 8, cols = 33 }
"""
NESTED = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, device=device) * spread + offset
    weights = {"norm": {"weight": draw(case["cols"])}, "bias": draw(case["cols"])}
    return {"xs": [draw(case["rows"], case["cols"]), draw(case["rows"], case["cols"])], "weights": weights,
            "shape": (case["cols"],), "config": {"eps": 1e-5, "names": ["a"]}}

def run(xs, weights, shape, config):
    y = [torch.nn.functional.layer_norm(x, shape, weights["norm"]["weight"], weights["bias"], config["eps"])
         for x in xs]
    return {"hidden": y, "count": len(y), "last": (y[-1].amax(), None)}
"""
SETUP = """
import torch

class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.linear = torch.nn.Linear(cols, 16)

    def forward(self, x):
        return torch.relu(self.linear(x))

def setup(case, device, dtype):
    return Model(case["cols"]).to(device, dtype)

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset}

def run(model, x):
    return model(x)
"""
DESTINATION = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset
    return {"x": x, "out": torch.empty_like(x)}

def run(x, out):
    torch.mul(x, 2, out=out)
"""
GRADIENT = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset
    return {"x": x.requires_grad_()}

def run(x):
    x.square().sum().backward()
    return x.grad
"""
SEEDED = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset}

def run(x):
    return torch.nn.functional.dropout(x, 0.3)
"""
FORMS = {
    "nested": ("", NESTED, 'weights["bias"]', 'weights["bias"] * 1.01', "hidden"),
    "setup": ("", SETUP, "return model(x)", "return model(x) * 1.01", "output 0"),
    "destination": ('outputs = ["out"]', DESTINATION, "torch.mul(x, 2, out=out)", "out.mul_(2)", "out"),
    "seeded": ("seeded = true", SEEDED, "(x, 0.3)", "(x, 0.4)", "output 0"),
    "gradient": ("", GRADIENT, "x.square()", "x.abs()", "output 0"),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def played(child: Child, folder: Path, form: str, solution: str | None = None, **more: Any) -> dict[str, Any]:
    keys, reference, *_ = FORMS[form]
    text = reference if solution is None else solution
    folder = write_task(folder, task_toml=TASK.replace("MORE", keys), reference_py=reference, solution_py=text, **more)
    events = child.run(folder, cases=("small",))
    failed = [event for event in events if event["event"] == "failed"]
    assert not failed
    return results(events)["small"]


@pytest.mark.parametrize("form", FORMS)
def test_the_reference_as_the_solution_is_right_and_timed(child: Child, tmp_path: Path, form: str) -> None:
    row = played(child, tmp_path, form)
    assert (row["status"], row.get("detail")) == ("ok", None)
    assert row["speedup"] is not None
    assert row["checked"] == 2


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_solution_is_wrong(child: Child, tmp_path: Path, form: str) -> None:
    _keys, reference, right, wrong, name = FORMS[form]
    assert right in reference
    row = played(child, tmp_path, form, reference.replace(right, wrong))
    assert row["status"] == "wrong"
    assert name in row["detail"]


def test_leaves_have_names(child: Child, tmp_path: Path) -> None:
    row = played(child, tmp_path, "nested")
    names = [item["name"] for item in row["inputs"]]
    assert names == ["xs.0", "xs.1", "weights.norm.weight", "weights.bias", "shape", "config"]
    wrong = NESTED.replace('"count": len(y)', '"count": len(y) + 1')
    assert "count differs: got 3, expected 2" in played(child, tmp_path / "wrong", "nested", wrong)["detail"]


def test_a_destination_that_is_not_filled_is_named(child: Child, tmp_path: Path) -> None:
    row = played(child, tmp_path, "destination", DESTINATION.replace("torch.mul(x, 2, out=out)", "pass"))
    assert (row["status"], row["detail"]) == ("wrong", "out was never written")


def test_a_result_kept_in_a_destination_is_no_use(child: Child, tmp_path: Path) -> None:
    """It is overwritten before the next timed call."""
    lazy = DESTINATION.replace(
        "def run(x, out):\n", "calls = []\ndef run(x, out):\n    calls.append(1)\n    if len(calls) > 5: return\n"
    )
    assert played(child, tmp_path, "destination", lazy)["status"] == "wrong"


def test_every_side_gets_a_state_with_equal_weights(child: Child, tmp_path: Path) -> None:
    spoiled = SETUP.replace("return model(x)", "model.linear.weight.data.zero_()\n    return model(x)")
    assert played(child, tmp_path, "setup", spoiled)["status"] == "wrong"
    assert played(child, tmp_path / "next", "setup")["status"] == "ok"


def test_a_failing_setup_is_the_tasks_mistake(child: Child, tmp_path: Path) -> None:
    reference = SETUP.replace("return Model(", "raise ValueError('no weights')\n    return Model(")
    folder = write_task(tmp_path, task_toml=TASK.replace("MORE", ""), reference_py=reference, solution_py=SETUP)
    failed = [event for event in child.run(folder, cases=("small",)) if event["event"] == "failed"]
    assert "setup failed for case small: ValueError: no weights" in failed[0]["message"]


def test_random_numbers_without_seeds_prove_nothing(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=TASK.replace("MORE", ""), reference_py=SEEDED, solution_py=SEEDED)
    events = child.run(folder, cases=("small",))
    assert [event for event in events if event["event"] == "failed"] or results(events)["small"]["status"] == "wrong"


NOT_WHILE_TIMING = """
from harness.inputs.reference import Reference
from harness.run.progress import Progress
steps, step, traffic = [], Progress.step, Reference.traffic

def entered(self, name, case=None):
    steps.append(name)
    step(self, name, case)

def counted(self, *given):
    assert steps[-1] != "time", "the deadline of timing is running"
    return traffic(self, *given)

Progress.step, Reference.traffic = entered, counted
"""


def test_a_rows_bytes_and_flops_are_counted_before_its_timing_begins(tmp_path: Path) -> None:
    """The first count of an imported task's flops loads 800 modules, which took a bare machine's five seconds."""
    with Child(before=NOT_WHILE_TIMING) as child:
        found = results(child.run(write_task(tmp_path)))
    assert {row["status"] for row in found.values()} == {"ok"}, found
    assert all(row["solution_us"] for row in found.values())
