"""A step in this process: what is wired, what is put back, how far outputs are apart, what a site takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.shared.codes import PLAIN_PAIR
from harness.shared.model_step import SideRatio, StepRequest, StepResult
from harness.transfer import step_sides
from harness.transfer.loaded_model import LoadedModel
from harness.transfer.sites import ModelProblem
from harness.transfer.step_run import StepRun
from harness.transfer.wiring import Counts, Watch
from kernbench.transfer.model_row import ModelRow, decided
from tests.transfer import toy


@pytest.fixture(autouse=True)
def quiet_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def stepped(folder: Path, solution: str = "") -> StepResult:
    if solution:
        (folder.parents[1] / "scale" / "solution.py").write_text(solution)
    model = toy.loaded(folder)
    request = StepRequest("run", model, (toy.patch(folder),), PLAIN_PAIR, rounds=18)
    return StepRun(LoadedModel(model, "cpu", 0), request, None, lambda text: None).go()


def test_both_sides_are_timed_in_turns_on_one_set_of_weights(tmp_path: Path) -> None:
    result = stepped(toy.write(tmp_path))
    assert [(item.name, len(item.samples)) for item in result.times] == [("eager", 18), ("ours", 18)]
    assert [(item.side, item.over) for item in result.ratios] == [("ours", "eager")]
    assert result.floor is not None
    assert result.not_wired == ""
    (gap,) = result.gaps
    assert (gap.side, gap.bit_exact, gap.max_abs, gap.psnr_db) == ("ours", True, 0.0, None)
    assert result.wide == "float64"
    assert gap.wide_l2 == gap.original_wide_l2 > 0


def test_a_useless_kernel_is_too_small_to_see(tmp_path: Path) -> None:
    """The share is measured; the ratio, which depends on the machine, is the one that such a step has."""
    folder = toy.write(tmp_path, toy.MODEL.replace("size = 128", "size = 320"))
    result = stepped(folder)
    (share,) = result.shares
    assert (share.task, share.calls) == ("scale", 1)
    assert 0 < share.share < 0.05
    noise = SideRatio("ours", "eager", 1.002, 0.99, 1.014, "unclear")
    about = ModelRow("run", "toy", "only", "", "unclear", False, sources=(replace(toy.patch(folder), micro=1.3),))
    row = decided(toy.loaded(folder), replace(result, ratios=(noise,), margin=0.02), "", False, about)
    assert row.word == "too small to see"
    assert row.said.startswith("too small to see (expected +")
    assert row.kept


def test_a_wrong_kernel_is_out_of_the_models_limits(tmp_path: Path) -> None:
    wrong = stepped(toy.write(tmp_path), "def scale(x, factor):\n    return x * 5\n")
    (gap,) = wrong.gaps
    assert not gap.bit_exact
    assert gap.relative_l2 is not None
    assert gap.relative_l2 > 0.01


def test_a_class_that_never_runs_is_not_wired(tmp_path: Path) -> None:
    model = toy.MODEL.replace("layers:scaled", "program:Unused.forward").replace("adapters:scaled", "adapters:forward")
    result = stepped(toy.write(tmp_path, model))
    assert result == StepResult("run", not_wired="program:Unused.forward was never called")


def test_an_entry_that_its_adapter_never_calls_is_not_wired(tmp_path: Path) -> None:
    model = toy.MODEL.replace("adapters:scaled", "adapters:without")
    assert stepped(toy.write(tmp_path, model)).not_wired == "the entry of scale never ran"


def test_a_site_is_replaced_where_it_was_imported_and_put_back(tmp_path: Path) -> None:
    folder = toy.write(tmp_path)
    model = LoadedModel(toy.loaded(folder), "cpu", 0)
    counts = Counts()
    program = model.side.module("program.py")
    original = program.scaled
    inside = model.ours([toy.patch(folder)], counts)
    with inside.applied():
        assert program.scaled is not original
        model.step()
    assert program.scaled is original
    assert counts.sites == {"layers:scaled": 1}
    assert counts.entries == {"scale": 1}


def test_a_site_that_does_not_exist_is_named_with_its_neighbours(tmp_path: Path) -> None:
    model = LoadedModel(toy.loaded(toy.write(tmp_path, toy.MODEL.replace("layers:scaled", "layers:scale"))), "cpu", 0)
    with pytest.raises(ModelProblem, match=r"there is no 'scale' in it \(model.toml\); did you mean scaled\?"):
        _ = model.found


def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path: Path) -> None:
    model = toy.loaded(toy.write(tmp_path, 'needs = ["no_such_package"]\n' + toy.MODEL))
    with pytest.raises(ModelProblem, match=r"it needs no_such_package, .* `pip install 'kernbench\[models\]'`"):
        LoadedModel(model, "cpu", 0)


SECOND = """
[[site]]
call = "layers:doubled"
task = "scale"
adapter = "adapters:scaled"
"""
REWRITE = """
[[rewrite]]
call = "program:Toy.forward"
by = "rewrites:forward"
"""
FORWARD = """
import layers, torch

def forward(self, x):
    y = x @ self.weight @ self.weight @ self.weight @ self.weight
    return torch.cat([layers.scaled(y[:1]), y[1:]]) {}
"""


@pytest.mark.parametrize(("change", "notes"), [("", 0), ("+ 1e-3", 1)])
def test_a_rewrite_must_not_change_the_output_by_itself(tmp_path: Path, change: str, notes: int) -> None:
    result = stepped(toy.write(tmp_path, toy.MODEL + REWRITE, rewrites=FORWARD.format(change)))
    assert len(result.notes) == notes


def test_timed_sides_have_the_bare_entries(tmp_path: Path) -> None:
    folder = toy.write(tmp_path)
    ((_, new),) = LoadedModel(toy.loaded(folder), "cpu", 0).ours([toy.patch(folder)], Watch()).replaced
    assert new.__closure__[0].cell_contents.__name__ == "scale"


def test_compiled_sides_never_share_a_code_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile keeps its graphs by code object: two sides with the same one would run the same graph."""
    codes = []

    def compile_nothing(function: Any, **options: Any) -> Any:
        codes.append(function.__code__)
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    monkeypatch.setattr(torch.compiler, "assume_constant_result", lambda function: function)
    folder = toy.write(tmp_path)
    model = LoadedModel(toy.loaded(folder), "cpu", 0)
    for name in ("compile", "compile+ours", "compile"):
        step_sides.make(name, model, [toy.patch(folder)])
    assert len(codes) == len(set(map(id, codes))) == 3


def test_a_compiled_side_whose_graph_has_no_site_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = toy.write(tmp_path)
    model = LoadedModel(toy.loaded(folder), "cpu", 0)
    kept = model.step()
    monkeypatch.setattr(torch, "compile", lambda function, **options: lambda: kept)  # another side's graph
    monkeypatch.setattr(torch.compiler, "assume_constant_result", lambda function: function)
    with pytest.raises(step_sides.NotTraced, match="layers:scaled was never called"):
        step_sides.make("compile+ours", model, [toy.patch(folder)])


def test_a_site_can_be_left_to_torch_compile(tmp_path: Path) -> None:
    left = toy.MODEL.replace('task = "scale"', 'task = "scale"\ncompiled = false')
    folder = toy.write(tmp_path, left + SECOND, layers=toy.LAYERS + "\ndef doubled(x):\n    return scaled(x)\n")
    model, patches = LoadedModel(toy.loaded(folder), "cpu", 0), [toy.patch(folder)]

    def replaced(for_compile: bool) -> list[str]:
        return [found.call for found, _ in model.ours(patches, Watch(), for_compile).replaced]

    assert replaced(for_compile=False) == ["layers:scaled", "layers:doubled"]
    assert replaced(for_compile=True) == ["layers:doubled"]


def test_a_compiled_side_whose_sites_are_all_left_to_it_is_refused(tmp_path: Path) -> None:
    folder = toy.write(tmp_path, toy.MODEL.replace('task = "scale"', 'task = "scale"\ncompiled = false'))
    model = LoadedModel(toy.loaded(folder), "cpu", 0)
    with pytest.raises(ModelProblem, match=r"every site is left to torch.compile \(model.toml\)"):
        step_sides.make("compile+ours", model, [toy.patch(folder)])
    step_sides.make("ours", model, [toy.patch(folder)])
