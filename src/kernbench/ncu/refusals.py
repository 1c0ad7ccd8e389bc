"""Why there is no profile: a code for the program, and one sentence with the exact fix for the user.

`explain` derives the code from the output of ncu and the target; elsewhere `refuse` gets the code directly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.events import RefusalCode

WORDS: dict[RefusalCode, str] = {
    "permission": (
        "the driver restricts GPU counters to administrators (ERR_NVGPUCTRPERM): on the host, add `options nvidia"
        " NVreg_RestrictProfilingToAdminUsers=0` to /etc/modprobe.d/nvidia.conf and reboot; start a container with"
        " `--cap-add=SYS_ADMIN`; or run kernbench under sudo"
    ),
    "counters_taken": (
        "the GPU's counters are in use (by DCGM or another profiler): `dcgmi profile --pause`, profile, then"
        " `dcgmi profile --resume`; or stop the other profiler"
    ),
    "exclusive": (
        "the GPU is in exclusive-process mode and the worker has it: close the workbench and run `kernbench profile`,"
        " or run `sudo nvidia-smi -c DEFAULT`"
    ),
    "no_counters": (
        "{who} cannot load the driver's profiling library here (LibraryNotLoaded): the container or sandbox hides it;"
        " start the container with `NVIDIA_DRIVER_CAPABILITIES=all` or use another runtime"
    ),
    "no_gpu": (
        "no NVIDIA GPU here (no driver is loaded), and Nsight Compute profiles nothing else;"
        " `kernbench trace` works on a CPU"
    ),
    "no_device": "torch does not see this CUDA device: try another --device or --python",
    "lock": "ncu cannot write its lock file: check that {tmp} is writable and not full",
    "no_room": (
        "not enough free GPU memory for this case alongside the worker, and {who} needs as much again to save what the"
        " kernel writes: profile a smaller case, or close the workbench and run `kernbench profile`"
    ),
    "gpu_full": "no GPU memory for another process: nvidia-smi shows what is using it, --device chooses another GPU",
    "no_kernel": "the call launched no kernel on the GPU, so there is nothing to profile",
    "driver_mismatch": (
        "this ncu does not match the driver: install the one for the driver's CUDA version; `--ncu PATH` selects it"
    ),
    "unknown_gpu": "this ncu does not support this GPU: install a newer Nsight Compute and pass it with `--ncu PATH`",
    "unknown_metrics": (
        "this ncu does not know some of the metrics: install a newer one and pass it with `--ncu PATH`"
    ),
    "ncu_missing": "no ncu in {places}: install Nsight Compute, or pass `--ncu PATH`",
    "not_a_program": "{path} is not an executable file: pass the path of ncu with `--ncu PATH`",
    "no_version": "{path} does not print its version; is it Nsight Compute? Pass another with `--ncu PATH`",
    "not_started": "cannot start {path}: {problem}",
    "timed_out": "{who} {doing} after {seconds} and was killed{question}",
    "ncu_failed": "{who} failed: {said}",
    "ended": "{who} {outcome}",
    "side_failed": "{side} failed: {message}",
    "mixed_sides": "cannot tell which side ncu's kernels belong to; profile one side at a time (omit --against)",
    "task_left": "the task was closed before the profile started",
    "on_cpu": "{task} runs on the CPU here; Nsight Compute profiles only GPUs, `trace` works on both",
    "no_case": "{task} has no case {case!r}; ids look like {known!r}",
    "same_source": (
        "{against} is the source being profiled;"
        " pass another source to --against: baseline, best or an iteration number"
    ),
}
NO_DEVICE: frozenset[RefusalCode] = frozenset({"no_gpu", "no_device", "exclusive", "gpu_full"})
"""No GPU is available: commands exit as they do without a device."""
LASTING: frozenset[RefusalCode] = frozenset({"permission", "no_counters"})
"""Another try would fail the same way, so no standby is kept."""
NCU, TRACED_CALL = "ncu", "the traced call"
"""What failed: a trace runs without ncu."""
_DOING = {
    "start": "was still starting",
    "load": "was still loading the source",
    "inputs": "was still making the inputs",
    "build": "was still in the first call of the kernel",
    "profile": "was still replaying the kernel",
}
_CALLING = ("build", "profile")
"""The steps in which the kernel runs."""
_SIDES = {
    "solution": "the solution",
    "baseline": "the baseline",
    "best": "the best source",
    "last": "the last source",
}
_KNOWN: tuple[tuple[str, RefusalCode], ...] = (
    (r"ERR_NVGPUCTRPERM", "permission"),
    (r"driver resource was unavailable|concurrently collecting|already (being )?profil", "counters_taken"),
    (r"LibraryNotLoaded", "no_counters"),
    (r"InterprocessLockFailed|nsight-compute-lock", "lock"),
    (r"busy or unavailable|exclusive", "exclusive"),
    (r"No CUDA GPUs|not compiled with CUDA|no NVIDIA driver|Invalid device|invalid device ordinal", "no_device"),
    (r"out of memory|OutOfMemory", "no_room"),
    (r"[Dd]river (is )?not compatible|[Dd]river version|incompatible driver", "driver_mismatch"),
    (r"not supported on (this )?device|[Uu]nsupported GPU|is not supported", "unknown_gpu"),
    (r"[Ff]ailed to find metric|Unknown (section )?(set|metric)|unrecognised option", "unknown_metrics"),
)
"""Patterns in the output of ncu, the driver and torch."""


@dataclass(frozen=True)
class Refusal:
    code: RefusalCode
    text: str

    def __str__(self) -> str:
        return self.text


class Refused(UserError):
    """Raised with the refusal; its message is the sentence."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @property
    def code(self) -> RefusalCode:
        return self.refusal.code


def refuse(code: RefusalCode, /, **values: object) -> Refusal:
    """The refusal with its sentence; `values` fill the placeholders."""
    return Refusal(code, WORDS[code].format(**{"who": NCU, **values}))


def timed_out(step: str, seconds: float, who: str = NCU) -> Refusal:
    question = "; does the kernel ever finish?" if step in _CALLING else ""
    doing = _DOING.get(step, "had not ended")
    return refuse("timed_out", who=who, doing=doing, seconds=fmt.seconds(seconds), question=question)


def side_failed(side: str, message: str) -> Refusal:
    """`side` as --against names it."""
    named = _SIDES.get(side) or f"{'iteration' if side.isdecimal() else 'source'} {side}"
    return refuse("side_failed", side=named, message=message)


def explain(text: str, ended: str, tmp: str = "TMPDIR", finished: bool = False, who: str = NCU) -> Refusal:
    """ncu's output as a refusal: a known problem, else its first error line, else how it ended.

    `finished` means that the target made all its calls: then ncu reports our stopping and waking it as an error code.
    """
    for pattern, code in _KNOWN:
        if re.search(pattern, "\n".join(_complaints(text)) or text):
            return refuse(code, tmp=tmp, who=who)
    said = [line for line in _complaints(text) if not (finished and "application returned an error code" in line)]
    if finished and not re.search("^==[A-Z]", text, re.MULTILINE):  # not even what every ncu prints
        return refuse("ncu_failed", who=who, said="its output is unreadable; check that `ncu --version` works")
    if "No kernels were profiled" in text or (finished and not said):
        return refuse("no_kernel")
    if said:
        return refuse("ncu_failed", who=who, said=said[0][:300])
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    return refuse("ended", who=who, outcome=ended if ended.endswith(last) else f"{ended}: {last[:300]}")


def _complaints(text: str) -> list[str]:
    return [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
