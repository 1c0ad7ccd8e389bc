"""The same worker on a real GPU: checks in guarded device memory, cold times, and a context that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.child import TASK, Child, results, write_task

pytestmark = pytest.mark.gpu

GPU_TASK = TASK.replace('device = "cpu"\n', "").replace("rows = 64, columns = 257", "rows = 4096, columns = 3072")
KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n{past}
    tl.store(out + offsets, tl.load(x + offsets, mask) * {factor}, mask)

def scale(x, factor):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024) + 1,)](x, out, x.numel(), factor, BLOCK=1024)
    return out
"""

ASKS = """
from triton import knobs

def scale(x, factor):
    raise RuntimeError(f"kernels are kept in {knobs.cache.dir}")
"""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child("cuda:0") as started:
        yield started


def source(factor: str = "factor", past: str = "") -> str:
    return KERNEL.format(factor=factor, past=past)


def test_a_right_kernel_is_checked_and_timed(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=source())
    found = results(child.run(folder, controls=True, best=str(folder), budget_ms=100.0))
    for result in found.values():
        assert (result["status"], result["checked"]) == ("ok", 2), result["detail"]
        assert result["solution_us"] > 0
        assert result["vs_best"] is not None


def test_compile_can_be_the_baseline(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=source())
    result = results(child.run(folder, baseline="compile", cases=("large",), budget_ms=100.0))["large"]
    assert result["speedup"] is not None, result["detail"]


def test_a_compiled_baseline_leaves_triton_its_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In another folder everything that was built before would be built again. Torch names it only where nobody has."""
    monkeypatch.delenv("TRITON_CACHE_DIR")
    plain = write_task(tmp_path / "plain", task_toml=GPU_TASK, solution_py=source())
    where = write_task(tmp_path / "where", task_toml=GPU_TASK, solution_py=ASKS)
    with Child("cuda:0", TRITON_HOME=str(tmp_path)) as child:
        before = results(child.run(where, cases=("small",)))["small"]["detail"]
        compiled = results(child.run(plain, baseline="compile", cases=("small",)))["small"]
        after = results(child.run(where, cases=("small",)))["small"]["detail"]
    assert compiled["speedup"] is not None, compiled["detail"]
    assert before == after
    assert f"kernels are kept in {tmp_path}" in after


def test_one_element_outside_is_found(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=source(past=" + 1"))
    result = results(child.run(folder, cases=("small",)))["small"]
    assert (result["status"], result["detail"]) == ("wrong", "the call wrote 1 element past the end of output 0")


def test_a_compile_error_points_at_the_kernels_line(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=source(factor="missing"))
    result = results(child.run(folder, cases=("small",)))["small"]
    assert result["status"] == "runtime_error"
    assert "missing" in result["detail"]
    assert result["where"]["text"].startswith("tl.store(")


def test_a_lost_context_is_reported_before_the_worker_leaves(tmp_path: Path) -> None:
    bad = source().replace("x.numel(), factor, BLOCK", "x.numel() + 2**40, factor, BLOCK").replace("+ 1,)", "* 4096,)")
    child = Child("cuda:0")
    events = child.run(write_task(tmp_path, task_toml=GPU_TASK, solution_py=bad), cases=("large",))
    assert results(events)["large"]["status"] == "runtime_error"
    assert events[-1]["event"] == "gone"
    assert child.process.wait(timeout=20) == 70
    for stream in (child.process.stdin, child.process.stdout, child.process.stderr):
        stream.close()  # type: ignore[union-attr]


def test_a_side_that_is_slow_to_launch_gains_nothing_by_it(child: Child, tmp_path: Path) -> None:
    """The GPU would be idle when its call begins: the flush lasts until then, and as long before the other side."""
    late = "    until = time.perf_counter() + 80e-6\n    while time.perf_counter() < until: pass\n"
    slow = "import time\n" + source().replace("def scale(x, factor):\n", f"def scale(x, factor):\n{late}")
    task = GPU_TASK.replace("rows = 8, columns = 33", "rows = 195, columns = 3072")
    for files in ({"solution_py": slow, "baseline_py": source()}, {"solution_py": source(), "baseline_py": slow}):
        folder = write_task(tmp_path, task_toml=task, **files)
        result = results(child.run(folder, baseline="baseline.py", cases=("small",), budget_ms=100.0))["small"]
        assert result["verdict"] in ("same", "unclear"), result
        assert result["speedup"] == pytest.approx(1.0, abs=0.015)
