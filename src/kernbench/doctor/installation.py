"""`kernbench doctor`: what is installed, what is missing, and one fix for each problem.

Every check is a value, never an exception. Checks that need torch run in the worker's Python, in a separate process
with a time limit: this process stays free of torch, and an installation that hangs or crashes becomes a line.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.machine import tool
from kernbench.machine.git import Git
from kernbench.machine.plain_text import one_line
from kernbench.ncu import nsight, sanitizer
from kernbench.task.lookup import repository_root
from kernbench.worker.process import harness_folder

PROBE_SECONDS = 60.0
"""It imports what a worker imports: on a slow host with a GPU 20 s."""
COMMAND_SECONDS = 3.0
NCU_SECONDS = 10.0
"""ncu loads a gigabyte of libraries, which may be on a slow disk."""
TOOLKIT = Path("/usr/local/cuda")

PROBE = """
import sys
sys.path[:] = [place for place in sys.path if place]  # else the current folder's torch.py would be imported
import importlib, importlib.util, json, os
found = {"python": sys.version.split()[0]}
for name in ("nvidia.cu13", "nvidia.cuda_runtime"):
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if os.path.isfile(os.path.join(folder, "include", "cuda_runtime.h")):
            found["headers"] = os.path.join(folder, "include")
for name in ("torch", "triton", "cuda.core", "cuda.bindings"):
    try:
        found[name] = importlib.import_module(name).__version__
    except BaseException as problem:
        found[name + "_problem"] = (str(problem).splitlines() or [type(problem).__name__])[0]
if "torch" in found:
    import torch
    found["cuda"] = torch.version.cuda
    try:
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except BaseException as problem:
        found["gpus_problem"] = (str(problem).splitlines() or [type(problem).__name__])[0]
    try:
        folder = sys.argv[1]
        spec = importlib.util.spec_from_file_location(
            "harness", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        sys.modules["harness"] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
        found["private"] = importlib.import_module("harness.private.report").report()
    except BaseException as problem:
        found["private_problem"] = (str(problem).splitlines() or [type(problem).__name__])[0]
    try:
        found["spare"] = importlib.import_module("harness.device.footprint").measure()
    except BaseException:  # the lines above say what is wrong with torch or the GPU
        pass
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool | None
    """None: missing, but only some tasks or commands need it."""
    says: str
    fix: str = ""
    """The fix, in one sentence; empty if there is nothing to fix."""


@dataclass(frozen=True)
class Nvml:
    names: tuple[str, ...] = ()
    """Names of the GPUs that may be opened."""
    count: int = 0
    """Number of all GPUs."""
    driver: str | None = None
    problem: str | None = None


def checks(folder: Path | None = None, python: str | None = None) -> list[Check]:
    """All checks; `folder` contains the tasks, `python` is the worker's Python."""
    folder = (folder or Path.cwd()).absolute()
    worker = probe(python or sys.executable)
    seen = _nvml()
    steps: list[Callable[[], list[Check]]] = [
        lambda: _graphics(worker, seen),
        lambda: [_torch(worker, seen.count > 0), _triton(worker), *_private(worker), *_spare(worker)],
        lambda: [_compiler(), _nvrtc(worker), _headers(worker), _ncu(), _sanitizer()],
        lambda: [_clipboard()] if os.environ.get("TMUX") else [],
        lambda: [_writable(folder), _git(folder)],
    ]
    return [check for step in steps for check in step()]


def report(found: list[Check], bad: str = "MISSING") -> str:
    """Aligned plain text: status, name, finding; the fix on the next line."""
    words = {True: "ok", False: bad, None: "-"}
    width = max((len(check.name) for check in found), default=0)
    lines = []
    for check in found:
        lines.append(f"{words[check.ok]:<8}{check.name:<{width}}  {one_line(check.says)}")
        if check.fix and not check.ok:
            lines.append(f"{'':<8}{'':<{width}}  -> {one_line(check.fix)}")
    return "\n".join(lines)


def as_json(found: list[Check]) -> str:
    """One JSON line per check."""
    return "\n".join(json.dumps(asdict(check)) for check in found)


def probe(python: str) -> dict[str, Any]:
    """What the worker's Python reports; `problem` if it gives no report."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = tool.run([python, "-c", PROBE, str(harness_folder())], PROBE_SECONDS, environment)
    except tool.ToolError as problem:
        return {"problem": str(problem)}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.rstrip().rpartition("\n")[2])
        return answer
    except ValueError:
        return {"problem": f"{python} failed: {tool.last_line(done)}"}


def _graphics(worker: dict[str, Any], seen: Nvml) -> list[Check]:
    """GPU, driver and NVML; a machine without a GPU lacks all three, which is fine."""
    version = seen.driver or _driver_version()
    gpus, none = seen.names or worker.get("gpus") or [], "none found"
    if not gpus and not seen.count:
        fix = 'Without one, Triton tasks are interpreted and checked, not timed; tasks with device = "cpu" are timed.'
        install = "Install the NVIDIA driver if this machine has a GPU."
        unread = "NVML comes with the driver."
    else:
        none = "the GPU cannot be opened" if seen.count == 1 else f"none of the {seen.count} GPUs can be opened"
        fix = "Ask for access to a GPU's /dev/nvidia* files."
        install = "Install the NVIDIA driver."
        unread = "Clocks cannot be read: make the driver's libnvidia-ml.so.1 visible and install nvidia-ml-py."
        if seen.count:
            unread = "Every other GPU is monitored; choose one with `--device`." if seen.names else fix
    return [
        Check("GPU", True if gpus else None, ", ".join(gpus) or none, "" if gpus else fix),
        Check("driver", True if version else None, version or "not loaded", install),
        Check("NVML", True if seen.problem is None else None, seen.problem or "works", unread),
    ]


def _nvml() -> Nvml:
    try:
        import pynvml
    except ImportError:
        return Nvml(problem="the nvidia-ml-py package is not installed")
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        names, refused = [], []
        for index in range(count):
            try:
                names.append(_text(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))))
            except pynvml.NVMLError as problem:  # counted but not accessible: lost, or another user's
                refused.append(f"GPU {index}: {problem}")
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as problem:
        return Nvml(problem=str(problem))
    return Nvml(tuple(names), count, driver, ", ".join(refused) or None)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _driver_version() -> str | None:
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _torch(worker: dict[str, Any], has_gpu: bool) -> Check:
    if "problem" in worker:
        return Check("torch", False, worker["problem"], "Point `--python` at a Python 3.10 or newer that has torch.")
    if "torch" not in worker:
        says = f"not in the worker's Python {worker['python']}: {worker.get('torch_problem', '')}"
        return Check("torch", False, says, "Install torch there, or point `--python` at a Python that has it.")
    build = f"CUDA {worker['cuda']}" if worker.get("cuda") else "CPU build"
    says = f"{worker['torch']} ({build}), Python {worker['python']}"
    if not has_gpu or worker.get("gpus"):
        return Check("torch", True, says)
    if not worker.get("cuda"):
        fix = "It cannot time Triton tasks: install a CUDA build, or point `--python` at a Python that has one."
    elif "CUDA_VISIBLE_DEVICES" in os.environ:
        fix = "Triton tasks cannot be timed: unset CUDA_VISIBLE_DEVICES, or set it to a GPU on this machine."
    else:
        fix = (
            "Triton tasks cannot be timed: check that the driver is new enough for torch"
            " and that its services are running."
        )
    return Check("torch", None, f"{says}; it sees no GPU ({worker.get('gpus_problem') or 'none listed'})", fix)


def _triton(worker: dict[str, Any]) -> Check:
    if "triton" in worker:
        return Check("triton", True, str(worker["triton"]))
    says = worker.get("triton_problem", "unknown")
    return Check("triton", None, says, "Triton tasks need it: `pip install triton` in the worker's Python.")


def _private(worker: dict[str, Any]) -> list[Check]:
    """Private names of torch and triton that use a fallback in the worker's Python; no line without torch."""
    name, found = "private names", worker.get("private")
    if "private_problem" in worker:
        says = f"cannot import the harness in the worker's Python: {worker['private_problem']}"
        fix = "Report it: the worker may not start with this torch either."
        return [Check(name, False, says, fix)]
    if found is None:
        return []
    untried = f"; untested with {found['untried']}" if found["untried"] else ""
    missing: dict[str, str] = found["missing"]
    if not missing:
        return [Check(name, True, f"all {found['count']} found in torch and triton{untried}")]
    says = f"{len(missing)} of {found['count']} not found: {', '.join(missing)}{untried}"
    return [Check(name, None, says, f"Without them: {'; '.join(dict.fromkeys(missing.values()))}.")]


def _spare(worker: dict[str, Any]) -> list[Check]:
    """What a worker costs that waits to replace one that a kernel has broken."""
    if (sizes := worker.get("spare")) is None:
        return []
    says = f"takes {fmt.fixed(sizes['machine'] / 1e9, 1)} GB of memory"
    if "gpu" in sizes:
        says += f" and {fmt.fixed(sizes['gpu'] / 1e9, 1)} GB of the GPU's"
    return [Check("spare worker", True, f"{says}; a second one starts while half of the memory is free")]


def _compiler() -> Check:
    asked = os.environ.get("CXX", "").split()
    for name in asked[:1] or ["c++", "g++", "clang++"]:
        if path := shutil.which(name):
            return Check("C++ compiler", True, _first_line([path, "--version"]) or path)
    says = f"$CXX is {asked[0]}, which does not exist" if asked else "no c++, g++ or clang++ on PATH"
    return Check("C++ compiler", None, says, "Tasks with a .cpp need one: install g++ or clang++, or set CXX.")


def _nvrtc(worker: dict[str, Any]) -> Check:
    """The packages that harness.cuda compiles and launches with."""
    versions = [f"{name} {worker[name]}" for name in ("cuda.core", "cuda.bindings") if name in worker]
    if len(versions) == 2:
        return Check("CUDA C++", True, ", ".join(versions))
    fix = "Tasks with a .cu need them: `pip install 'kernbench[cuda13]'` (cuda12 for a CUDA 12 torch)."
    return Check("CUDA C++", None, "cuda-core and cuda-bindings are not in the worker's Python", fix)


def _headers(worker: dict[str, Any]) -> Check:
    nvcc = shutil.which("nvcc")
    places = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [Path(nvcc).resolve().parents[1]] if nvcc else []
    for include in (place / "include" for place in [*places, TOOLKIT]):
        if (include / "cuda_runtime.h").is_file():
            return Check("CUDA headers", True, str(include))
    if "headers" in worker:
        return Check("CUDA headers", True, worker["headers"])
    fix = "Needed only by tasks whose .cu includes CUDA headers: set CUDA_HOME, or `pip install nvidia-cuda-runtime`."
    return Check("CUDA headers", None, "cuda_runtime.h not found", fix)


def _ncu() -> Check:
    """ncu as a profile would find it, its version, and its permission to read counters."""
    try:
        path = nsight.find()
    except nsight.NoNcu:
        return Check("ncu", None, "not found", "Profiling needs Nsight Compute: install it, or add it to PATH.")
    try:
        version = nsight.version_in(tool.answer([str(path), "--version"], NCU_SECONDS))
    except tool.ToolError as problem:
        return Check("ncu", False, str(problem), "Reinstall Nsight Compute, or put a working one first on PATH.")
    if version is None:
        fix = "Put the ncu of Nsight Compute first on PATH."
        return Check("ncu", False, f"{path} does not print a version", fix)
    if not nsight.permitted():
        fix = "Load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or give kernbench CAP_SYS_ADMIN."
        return Check("ncu", False, f"{path}, but the driver restricts counters to administrators", fix)
    return Check("ncu", True, f"{path}, {version}")


def _sanitizer() -> Check:
    try:
        return Check("compute-sanitizer", True, str(sanitizer.find()))
    except UserError:
        fix = "It finds out-of-bounds accesses on a GPU: install it with the CUDA toolkit, or add it to PATH."
        return Check("compute-sanitizer", None, "not found", fix)


def _clipboard() -> Check:
    value = _first_line(["tmux", "show-options", "-gv", "set-clipboard"])
    fix = "Copying from the screen needs `set -g set-clipboard on` in tmux.conf."
    return Check("tmux clipboard", True if value == "on" else None, f"set-clipboard {value or 'unknown'}", fix)


def _writable(folder: Path) -> Check:
    if os.access(folder, os.W_OK | os.X_OK):
        return Check("write access", True, str(folder))
    fix = "Copy the task to a folder you own with `kernbench new NAME --from TASK`, or use `--state DIR`."
    return Check("write access", False, f"{folder} is not writable", fix)


def _git(folder: Path) -> Check:
    root = repository_root(folder)
    if root is None:
        fix = "`git init` creates one; commit the kernel and its log together."
        return Check("git", None, f"{folder} is not in a repository", fix)
    status = Git(root).status("--untracked-files=no", seconds=COMMAND_SECONDS)
    if status is None:
        fix = "Check that git is installed and trusts the folder."
        return Check("git", None, f"{root}, but git does not work there", fix)
    changed = len(status.splitlines())
    return Check("git", True, f"{root}, " + (fmt.plural(changed, "changed file") if changed else "clean"))


def _first_line(command: list[str]) -> str | None:
    output = _output(command)
    return output.splitlines()[0].strip() if output and output.strip() else None


def _output(command: list[str]) -> str | None:
    """The command's output; None if it failed, hung or does not exist."""
    try:
        return tool.answer(command, COMMAND_SECONDS)
    except tool.ToolError:
        return None
