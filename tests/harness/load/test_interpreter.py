"""Triton without a GPU: interpreted kernels are checked, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.child import REFERENCE, TASK, Child, results, write_task

pytest.importorskip("triton")

TIMED = '\n[[case]]\nid = "timed"\naxes = { rows = 2, columns = 2 }\n'
INTERPRETED = TASK.replace('device = "cpu"\n', "").replace("[[case]]", "[[smoke]]") + TIMED
KERNEL = """
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice

{decorator}
@triton.jit
def kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n{past}
    values = tl.load(x + offsets, mask)
    {extra}
    tl.store(out + offsets, values * factor, mask)

def scale(x, factor):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(){past}, 64),)](x, out, x.numel(), factor{block})
    return out
"""
AUTOTUNE = "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 999})], key=['n'])"
WIDE = "values = values.to(tl.float32)"
ASM = "values = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [values], tl.float32, True, 1)"


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def kernel(decorator: str = "", extra: str = "", past: str = "", block: str = ", BLOCK=64") -> str:
    return KERNEL.format(decorator=decorator, extra=extra, past=past, block=block)


def test_a_right_kernel_is_interpreted_and_not_timed(child: Child, tmp_path: Path) -> None:
    events = child.run(write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel()), cases=("small", "large"))
    assert events[0]["environment"]["interpreted"] is True
    for result in results(events).values():
        assert (result["status"], result["checked"]) == ("interpreted", 2)
        assert result["solution_us"] is None
        assert result["error"]["bound"] is not None


def test_a_check_case_of_many_bytes_waits_for_a_gpu(child: Child, tmp_path: Path) -> None:
    few = '[[check]]\nid = "few"\naxes = { rows = 2, columns = 2 }\n'
    many = '[[check]]\nid = "many"\naxes = { rows = 1, columns = 4_000_001 }\n'
    events = child.run(
        write_task(tmp_path, task_toml=INTERPRETED + few + many, solution_py=kernel()), cases=("many", "few")
    )
    rows = results(events)
    assert (rows["many"]["status"], rows["many"]["reason"]) == ("skipped", "needs_gpu")
    assert (rows["few"]["status"], rows["few"]["checked"]) == ("interpreted", 2)


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        ('RuntimeError("0 active drivers ([]). There should only be one.")', "skipped"),
        ('AssertionError("Torch not compiled with CUDA enabled")', "skipped"),
        ('OSError("libcuda.so.1: cannot open shared object file: No such file or directory")', "skipped"),
        ('RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")', "skipped"),
        ('AssertionError("x.is_cuda")', "runtime_error"),
        ('RuntimeError("libcudart.so.12: cannot open shared object file")', "runtime_error"),
    ],
)
def test_a_source_that_misses_the_gpu_is_skipped(child: Child, tmp_path: Path, raised: str, status: str) -> None:
    source = f"def scale(x, factor):\n    raise {raised}\n"
    row = results(child.run(write_task(tmp_path, task_toml=INTERPRETED, solution_py=source), cases=("small",)))["small"]
    assert (row["status"], row["reason"]) == (status, "needs_gpu" if status == "skipped" else None)
    assert raised.partition('"')[2].rstrip('")') in row["detail"]
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=f"raise {raised}\n")
    events = child.run(folder, cases=("small", "large"))
    rows = [(row["status"], row["detail"].startswith("needs a GPU: ")) for row in results(events).values()]
    assert (events[-1]["event"], rows) == (("finished", [("skipped", True)] * 2) if row["reason"] else ("failed", []))


def test_on_a_cpu_task_a_triton_kernel_is_checked_and_what_follows_is_timed(child: Child, tmp_path: Path) -> None:
    task = TASK + TIMED
    events = child.run(write_task(tmp_path / "a", task_toml=task, solution_py=kernel()), cases=("timed",))
    assert events[0]["environment"]["interpreted"] is False
    row = results(events)["timed"]
    assert (row["status"], row["reason"], row["checked"]) == ("interpreted", "interpreted_kernel", 2)
    assert row["solution_us"] is None
    plain = "def scale(x, factor):\n    return x * factor\n"
    events = child.run(write_task(tmp_path / "b", task_toml=task, solution_py=plain), cases=("timed",))
    assert results(events)["timed"]["status"] == "ok"
    assert results(events)["timed"]["solution_us"] > 0


def test_a_loop_may_end_at_a_value_that_is_known_at_run_time(child: Child, tmp_path: Path) -> None:
    loop = "for _ in range(0, n, BLOCK): values = values + 0.0"
    events = child.run(write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel(extra=loop)), cases=("small",))
    assert results(events)["small"]["status"] == "interpreted", results(events)["small"]["detail"]


def test_autotuning_takes_the_first_configuration(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel(AUTOTUNE, block=""))
    assert results(child.run(folder, cases=("small",)))["small"]["status"] == "interpreted"


def test_one_element_outside_is_found(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel(past=" + 1"))
    result = results(child.run(folder, cases=("small",)))["small"]
    assert (result["status"], result["detail"]) == ("wrong", "the call wrote 1 element past the end of output 0")


@pytest.mark.parametrize(
    ("extra", "reason"),
    [(ASM, "no_inline_asm"), ("values = libdevice.abs(values)", "no_libdevice")],
)
def test_what_the_interpreter_lacks_is_skipped(child: Child, tmp_path: Path, extra: str, reason: str) -> None:
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel(extra=extra))
    result = results(child.run(folder, cases=("small",)))["small"]
    assert (result["status"], result["reason"]) == ("skipped", reason)


def test_an_error_in_a_kernel_points_at_its_line(child: Child, tmp_path: Path) -> None:
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=kernel(extra="values = values + missing"))
    result = results(child.run(folder, cases=("small",)))["small"]
    assert result["status"] == "runtime_error"
    assert result["where"]["file"] == "solution.py"


@pytest.mark.parametrize(
    ("extra", "rtol", "outcome", "codes"),
    [
        (WIDE, "1e-2", "interpreted", []),
        (WIDE, "4e-3", "interpreted", ["interpreted_bf16"]),
        (WIDE + " * 1.03", "4e-3", "wrong", []),
    ],
)
def test_bfloat16_may_be_cut_off_and_the_row_says_so_if_it_matters(
    child: Child, tmp_path: Path, extra: str, rtol: str, outcome: str, codes: list[str]
) -> None:
    """Half a unit in the last place is up to 3.9e-3 of a value, a whole one twice that."""
    reference = REFERENCE.replace("x * spread + offset", "(x * spread + offset).bfloat16()").replace("2.0", "1.7")
    task = INTERPRETED.replace("float32 = { atol = 1e-5, rtol = 1e-5 }", f"bfloat16 = {{ rtol = {rtol} }}")
    folder = write_task(tmp_path, task_toml=task, reference_py=reference, solution_py=kernel(extra=extra))
    result = results(child.run(folder, cases=("small",), controls=True))["small"]
    assert (result["status"], [finding["code"] for finding in result["findings"]]) == (outcome, codes)


def test_what_the_interpreter_leaves_in_triton_is_not_the_sources_doing(child: Child, tmp_path: Path) -> None:
    """For a device function such as tl.sum it replaces triton.language.core and never puts it back."""
    summed = kernel(extra="values = values + 0 * tl.sum(values, 0)")
    folder = write_task(tmp_path, task_toml=INTERPRETED, solution_py=summed)
    for _ in range(2):
        events = child.run(folder, cases=("small",))
        assert [event for event in events if event["event"] in ("finding", "changed")] == []
        assert results(events)["small"]["status"] == "interpreted"
