"""Finds ncu, its version and its permission to read counters, and runs it for queries that need no GPU."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from kernbench.ncu import refusals

TOOLKITS = (Path("/usr/local/cuda/bin"), Path("/opt/nvidia/nsight-compute"))
DRIVERS = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""At least one exists if an NVIDIA driver is loaded; the last is that of WSL."""
DRIVER_PARAMS = Path("/proc/driver/nvidia/params")
CAPABILITIES = Path("/proc/self/status")
SYS_ADMIN, PERFMON = 1 << 21, 1 << 38


class NoNcu(refusals.Refused):
    """ncu cannot be used here."""


def find(given: str | None = None) -> Path:
    """The ncu to use: the given path, or from PATH or the toolkit's usual folders."""
    if given:
        path = Path(given).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
        raise NoNcu(refusals.refuse("not_a_program", path=path))
    homes = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(map(str, [*homes, TOOLKITS[0]])))
    if found:
        return Path(found)
    standalone = sorted(TOOLKITS[1].glob("*/ncu"), key=lambda path: _numbers(path.parent.name))
    if standalone:
        return standalone[-1]
    if not any(path.exists() for path in DRIVERS):
        raise NoNcu(refusals.refuse("no_gpu"))
    places = ", ".join(("PATH", *map(str, homes), str(TOOLKITS[0]), f"{TOOLKITS[1]}/*"))
    raise NoNcu(refusals.refuse("ncu_missing", places=places))


async def version(ncu: Path) -> str:
    """`2025.3.1`; raises NoNcu if ncu does not print one."""
    found = version_in(await read(ncu, "--version", seconds=20.0))
    if found is None:
        raise NoNcu(refusals.refuse("no_version", path=ncu))
    return found


def version_in(text: str) -> str | None:
    """The version in what `ncu --version` prints."""
    found = re.search(r"Version (\d+(?:\.\d+)+)", text)
    return ".".join(found[1].split(".")[:3]) if found else None


async def read(ncu: Path, *arguments: str, seconds: float = 60.0) -> str:
    """ncu's output for a query that needs no GPU, such as a page of a report; empty if it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            str(ncu),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        kill_group(process.pid)
    return output.decode(errors="replace") if process.returncode == 0 else ""


def permitted(params: Path = DRIVER_PARAMS, capabilities: Path = CAPABILITIES) -> bool:
    """Whether this process may read counters, as far as the system tells; true if unsure."""
    try:
        if "RmProfilingAdminOnly: 1" not in params.read_text(encoding="utf-8"):
            return True
        found = re.search(r"^CapEff:\s*([0-9a-f]+)", capabilities.read_text(encoding="utf-8"), re.M)
    except OSError:
        return True
    return found is None or bool(int(found[1], 16) & (SYS_ADMIN | PERFMON))


def kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
