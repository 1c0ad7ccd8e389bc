"""Definitions of SOL-ExecBench and flashinfer-bench: recognized, written as a task, right as their own solution."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared.taskfile import load
from kernbench.suites import imported_task, problems
from kernbench.suites.formats import definitions
from kernbench.suites.formats.foreign_problem import Form, Problem
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

VAR = {"type": "var"}
ROWS = {"rows": VAR, "columns": {"type": "const", "value": 96}}
X = {"shape": ["rows", "columns"], "dtype": "float32"}
NUMBER = {"shape": None, "dtype": "float32"}
RANDOM = {"type": "random"}


def definition(reference: str, inputs: dict[str, Any], outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = f"import torch\n\n\n{reference}"
    return {"name": "made_up", "axes": ROWS, "inputs": inputs, "outputs": outputs, "reference": text, **more}


def returning(body: str, inputs: dict[str, Any], outputs: int = 1, **more: Any) -> dict[str, Any]:
    text = f"def run({', '.join(inputs)}):\n    return {body}\n"
    return definition(text, inputs, {f"out{number}": X for number in range(outputs)}, **more)


def workload(rows: int = 64, tolerance: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
    more = {} if tolerance is None else {"tolerance": tolerance}
    return {"uuid": "u", "axes": {"rows": rows}, "inputs": inputs, **more}


OWN_INPUTS = (
    "def own(sizes, device):\n    return {'x': torch.rand(sizes['rows'], 96, device=device) + sizes['shift']}\n\n\n"
)
DROPOUT = "torch.nn.functional.dropout(x, 0.2)"
WEIGHTS = {
    "x": X,
    "norm_weight": {"shape": ["columns"], "dtype": "float32"},
    "w": {"shape": ["96", "half"], "dtype": "float32"},
}
HALF = {**ROWS, "half": {"type": "expr", "expression": "columns // 2"}}
PROBLEMS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "scalar": (returning("x * s", {"x": X, "s": NUMBER}), [workload(s={"type": "scalar", "value": 3.5})]),
    "two_outputs": (returning("x.sigmoid(), x + 1", {"x": X}, 2), [workload(x=RANDOM)]),
    "small_format": (returning("x * x", {"x": {**X, "dtype": "bfloat16"}}), [workload()]),
    "dropout": (returning(DROPOUT, {"x": X}), [workload()]),
    "no_workloads": (returning("x + 1", {"x": {**X, "shape": ["columns"]}}, axes={"columns": ROWS["columns"]}), []),
    "expression": (
        {
            **returning("(x * norm_weight) @ w", WEIGHTS),
            "axes": HALF,
            "outputs": {"y": {**X, "shape": ["rows", "half"]}},
        },
        [workload()],
    ),
    "own_inputs": (
        definition(
            OWN_INPUTS + "def run(x, shift):\n    return x.log() + shift\n",
            {"x": X, "shift": NUMBER},
            {"y": X},
            custom_inputs_entrypoint="own",
        ),
        [workload(x={"type": "custom"}, shift={"type": "scalar", "value": 2})],
    ),
    "indices": (
        returning("x[ids]", {"x": X, "ids": {"shape": ["rows"], "dtype": "int64"}}),
        [workload(ids={"type": "generated", "generator": {"type": "integer", "low": 0, "high": "rows"}})],
    ),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def written(folder: Path, data: dict[str, Any], lines: list[dict[str, Any]]) -> Path:
    """A definition as SOL-ExecBench has it."""
    path = folder / "made_up" / "definition.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    if lines:
        path.with_name("workload.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def found(path: Path) -> Problem:
    problem = problems.detect(path)
    assert problem is not None
    assert problem.format == "definitions"
    return problem


def task_of(folder: Path, data: dict[str, Any], lines: list[dict[str, Any]], **options: Any) -> Path:
    return imported_task.write(found(written(folder, data, lines)), folder / "task", Form(device="cpu", **options))


def row(child: Child, task: Path) -> dict[str, Any]:
    events = child.run(task, cases=[case.id for case in load(task).cases])
    assert [event for event in events if event["event"] == "failed"] == []
    return next(iter(results(events).values()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_definition_is_right_as_its_own_solution(child: Child, tmp_path: Path, name: str) -> None:
    outcome = row(child, task_of(tmp_path, *PROBLEMS[name]))
    assert (outcome["status"], outcome["detail"]) == ("ok", None)


@pytest.mark.parametrize("name", ["scalar", "dropout", "own_inputs"])
def test_zeros_are_wrong(child: Child, tmp_path: Path, name: str) -> None:
    task = task_of(tmp_path, *PROBLEMS[name])
    solution = task / "solution.py"
    solution.write_text(
        solution.read_text().replace("return x", "return 0 * x").replace("return torch.nn", "return 0 * torch.nn")
    )
    assert row(child, task)["status"] == "wrong"


def test_an_input_is_read_from_a_file_of_values(child: Child, tmp_path: Path) -> None:
    values = struct.pack("<64q", *range(63, -1, -1))
    header = json.dumps({"ids": {"dtype": "I64", "shape": [64], "data_offsets": [0, len(values)]}}).encode()
    (tmp_path / "blob").write_bytes(len(header).to_bytes(8, "little") + header + values)
    lines = [workload(ids={"type": "safetensors", "path": "blob", "tensor_key": "ids"})]
    task = task_of(tmp_path, returning("x[ids]", PROBLEMS["indices"][0]["inputs"]), lines, scale=2)
    (task / "solution.py").write_text("def run(x, ids):\n    return x.flip(0)\n")
    assert row(child, task)["status"] == "ok"


@pytest.mark.parametrize(("body", "status"), [("out.copy_(a * b)", "ok"), ("out[1:].copy_(a[1:] * b)", "wrong")])
def test_a_solution_may_fill_its_destinations(child: Child, tmp_path: Path, body: str, status: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(f"def run(a, b, out):\n    {body}\n")
    outcome = row(child, task_of(tmp_path, *PROBLEMS["scalar"], solution=mine))
    assert outcome["status"] == status


def test_an_edited_definition_is_another_task_and_is_read_again(child: Child, tmp_path: Path) -> None:
    task = task_of(tmp_path, *PROBLEMS["scalar"])
    before = load(task)
    assert "definition.json" in before.files
    assert row(child, task)["status"] == "ok"
    path = tmp_path / "made_up" / "definition.json"
    path.write_text(path.read_text().replace("x * s", "x + s"))
    assert load(task).hash != before.hash
    assert row(child, task)["status"] == "wrong"


def test_a_mistake_in_the_reference_names_its_line(child: Child, tmp_path: Path) -> None:
    task = task_of(tmp_path, returning("x @ x", {"x": X}), [workload()])
    (task / "solution.py").write_text("def run(x):\n    return x\n")
    failed = [event for event in child.run(task, cases=["rows=64"]) if event["event"] == "failed"]
    assert failed[0]["where"] == {"file": "definition.json:reference", "line": 5, "text": "return x @ x"}


def test_each_workload_is_a_case_with_its_tolerance(tmp_path: Path) -> None:
    own = {"max_atol": 0.5, "required_matched_ratio": 0.9, "max_error_cap": 2.0}
    one = {"type": "scalar", "value": 1.0}
    lines = [workload(64, s=one), workload(32, own, s=one), workload(64, s=one), workload(64, s={**one, "value": 2.0})]
    task = load(task_of(tmp_path, PROBLEMS["scalar"][0], lines))
    assert [case.id for case in task.cases] == ["rows=64", "rows=32", "rows=64#2"]
    usual, other = (task.tolerance_of(case)["float32"] for case in task.cases[:2])
    assert (usual.atol, usual.rtol, usual.matched, usual.cap) == (0.01, 0.01, 0.99, None)
    assert (other.atol, other.rtol, other.matched, other.cap) == (0.5, 0.01, 0.9, 2.0)


def test_a_check_per_output_is_a_tolerance_of_its_dtype(tmp_path: Path) -> None:
    outputs = {"loose": X, "tight": X, "ids": {**X, "dtype": "int32"}}
    loose = {"type": "numeric", "output": "loose", "max_atol": 0.5, "max_rtol": 0.5}
    checks = [loose, {**loose, "output": "tight", "max_atol": 0.1}, {"type": "exact", "output": "ids"}]
    data = {**PROBLEMS["scalar"][0], "outputs": outputs}
    task = load(task_of(tmp_path, data, [{**LINE, "checks": checks}]))
    assert [(task.tolerance[dtype].atol, task.tolerance[dtype].rtol) for dtype in ("float32", "int32")] == [
        (0.1, 0.5),
        (0, 0),
    ]


def test_flashinfers_folders(tmp_path: Path) -> None:
    path = tmp_path / "definitions" / "op" / "made_up.json"
    traces = tmp_path / "traces" / "workloads" / "op" / "made_up.workload.jsonl"
    for place in (path, traces):
        place.parent.mkdir(parents=True)
    path.write_text(json.dumps(PROBLEMS["two_outputs"][0]))
    traces.write_text(json.dumps({"definition": "made_up", "workload": workload(7)}))
    task = load(imported_task.write(found(path), tmp_path / "task", Form()))
    assert [case.axes for case in task.cases] == [{"rows": 7}]
    assert task.tolerance["float32"].matched == 1.0


def test_a_scaled_problem_is_smaller_where_nothing_names_its_sizes(tmp_path: Path) -> None:
    sizes = {"rows": VAR, "columns": {"type": "const", "value": 512}, "heads": {"type": "const", "value": 640}}
    data = {**returning("x.reshape(-1, 640)", {"x": X}), "axes": sizes}
    cases = load(task_of(tmp_path, data, [workload(100), workload(7), workload(3)], scale=8)).cases
    assert [case.axes for case in cases] == [{"rows": size, "columns": 64} for size in (16, 7, 3)]


LINE = workload(s={"type": "scalar", "value": 1})
REFUSALS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "it has no workloads, which would give rows their sizes": (PROBLEMS["scalar"][0], []),
    "input ids needs a file that is missing: b/c.safetensors": (
        PROBLEMS["indices"][0],
        [workload(ids={"type": "safetensors", "path": "b/c.safetensors", "tensor_key": "ids"})],
    ),
    "only a Git LFS pointer is here": (
        PROBLEMS["indices"][0],
        [workload(ids={"type": "safetensors", "path": "pointer", "tensor_key": "ids"})],
    ),
    "its outputs are judged by topk_routing": (PROBLEMS["scalar"][0], [{**LINE, "checks": [{"type": "topk_routing"}]}]),
    "samples are judged by their distribution": ({**PROBLEMS["scalar"][0], "op_type": "sampling"}, [LINE]),
    "does not define run": ({**PROBLEMS["scalar"][0], "reference": "def walk(): pass"}, [LINE]),
    "output out is float4_e2m1": ({**PROBLEMS["scalar"][0], "outputs": {"out": {**X, "dtype": "float4_e2m1"}}}, [LINE]),
    "is not as expected (KeyError: 'inputs')": (PROBLEMS["scalar"][0], [{"axes": {"rows": 1}}]),
    "is not as expected (KeyError: 'dtype')": ({**PROBLEMS["scalar"][0], "outputs": {"out": {}}}, [LINE]),
    "input s is of the kind dice": (PROBLEMS["scalar"][0], [workload(s={"type": "dice"})]),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path, reason: str) -> None:
    (tmp_path / "pointer").write_text("version https://git-lfs.github.com/spec/v1\n")
    problem = found(written(tmp_path, *REFUSALS[reason]))
    assert reason in problem.refused
    with pytest.raises(ProjectError, match=r"made_up/definition\.json: "):
        imported_task.write(problem, tmp_path / "task", Form())


def test_other_files_are_no_definitions_and_a_folder_opens(tmp_path: Path) -> None:
    data = PROBLEMS["scalar"][0]
    texts = {
        "a": json.dumps([data]),
        "b": '{"reference": 1}',
        "c": '{"reference"',
        "d": json.dumps({**data, "axes": []}),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    assert list(problems.problems(tmp_path)) == []
    path = written(tmp_path, *PROBLEMS["scalar"])
    assert found(path.parent).path == path.resolve()
    assert [item.name for item in problems.problems(tmp_path)] == ["made_up"]
    assert definitions.FILES == "*.json"
