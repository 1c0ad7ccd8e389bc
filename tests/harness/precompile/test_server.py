"""Kernels compiled ahead of the worker, without a GPU: what lands in the cache, under whose key, what harms nobody."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cuda import compiling, library
from harness.shared.lines import to_dict
from harness.shared.run_request import RunRequest
from harness.shared.taskfile import load
from kernbench.worker.process import BOOT
from tests import ROOT
from tests.forked import Forked
from tests.harness.child import Child, results, write_task

pytest.importorskip("triton.runtime._async_compile")
pytestmark = pytest.mark.timeout(300)  # compiles: seconds, but minutes next to eight busy loops

TASK = """
name = "scale"
entry = "scale"
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-5 }
""" + "".join(
    f'[[case]]\nid = "{name}"\naxes = {{ rows = {rows}, columns = {columns}, skipped = {skipped} }}\n'
    for name, rows, columns, skipped in (
        ("plain", 4, 64, 0),
        ("again", 8, 64, 0),  # the same kernel as the first
        ("odd", 3, 33, 0),
        ("sliced", 4, 64, 1),  # starts four bytes off
        ("one", 1, 1, 0),  # Triton folds a 1
    )
)
REFERENCE = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["rows"], case["columns"] + case["skipped"], generator=generator, device=device)
    return {"x": (x * spread + offset)[:, case["skipped"]:], "factor": 2.0}

def scale(x, factor):
    return x * factor
"""
SOLUTION = """
import torch, triton
import triton.language as tl
{before}
SPARE = tl.constexpr(3)

@triton.jit
def doubled(values):
    return values * 2

{decorator}
@triton.jit
def kernel(x, out, stride, columns, factor, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    row, inside = tl.program_id(0), place < columns
    values = doubled(tl.load(x + row * stride + place, inside)) + SPARE
    tl.store(out + row * columns + place, values * factor, inside)

def scale(x, factor):
    assert x.is_cuda or x.device.type == "cpu"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], factor{block})
    return out
"""
BLOCK = ", BLOCK=triton.next_power_of_2(x.shape[1])"
AUTOTUNE = "@triton.autotune([triton.Config({'BLOCK': size}) for size in (64, 128)], key=['columns'])"
HEURISTIC = "@triton.heuristics({'BLOCK': lambda given: triton.next_power_of_2(given['columns'])})"

DRIVER = """
import json, os, sys, types
import torch, triton
from triton.backends.compiler import GPUTarget

about = types.SimpleNamespace(major=9, minor=0, name="Stand-in", multi_processor_count=132)
torch.cuda.get_device_properties = lambda device: about
driver = types.SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device=None: 0,
    utils=types.SimpleNamespace(get_device_properties=lambda device: {"multiprocessor_count": 132}),
)
triton.runtime.driver.set_active(driver)
"""
"""A process that believes in a GPU, as far as compiling goes."""
FACTS = DRIVER + "from harness.precompile import server\nprint(json.dumps(server.facts('cuda:0')))\n"
WORKER = (
    DRIVER
    + """
from triton.runtime.jit import JITFunction
from harness.inputs.reference import Draw
from harness.inputs.cache import RunCache
from harness.shared.taskfile import load

task, found = load(__import__("pathlib").Path(sys.argv[1])), []
listener = lambda *, src, metadata, cache_hit, **_: found.append((metadata["hash"], cache_hit))
triton.knobs.compilation.listener = listener
launch = JITFunction.run
JITFunction.run = lambda self, *args, grid, warmup, **rest: launch(self, *args, grid=grid, warmup=True, **rest)
cache = RunCache()
entry = cache.function("solution", "solution.py", task.folder, task, "")
reference = cache.reference(task, task.folder, "")
for case in task.cases:
    entry(**reference.make(case, Draw(0), "cpu"))  # real memory at real addresses
print(json.dumps(found))
"""
)
"""The worker's side: the same source on real tensors, and for every compilation its key and whether it was found."""


def run_python(code: str, *words: str, **environment: str) -> Any:
    env = {**os.environ, **environment}
    forked = Forked(code, words, environment=env, path=[str(ROOT)], imports=("torch", "triton"))
    said, errors = forked.communicate(timeout=100)
    assert forked.returncode == 0, errors
    return json.loads(said)


class Builder:
    """The process under test, started as the workbench starts it."""

    def __init__(self, *words: str, before: str = "") -> None:
        """`before` is Python that runs in the process ahead of the server, with the harness at hand."""
        head, start, tail = BOOT.partition("importlib.import_module(")
        boot = head + before + start + tail
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        arguments = [str(ROOT / "harness"), "precompile.server", *words]
        self.process = Forked(boot, arguments, environment=env, imports=("torch", "triton"))
        self.runs = 0
        assert [self.read()["event"], self.read()["event"]] == ["hello", "ready"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '{"event": "gone"}')

    def send(self, folder: Path, facts: dict[str, Any], cache: Path, **more: Any) -> str:
        self.runs += 1
        task = load(folder)
        run = RunRequest(
            run=f"r{self.runs}", task=task, source=str(folder), cases=tuple(case.id for case in task.cases)
        )
        told = {**facts, "settings": {**facts["settings"], "TRITON_CACHE_DIR": str(cache)}}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"request": "run", **to_dict(run), "compiler": told, **more}) + "\n")
        self.process.stdin.flush()
        return run.run

    def build(self, folder: Path, facts: dict[str, Any], cache: Path) -> int:
        run, said = self.send(folder, facts, cache), self.read()
        assert (said["event"], said["run"]) == ("built", run)
        return int(said["kernels"])

    def children(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def close(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        said = self.process.stdout.read() + self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return said


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    made = Builder()
    yield made
    assert made.close() == ""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    said: dict[str, Any] = run_python(FACTS)
    return said


def written(folder: Path, decorator: str = "", block: str = BLOCK, before: str = "") -> Path:
    solution = SOLUTION.format(decorator=decorator, block=block, before=before)
    return write_task(folder, task_toml=TASK, reference_py=REFERENCE, solution_py=solution)


def until(done: Callable[[], bool]) -> None:
    """Waits for what must come; the test's own time limit ends it where it does not."""
    while not done():
        time.sleep(0.01)


def ended(process: str) -> bool:
    """Whether it has come to its end, waited for or not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def cubins(cache: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*.cubin")}


def test_the_facts_say_what_decides_a_key(facts: dict[str, Any]) -> None:
    assert facts["target"] == ["cuda", 90, 32]
    assert facts["backend"].endswith("-90")
    assert facts["device_properties"]["multi_processor_count"] == 132
    assert facts["settings"]["TRITON_CACHE_DIR"] == os.environ["TRITON_CACHE_DIR"]


@pytest.mark.parametrize(
    ("decorator", "block", "variants"),
    [("", BLOCK, 3), (HEURISTIC, "", 3), (AUTOTUNE, "", 6)],
    ids=["plain", "heuristics", "autotuned"],
)
def test_the_worker_finds_what_was_built(
    builder: Builder, facts: dict[str, Any], tmp_path: Path, decorator: str, block: str, variants: int
) -> None:
    folder, cache = written(tmp_path / "scale", decorator, block), tmp_path / "cache"
    assert builder.build(folder, facts, cache) == variants
    built = cubins(cache)
    assert len(built) == variants
    if decorator != AUTOTUNE:  # which would be timed
        found = run_python(WORKER, str(folder), TRITON_CACHE_DIR=str(cache))
        keys = dict(reversed(found))
        assert [key for key, hit in keys.items() if not hit] == [found[0][0]]  # the first case's was left to the worker
        assert len(keys) == variants + 1
        assert len(cubins(cache)) == variants + 1
    assert builder.build(folder, facts, cache) == variants
    assert {path: at for path, at in cubins(cache).items() if path in built} == built  # not compiled a second time


def test_who_asks_for_the_whole_hears_when_it_is_over(builder: Builder, facts: dict[str, Any], tmp_path: Path) -> None:
    run = builder.send(written(tmp_path / "scale"), facts, tmp_path / "cache", whole=True)
    said = builder.read()
    assert (said["event"], said["run"], said["kernels"]) == ("built", run, 4)
    assert builder.read()["event"] == "left"
    assert len(cubins(tmp_path / "cache")) == 4
    bad = written(tmp_path / "bad", before="import os; os.kill(os.getpid(), 11)")
    builder.send(bad, facts, tmp_path / "cache", whole=True)
    assert builder.read()["event"] == "left"


BAD = {
    "raises": "raise ValueError('no')",
    "exits": "import os; os._exit(3)",
    "leaves": "raise SystemExit",
    "crashes": "import os; os.kill(os.getpid(), 11)",
    "floods": "print('x' * 1000000); import os; os.write(2, b'y' * 100000)",
    "hangs": "import time; time.sleep(100)",
    "has no GPU": "torch.zeros(1, device='cuda').item()",
    "wants a compiler of its own": "import torch.utils.cpp_extension",
}


@pytest.mark.parametrize("before", BAD.values(), ids=BAD.keys())
def test_a_bad_source_harms_nobody(builder: Builder, facts: dict[str, Any], tmp_path: Path, before: str) -> None:
    reached = tmp_path / "reached"
    bad = written(tmp_path / "bad", before=f"open({str(reached)!r}, 'w').close(); {before}")  # a kernel's line counts
    good = written(tmp_path / "good")
    run = builder.send(bad, facts, tmp_path / "cache")
    if before == BAD["floods"]:  # which is no reason not to build it
        assert builder.read()["run"] == run
    until(reached.exists)
    if before != BAD["hangs"]:
        until(lambda: all(map(ended, builder.children())))
    assert builder.build(good, facts, tmp_path / "cache") == 3
    assert len(cubins(tmp_path / "cache")) == 3


def test_a_case_that_raises_leaves_the_others(builder: Builder, facts: dict[str, Any], tmp_path: Path) -> None:
    folder = written(tmp_path / "scale", block=BLOCK + " // (x.shape[1] - 33)")
    assert builder.build(folder, facts, tmp_path / "cache") >= 1


def test_the_newest_request_wins(builder: Builder, facts: dict[str, Any], tmp_path: Path) -> None:
    for number in range(4):
        builder.send(written(tmp_path / f"old{number}", before=f"OLD = {number}"), facts, tmp_path / "old")
    assert builder.build(written(tmp_path / "new"), facts, tmp_path / "new_cache") == 3
    assert len(cubins(tmp_path / "new_cache")) == 3
    assert cubins(tmp_path / "old") == {}


@pytest.mark.long
def test_overtime_is_ended_and_nothing_stays_behind(facts: dict[str, Any], tmp_path: Path) -> None:
    builder = Builder("1")
    builder.send(written(tmp_path / "hangs", before=BAD["hangs"]), facts, tmp_path / "cache")
    until(lambda: len(builder.children()) == 1)
    until(lambda: builder.children() == [])
    builder.send(written(tmp_path / "hangs again", before=BAD["hangs"] + " "), facts, tmp_path / "cache")
    until(lambda: len(builder.children()) == 1)
    (child,) = builder.children()
    assert builder.close() == ""
    assert not Path(f"/proc/{child}").exists()


def test_a_triton_that_cannot_be_asked_has_no_facts() -> None:
    lacking = "sys.modules['triton.runtime._async_compile'] = None\n"
    assert run_python(FACTS.replace("from harness.", lacking + "from harness.")) is None


@pytest.mark.gpu
def test_on_a_gpu_only_the_first_case_is_left_to_compile(builder: Builder, tmp_path: Path) -> None:
    cache = Path(os.environ["TRITON_CACHE_DIR"])
    old, new = written(tmp_path / "old", before="EDIT = 1\n"), written(tmp_path / "new")
    with Child("cuda:0") as worker:
        (loaded,) = [event for event in worker.run(old) if event["event"] == "loaded"]
        assert builder.build(new, loaded["compiler"], cache) == 3
        before = cubins(cache)
        seen = worker.run(new)
    assert seen[-1]["event"] == "finished"
    assert {result["status"] for result in results(seen).values()} == {"wrong"}  # it adds a 3; all of it was launched
    assert len(cubins(cache)) == len(before) + 1


def test_images_of_cuda_are_compiled_and_never_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In this process: NVRTC and the GPU are stood in for."""
    from harness.precompile import dryrun  # needs Triton

    for name in ("Image", "Kernel"):
        monkeypatch.setattr(library, name, getattr(library, name))  # to be put back
    monkeypatch.setattr(library, "compiled", lambda source, names: (b"code", dict.fromkeys(names, "lowered"), b"ptx"))
    monkeypatch.setattr(library, "digest", lambda source, names: f"{len(names)}{''.join(names)[-2:-1]}")
    collected = dryrun.Collected()
    dryrun.prepare_cuda(collected)
    source = compiling.Source(str(tmp_path / "solution.cu"), "solution.cu", (), (), str(tmp_path / "build"))
    found = library.Library(source, ["add<1>"])
    for kernel in (found.get("add<1>"), found.get("add<2>"), found.scale):
        kernel[1, 32](None, 3)
    assert [names for _, names in collected.jobs] == [("add<1>",), ("add<2>",)]
    for job in collected.jobs.values():
        job()
    assert sorted(path.name for path in (tmp_path / "build").glob("*.cubin")) == [
        "solution-11.cubin",
        "solution-12.cubin",
    ]
