"""`kernbench doctor --model`: what a model needs before its step is worth timing, and how to get what is missing.

Packages with their versions, the repository of the code that a kernel would go to, environment variables, an idle GPU
and free memory. Packages are looked up in the worker's Python; nothing of the model runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.model_step import ModelFile
from kernbench.doctor.installation import PROBE_SECONDS, Check
from kernbench.doctor.repository import cleanliness
from kernbench.machine import telemetry, tool
from kernbench.machine.git import Git
from kernbench.machine.telemetry import GpuSample, Sample
from kernbench.task.lookup import repository_root
from kernbench.transfer import model_file
from kernbench.worker.process import child_environment

PROBE = """
import importlib, importlib.metadata, importlib.util, json, os, sys
sys.path[:] = [place for place in sys.path if place]
needed, others = (json.loads(word) for word in sys.argv[1:])
owners, found = importlib.metadata.packages_distributions(), {}
for name in [*needed, *others]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        continue
    places = list(spec.submodule_search_locations or ())
    about = found[name] = {"file": spec.origin if spec.has_location else places[0] if places else ""}
    about["version"] = importlib.metadata.version(owners[name][0]) if name in owners else ""
    if name in needed:
        try:
            importlib.import_module(name)
        except BaseException as problem:
            about["problem"] = (str(problem).splitlines() or [type(problem).__name__])[0]
print("\\n" + json.dumps(found))
"""
INSTALLED = frozenset({"site-packages", "dist-packages"})
EXTRA = {"diffusers": "kernbench[models]"}
"""What brings a package in a version that the shipped models work with."""
BUSY_PERCENT = 5
"""From here on, something else computes on the GPU."""


def checks(name: str, python: str | None = None) -> list[Check]:
    folder = model_file.find_model(name)
    model = model_file.load(folder, None, on_cpu=False)
    python = python or sys.executable
    used = _packages(model, folder)
    try:
        found = _probe(python, model.needs, used)
    except tool.ToolError as problem:
        fix = "Choose a working Python with `--python`."
        return [Check("python", False, f"{python}: {problem}", fix)]
    sample = telemetry.MachineReader().read()
    return [
        Check("model", True, f"{folder} ({model.title})"),
        *(_package(item, found.get(item), python) for item in dict.fromkeys(["torch", *model.needs, *used])),
        *_code_under_test(folder, used, found),
        *_variables(model.wants, os.environ),
        *_graphics(sample),
        _memory(sample),
    ]


def _packages(model: ModelFile, folder: Path) -> list[str]:
    """The top-level packages of its sites and rewrites that are not files of the model."""
    calls = [*(site.call for site in model.sites), *(item.call for item in model.rewrites)]
    tops = dict.fromkeys(call.partition(":")[0].partition(".")[0] for call in calls)
    return [top for top in tops if not (folder / f"{top}.py").exists() and not (folder / top).is_dir()]


def _probe(python: str, needed: tuple[str, ...], used: list[str]) -> dict[str, Any]:
    words = [json.dumps(["torch", *needed]), json.dumps(used)]
    answer = tool.answer([python, "-c", PROBE, *words], PROBE_SECONDS, child_environment(None))
    found: dict[str, Any] = json.loads(answer.rstrip().rpartition("\n")[2])
    return found


def _package(name: str, about: dict[str, str] | None, python: str) -> Check:
    install = f"`{python} -m pip install '{EXTRA.get(name, name)}'` installs it."
    if about is None:
        return Check(name, False, f"not in {python}", install)
    said = " ".join(filter(None, [about["version"] or "no version", f"in {Path(about['file']).parent}"]))
    if "problem" in about:
        return Check(name, False, f"{said}, cannot be imported: {about['problem']}", install)
    return Check(name, True, said)


def _code_under_test(folder: Path, used: list[str], found: Mapping[str, Any]) -> list[Check]:
    """Where the sites are: a repository that takes a kernel, or an installed package that does not."""
    places = {name: Path(found[name]["file"]) for name in used if found.get(name)}
    if not used:
        places = {"the model's own files": folder}
    checks: list[Check] = []
    for name, place in places.items():
        if INSTALLED & set(place.parts):
            fix = f"To port a kernel into {name}, clone its repository and install that with `pip install -e`."
            checks.append(Check("code under test", None, f"{name} is installed, not a repository", fix))
            continue
        root = repository_root(place)
        if root is None:
            fix = "`git init` creates one; without it, no result can name the code that it is about."
            checks.append(Check("code under test", None, f"{name}: {place} is not in a repository", fix))
            continue
        git = Git(root)
        commit = git.ask("rev-parse", "--short=12", "HEAD")
        checks.append(Check("code under test", True, f"{name}: {root}, commit {commit or 'none yet'}"))
        checks += [_writable(root), cleanliness(git)]
    return checks


def _writable(root: Path) -> Check:
    if os.access(root, os.W_OK | os.X_OK):
        return Check("writable", True, str(root))
    return Check("writable", False, f"{root} is not", "Clone it to a folder that you own.")


def _variables(wanted: Sequence[str], environ: Mapping[str, str]) -> list[Check]:
    """Whether they are set; their values may be secrets, and are not shown."""
    return [
        Check(name, True, "set") if name in environ else Check(name, False, "not set", f"`export {name}=...` sets it.")
        for name in wanted
    ]


def _graphics(sample: Sample) -> list[Check]:
    if not sample.gpus:
        fix = "Without one, the model's `tiny` config is checked on the CPU, and no side is faster or slower."
        return [Check("idle GPU", None, f"none ({sample.why or 'none found'})", fix)]
    idle = [gpu for gpu in sample.gpus if not gpu.processes and (gpu.busy or 0) < BUSY_PERCENT]
    if chosen := telemetry.idle(idle):
        return [Check("idle GPU", True, f"cuda:{chosen.index} {chosen.name}"), _gpu_memory(chosen)]
    least = telemetry.idle(sample.gpus) or sample.gpus[0]
    names = fmt.joined([f"{item.name or 'process'} ({item.pid})" for item in least.processes or ()][:3])
    said = f"none; the least busy is cuda:{least.index}, {least.busy or 0}% busy" + (
        f", used by {names}" if names else ""
    )
    fix = "Wait for the others to end, or stop them: while they use the GPU, every side comes out unclear."
    return [Check("idle GPU", False, said, fix), _gpu_memory(least)]


def _gpu_memory(gpu: GpuSample) -> Check:
    return Check("GPU memory", True, _free(gpu.memory_used, gpu.memory_total))


def _memory(sample: Sample) -> Check:
    return Check("memory", True, _free(sample.host.memory_used, sample.host.memory_total))


def _free(used: int | None, total: int | None) -> str:
    if used is None or total is None:
        return "unknown"
    return f"{fmt.fixed((total - used) / 1e9, 1)} of {fmt.fixed(total / 1e9, 1)} GB free"
