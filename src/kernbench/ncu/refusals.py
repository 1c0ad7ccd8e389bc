"""Why there is no profile: a code to decide by, and one sentence with the exact thing to do.

`explain` reads what ncu and the target wrote; the rest of the folder names its code and lets `refuse` find the words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.events import RefusalCode

WORDS: dict[RefusalCode, str] = {
    "permission": (
        "the driver gives GPU counters to administrators only (ERR_NVGPUCTRPERM): on the host put `options nvidia"
        " NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia.conf and reboot; in a container start it"
        " with `--cap-add=SYS_ADMIN`; or run kernbench under sudo"
    ),
    "counters_taken": (
        "another tool holds the GPU's counters (DCGM, another profiler): `dcgmi profile --pause`, profile, then"
        " `dcgmi profile --resume`; or end the other profiler"
    ),
    "exclusive": (
        "the GPU is in exclusive-process mode and the worker holds it: close the workbench and use `kernbench profile`,"
        " or set `sudo nvidia-smi -c DEFAULT`"
    ),
    "no_counters": (
        "{who} cannot load the driver's profiling library here (LibraryNotLoaded): the sandbox or container hides it;"
        " give the container the driver capability `utility,compute,profiling` or use another runtime"
    ),
    "no_gpu": (
        "there is no NVIDIA GPU here (no driver is loaded), and Nsight Compute profiles nothing else;"
        " `kernbench trace` looks at calls on a CPU"
    ),
    "no_device": "torch sees no such CUDA device here, so there is nothing to profile: try --device or --python",
    "lock": "ncu's lock file cannot be written although TMPDIR is private: check that {tmp} is writable and not full",
    "no_room": (
        "there is not enough free GPU memory for this case beside the worker, and {who} needs as much again for what"
        " the kernel writes: profile a smaller case, or close the workbench and use `kernbench profile`"
    ),
    "gpu_full": "the GPU has no room for another process: nvidia-smi shows who has it, --device takes another",
    "no_kernel": "the call launched no kernel on the GPU, so there is nothing to profile",
    "driver_mismatch": (
        "this ncu and this driver do not fit together: install the ncu of the driver's CUDA version and name it with"
        " `--ncu PATH`"
    ),
    "unknown_gpu": "this ncu does not know this GPU: install a newer Nsight Compute and name it with `--ncu PATH`",
    "unknown_metrics": (
        "this ncu does not know the metrics asked for: install a newer one and name it with `--ncu PATH`"
    ),
    "ncu_missing": "there is no ncu in {places}: install Nsight Compute, or name it with `--ncu PATH`",
    "not_a_program": "{path} is not a program that can be started: give the path of ncu itself with `--ncu PATH`",
    "no_version": "{path} does not say its version; is it Nsight Compute? name another with `--ncu PATH`",
    "not_started": "{path} cannot be started: {problem}",
    "timed_out": "{who} {doing} after {seconds} and was killed: does the kernel ever end?",
    "ncu_failed": "{who} failed: {said}",
    "ended": "{who} {outcome}",
    "side_failed": "{side} fails: {message}",
    "mixed_sides": "ncu's kernels cannot be told apart by side; try one side",
    "task_left": "the task was left before its turn",
    "on_cpu": "{task} runs on the CPU here; Nsight Compute sees GPUs only, `trace` sees both",
    "no_case": "{task} has no case {case!r}; an id is {known!r}",
    "same_source": "{against} is what is being profiled; compare it with baseline, best or an iteration's number",
}
NO_DEVICE: frozenset[RefusalCode] = frozenset({"no_gpu", "no_device", "exclusive", "gpu_full"})
"""There is no GPU to be had: the commands exit as they do without a device."""
LASTING: frozenset[RefusalCode] = frozenset({"permission", "no_counters"})
"""The next try would meet them again: no standby is kept."""
NCU, TRACED_CALL = "ncu", "the traced call"
"""Who was at work when it happened: a trace is made without ncu."""
_DOING = {
    "start": "did not come up",
    "load": "was still loading the source",
    "inputs": "was still making the inputs",
    "build": "was still in the first call of the kernel",
    "profile": "was still replaying the kernel",
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
"""What ncu, the driver and torch write."""


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
    """The refusal with its words; `values` fill their gaps."""
    return Refusal(code, WORDS[code].format(**{"who": NCU, **values}))


def timed_out(step: str, seconds: float, who: str = NCU) -> Refusal:
    return refuse("timed_out", who=who, doing=_DOING.get(step, "did not end"), seconds=fmt.seconds(seconds))


def explain(text: str, ended: str, tmp: str = "TMPDIR", finished: bool = False, who: str = NCU) -> Refusal:
    """What ncu wrote, as a refusal; its own error line where that is all there is, else how it ended.

    `finished` when the target made its calls to the end: ncu then calls our stopping and waking it a return code.
    """
    for pattern, code in _KNOWN:
        if re.search(pattern, "\n".join(_complaints(text)) or text):
            return refuse(code, tmp=tmp, who=who)
    said = [line for line in _complaints(text) if not (finished and "application returned an error code" in line)]
    if "No kernels were profiled" in text or (finished and not said):
        return refuse("no_kernel")
    if said:
        return refuse("ncu_failed", who=who, said=said[0][:300])
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
    return refuse("ended", who=who, outcome=ended if ended.endswith(last) else f"{ended}: {last[:300]}")


def _complaints(text: str) -> list[str]:
    return [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
