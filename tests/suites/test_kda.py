"""KDA-Pilot folders: recognized without running them, opened with the task's own solution, and given back unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from harness.foreign import kda
from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.suites import imported_task, problems
from kernbench.suites.formats.foreign_problem import Form
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

CONFIG = """
[task]
slug = "toy"
[build]
language = "python"
[benchmark]
required_matched_ratio = 1.0
"""
SHAPES = "import torch\n\nKINDS = {'float32': torch.float32}\n"
BASELINE = "import torch\nfrom .more import FACTOR\n\ndef affine(x, layer, out):\n    out.copy_(layer(x) * FACTOR)\n"
ADAPTER = """
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shapes
from baseline.binding import affine
from solution.binding import affine as candidate

built = candidate


def make_case(workload, *, device, seed):
    assert not torch.is_grad_enabled()
    kind = shapes.KINDS[workload["dtype"]]
    rows, columns = workload["shape"]
    x = torch.randn(rows, columns, device=device, dtype=kind)
    layer = torch.nn.Linear(columns, columns).to(device=device, dtype=kind)
    inputs = SimpleNamespace(x=x, layer=layer, act=torch.nn.SiLU(), scratch=torch.empty_like(x), name="n")
    outs = [torch.empty_like(x)], [torch.empty_like(x)]
    bounds = {"atol": workload["atol"], "rtol": workload["rtol"]}
    return {"inputs": inputs, "baseline_outputs": outs[0], "candidate_outputs": outs[1], "tolerance": bounds}


def call_baseline(workload, inputs, outputs):
    inputs.scratch.copy_(inputs.x)
    affine(inputs.scratch, inputs.layer, outputs[0])


def call_candidate(workload, inputs, outputs):
    inputs.scratch.zero_()
    built(inputs.x, inputs.layer, outputs[0])
"""
BY_PATH = """
import importlib.util

known = {}


def built(*given):
    module = known.get("it") or sys.modules.get("toy_candidate")
    if module is None:
        spec = importlib.util.spec_from_file_location("toy_candidate", ROOT / "solution" / "binding.py")
        module = sys.modules["toy_candidate"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    known["it"] = module
    module.affine(*given)
"""
COMPARED = """
def compare_outputs(workload, baseline_outputs, candidate_outputs, tolerance):
    same = torch.equal(baseline_outputs[0].view(torch.int32), candidate_outputs[0].view(torch.int32))
    return {"ok": same, "message": "bits differ"}
"""
SOLUTION = """
from solution.deep import constants

def affine(x, layer, out):
    out.copy_(layer(x) * constants.FACTOR)
"""
ROWS: list[dict[str, Any]] = [
    {"id": "loose", "production": True, "shape": [64, 64], "dtype": "float32", "atol": 1e-2, "rtol": 1e-2},
    {"id": "tight", "production": False, "shape": [32, 48], "dtype": "float32", "atol": 1e-6, "rtol": 1e-6},
]


def folder(place: Path, **changed: str | None) -> Path:
    """A folder of the suite's template; a text of None leaves its file out."""
    toy = {
        "config.toml": CONFIG,
        "bench/adapter.py": ADAPTER,
        "bench/shapes.py": SHAPES,
        "bench/workloads.json": json.dumps(ROWS),
        "baseline/__init__.py": "",
        "baseline/binding.py": BASELINE,
        "baseline/more.py": "FACTOR = 2.0\n",
        "common.cuh": "// shared\n",
        "solution/.gitkeep": "",
        "solution/binding.py": SOLUTION,
        "solution/deep/constants.py": "FACTOR = 2.0\r\n# \u00e4",
        **changed,
    }
    for name, text in toy.items():
        if text is not None:
            (place / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "toy" / name).write_bytes(text.encode())
    return place / "toy"


def written(place: Path, given: Path | None = None, **options: Any) -> Path:
    found = problems.detect(given or folder(place))
    assert found is not None
    return imported_task.write(found, place / "made", Form(**{"device": "cpu", **options}))


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def rows(child: Child, task: Path) -> dict[str, dict[str, Any]]:
    events = child.run(task, cases=[case.id for case in load(task).cases])
    assert [event for event in events if event["event"] == "failed"] == []
    return results(events)


def statuses(child: Child, task: Path) -> dict[str, str]:
    return {name: row["status"] for name, row in rows(child, task).items()}


NOTHING = {"solution/binding.py": None, "solution/deep/constants.py": None}
BOTH = {"loose": "ok", "tight": "ok"}


@pytest.mark.parametrize("changed", [{}, NOTHING, {"bench/adapter.py": ADAPTER + BY_PATH + COMPARED}])
def test_a_folder_is_right_with_its_solution_or_as_its_own(
    child: Child, tmp_path: Path, changed: dict[str, str | None]
) -> None:
    task = written(tmp_path, folder(tmp_path, **changed))
    found = rows(child, task)
    assert {name: (row["status"], row["detail"]) for name, row in found.items()} == dict.fromkeys(BOTH, ("ok", None))
    assert all(row["speedup"] for row in found.values())
    assert [item["name"] for item in found["loose"]["inputs"]] == [
        "inputs", "inputs.x", "inputs.layer", "inputs.layer.weight", "inputs.layer.bias",
    ]  # fmt: skip
    assert (load(task).judge, [case.headline for case in load(task).cases]) == ("reference", [True, False])


@pytest.mark.parametrize(
    ("line", "said"),
    [("out.zero_()", ": got 0, expected "), ("pass", "never written"), ("raise ValueError('no')", "ValueError: no")],
)
def test_a_wrong_one_is_wrong(child: Child, tmp_path: Path, line: str, said: str) -> None:
    task = written(tmp_path)
    (task / "solution/binding.py").write_text(f"def affine(x, layer, out):\n    {line}\n")
    assert all(row["status"] != "ok" and said in str(row["detail"]) for row in rows(child, task).values())


def test_every_row_has_its_own_tolerance(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path)
    (task / "solution/deep/constants.py").write_text("FACTOR = 2.002\n")
    assert statuses(child, task) == {"loose": "ok", "tight": "wrong"}


def test_the_adapters_own_comparison_comes_on_top(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, folder(tmp_path, **{"bench/adapter.py": ADAPTER + COMPARED}))
    (task / "solution/deep/constants.py").write_text("FACTOR = 2.00000048\n")
    found = rows(child, task)
    assert {row["status"] for row in found.values()} == {"wrong"}
    assert "bits differ" in str(found["loose"]["detail"])


def test_an_input_that_the_baseline_reads_and_writes_is_no_scratch_memory(child: Child, tmp_path: Path) -> None:
    both = ADAPTER.replace("    inputs.scratch.copy_(inputs.x)\n", "    inputs.scratch.add_(inputs.x)\n")
    both = both.replace("scratch=torch.empty_like(x)", "scratch=torch.ones_like(x)")
    task = written(tmp_path, folder(tmp_path, **{"bench/adapter.py": both}))
    (failed,) = [event for event in child.run(task) if event["event"] == "failed"]
    assert "a call both reads and writes inputs.scratch, which kernbench cannot open" in failed["message"]


def test_scratch_memory_that_holds_what_the_baseline_writes_to_it_is_found(child: Child, tmp_path: Path) -> None:
    """As after an earlier call with the same inputs, whose memory is free again."""
    reused = ADAPTER.replace("torch.empty_like(x), name", "torch.empty(rows, columns, out=x.clone()), name")
    assert reused != ADAPTER
    assert statuses(child, written(tmp_path, folder(tmp_path, **{"bench/adapter.py": reused}))) == BOTH


def test_an_edited_solution_is_loaded_anew_however_the_adapter_finds_it(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, folder(tmp_path, **{"bench/adapter.py": ADAPTER + BY_PATH}))
    assert statuses(child, task) == BOTH
    (task / "solution/binding.py").write_text(SOLUTION.replace("* constants", "+ constants"))
    assert set(statuses(child, task).values()) == {"wrong"}
    (task / "solution/binding.py").write_text(SOLUTION)
    assert statuses(child, task) == BOTH


@pytest.mark.parametrize("copy", [True, False])
def test_a_solution_goes_in_and_comes_out_unchanged(tmp_path: Path, copy: bool) -> None:
    task, back = written(tmp_path, copy=copy), tmp_path / "back"
    words = ["export", str(task), "--format", "kda", "-o"]
    done = CliRunner().invoke(cli, [*words, str(back)])
    assert done.exit_code == 0, done.output
    names = ["binding.py", "deep/constants.py"]
    assert sorted(path.relative_to(back).as_posix() for path in back.rglob("*.*")) == names
    assert all((back / name).read_bytes() == (tmp_path / "toy/solution" / name).read_bytes() for name in names)
    assert CliRunner().invoke(cli, [*words, "-"]).exit_code == 2


def test_a_folder_can_be_given_as_the_solution(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "binding.py").write_text("def affine(x, layer, out): ...\n")
    words = ["import", str(folder(tmp_path)), "--to", str(tmp_path), "--device", "cpu", "--solution"]
    assert "takes a folder" in CliRunner().invoke(cli, [*words, str(own / "binding.py")]).output
    (tmp_path / "at").mkdir()
    done = CliRunner().invoke(cli, [*words[:3], str(tmp_path / "at"), *words[4:], str(own)])
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "at/toy/solution").iterdir()] == ["binding.py"]


def test_without_a_solution_there_is_nothing_to_export(tmp_path: Path) -> None:
    task = written(tmp_path, folder(tmp_path, **NOTHING))
    done = CliRunner().invoke(cli, ["export", str(task), "--format", "kda", "-o", str(tmp_path / "back")])
    assert done.exit_code != 0
    assert "no solution yet" in str(done.exception or done.output)


@pytest.mark.parametrize("name", ["bench/adapter.py", "bench/shapes.py", "baseline/more.py", "common.cuh"])
def test_a_change_of_its_files_starts_a_new_series(tmp_path: Path, name: str) -> None:
    task = written(tmp_path)
    before = load(task)
    (tmp_path / "toy" / name).write_text((tmp_path / "toy" / name).read_text() + "\nMORE = 1;\n")
    assert load(task).hash != before.hash
    assert not any(file.startswith("solution") for file in before.files)


def test_a_change_of_the_solution_does_not(tmp_path: Path) -> None:
    task = written(tmp_path)
    before = load(task).hash
    (task / "solution/binding.py").write_text("def affine(x, layer, out): ...\n")
    (tmp_path / "toy/solution/binding.py").write_text("")
    assert load(task).hash == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bench/adapter.py": None}, "has no bench/adapter.py: it only describes a problem"),
        ({"bench/adapter.py": None, "bench/benchmark.py": ""}, "its benchmark is a separate program"),
        ({"bench/workloads.json": None}, "has no bench/workloads.json"),
        ({"bench/workloads.json": "{}"}, "is not a list of rows"),
        ({"bench/workloads.json": '[{"atol": "much"}]'}, "is not a list of rows"),
        ({"bench/adapter.py": "def make_case(): ..."}, "does not define call_baseline and call_candidate"),
        ({"bench/adapter.py": "def ("}, "is not valid Python"),
        ({"baseline/binding.py": f"import no_sglang.ops\n{BASELINE}"}, "needs the package no_sglang"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path, changed: dict[str, str | None], said: str) -> None:
    found = problems.detect(folder(tmp_path, **changed))
    assert found is not None
    assert said in found.refused
    with pytest.raises(ProjectError, match="toy: "):
        imported_task.write(found, tmp_path / "made", Form())


def test_what_a_task_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"toy: .* leave --scale out"):
        written(tmp_path, scale=2)
    with pytest.raises(ProjectError, match=r"toy: its language is cuda, which needs a GPU"):
        written(tmp_path, folder(tmp_path, **{"config.toml": CONFIG.replace("python", "cuda")}))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{"atol": workload["atol"],', '{"atol": 0.5,', "make_case asks for atol and rtol (0.5, "),
        ("[torch.empty_like(x)], [torch.empty_like(x)]", "[x], [x]", "that a call writes in place"),
    ],
)
def test_what_only_the_adapter_knows_is_refused_when_it_runs(
    child: Child, tmp_path: Path, old: str, new: str, said: str
) -> None:
    task = written(tmp_path, folder(tmp_path, **{"bench/adapter.py": ADAPTER.replace(old, new)}))
    events = child.run(task, cases=["tight"])
    assert said in str(events[-1].get("message"))


def test_the_list_names_all_of_them(tmp_path: Path) -> None:
    folder(tmp_path)
    for name in ("prompt.md", "benchmark.py", "src/register.py"):
        (tmp_path / "older" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "older" / name).write_text("")
    for name in ("docs/prompt.md", "docs/config.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    done = CliRunner().invoke(cli, ["import", str(tmp_path), "--list"])
    older = "older  kda, refused: has no bench/adapter.py: its benchmark is a separate program"
    assert [line[: len(older)] for line in done.output.splitlines()] == [older, "toy  kda, 2 rows"]


def test_a_buffer_that_an_adapter_keeps_for_its_slices_is_not_read() -> None:
    """Counted as well, it made honest copies of slices impossibly fast."""
    whole, other = torch.zeros(4, 10), torch.zeros(3)
    left, right = whole[:, :5], whole[:, 5:]
    for given, found in (([whole, left, right], [left, right]), ([left, other], [left, other]), ([other, other], 2)):
        kept = kda.innermost(given)
        assert len(kept) == found if isinstance(found, int) else list(map(id, kept)) == list(map(id, found))
