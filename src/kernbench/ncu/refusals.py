"""Why there is no profile, in one sentence with the exact thing to do. Pure: from what ncu and the target said."""

from __future__ import annotations

import re
from pathlib import Path

PERMISSION = (
    "the driver gives GPU counters to administrators only (ERR_NVGPUCTRPERM): on the host put `options nvidia"
    " NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia.conf and reboot; in a container start it with"
    " `--cap-add=SYS_ADMIN`; or run kernbench under sudo"
)
COUNTERS_TAKEN = (
    "another tool holds the GPU's counters (DCGM, another profiler): `dcgmi profile --pause`, profile, then"
    " `dcgmi profile --resume`; or end the other profiler"
)
EXCLUSIVE = (
    "the GPU is in exclusive-process mode and the worker holds it: close the workbench and use `kernbench profile`,"
    " or set `sudo nvidia-smi -c DEFAULT`"
)
NO_COUNTERS = (
    "ncu cannot load the driver's profiling library here (LibraryNotLoaded): the sandbox or container hides it;"
    " give the container the driver capability `utility,compute,profiling` or use another runtime"
)
NO_GPU = (
    "there is no NVIDIA GPU here (no driver is loaded), and Nsight Compute profiles nothing else;"
    " `kernbench trace` looks at calls on a CPU"
)
NO_DEVICE = "torch sees no such CUDA device here, so there is nothing to profile: try --device or --python"
LOCK = "ncu's lock file cannot be written although TMPDIR is private: check that {tmp} is writable and not full"
NO_ROOM = (
    "there is not enough free GPU memory for this case beside the worker, and ncu needs as much again for what the"
    " kernel writes: profile a smaller case, or close the workbench and use `kernbench profile`"
)
FULL = "the GPU has no room for another process: nvidia-smi shows who has it, --device takes another"
NO_KERNEL = "the call launched no kernel on the GPU, so there is nothing to profile"
_KNOWN = (
    (r"ERR_NVGPUCTRPERM", PERMISSION),
    (r"driver resource was unavailable|concurrently collecting|already (being )?profil", COUNTERS_TAKEN),
    (r"LibraryNotLoaded", NO_COUNTERS),
    (r"InterprocessLockFailed|nsight-compute-lock", LOCK),
    (r"busy or unavailable|exclusive", EXCLUSIVE),
    (r"No CUDA GPUs|not compiled with CUDA|no NVIDIA driver|Invalid device|invalid device ordinal", NO_DEVICE),
    (r"out of memory|OutOfMemory", NO_ROOM),
    (
        r"[Dd]river (is )?not compatible|[Dd]river version|incompatible driver",
        "this ncu and this driver do not fit together: install the ncu of the driver's CUDA version and name it with"
        " `--ncu PATH`",
    ),
    (
        r"not supported on (this )?device|[Uu]nsupported GPU|is not supported",
        "this ncu does not know this GPU: install a newer Nsight Compute and name it with `--ncu PATH`",
    ),
    (
        r"[Ff]ailed to find metric|Unknown (section )?(set|metric)|unrecognised option",
        "this ncu does not know the metrics asked for: install a newer one and name it with `--ncu PATH`",
    ),
)


def missing(places: tuple[str, ...]) -> str:
    return f"there is no ncu in {', '.join(places)}: install Nsight Compute, or name it with `--ncu PATH`"


def not_there(path: Path) -> str:
    return f"{path} is not a program that can be started: give the path of ncu itself with `--ncu PATH`"


def timed_out(step: str, seconds: float) -> str:
    words = {
        "start": "did not come up",
        "load": "was still loading the source",
        "inputs": "was still making the inputs",
        "build": "was still in the first call of the kernel",
        "profile": "was still replaying the kernel",
    }
    return f"ncu {words.get(step, 'did not end')} after {seconds:.0f} s and was killed: does the kernel ever end?"


def explain(text: str, ended: str, tmp: str = "TMPDIR", finished: bool = False) -> str:
    """A sentence for what ncu wrote; its own error line where that is all there is, else how it ended.

    `finished` when the target made its calls to the end: ncu then calls our stopping and waking it a return code.
    """
    for pattern, sentence in _KNOWN:
        if re.search(pattern, "\n".join(_complaints(text)) or text):
            return sentence.format(tmp=tmp) if sentence is LOCK else sentence
    said = [line for line in _complaints(text) if not (finished and "application returned an error code" in line)]
    if "No kernels were profiled" in text or (finished and not said):
        return NO_KERNEL
    if said:
        return f"ncu failed: {said[0][:300]}"
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
    return f"ncu {ended}" if ended.endswith(last) else f"ncu {ended}: {last[:300]}"


def _complaints(text: str) -> list[str]:
    return [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
