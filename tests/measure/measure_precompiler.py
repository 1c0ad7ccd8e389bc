"""What the precompiler is worth: ten saves with it and ten without, in turns, of kernels that must be compiled anew.

One session per task serves both ways, so that worker, baseline and caches are the same; without means that the waiting
process gets no request. Needs a GPU, torch and Triton: `PYTHONPATH=.:src python tests/measure/measure_precompiler.py`,
with names of tasks for others than rms_norm and norm_scale_shift.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import figure

from kernbench.engine.jobs import Options
from kernbench.selfcheck.task_copy import TaskCopy

SAVES = 10
"""Each way."""
TASKS = ("rms_norm", "norm_scale_shift")
UNTIL = ("first row", "all timed", "all checked")
IDLE_S = 0.3
"""A precompiler that used no CPU for this long has finished."""
LIMIT_S = 140.0
"""For the saves of one task; a slow machine then makes fewer pairs, and the figures say how many."""
_edit = itertools.count(int(time.time()) % 1_000_000 * 100)


def save(shop: TaskCopy, originals: dict[Path, str]) -> None:
    """Writes every kernel with another number in it: Triton ones in their bodies, a CUDA file at its end."""
    number = next(_edit)
    for path, text in originals.items():
        path.write_text(edited(text, number) if path.suffix == ".py" else f"{text}\ntypedef int edit_{number};\n")


def sources(folder: Path) -> dict[Path, str]:
    """The files that hold kernels."""
    found = {path: path.read_text() for path in (*folder.glob("*.py"), *folder.glob("*.cu"))}
    return {path: text for path, text in found.items() if path.suffix == ".cu" or "@triton.jit" in text}


def edited(text: str, number: int) -> str:
    """A statement more in each kernel, which changes Triton's cache key and nothing else."""
    lines = text.split("\n")
    kernels = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    for kernel in reversed(kernels):
        first = kernel.body[0]
        lines.insert(first.lineno - 1, " " * first.col_offset + f"edit_number = {number}")
    return "\n".join(lines)


def used_cpu(pid: int) -> int:
    """Ticks of the process and of all below it, alive or waited for."""
    own = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, own)) + sum(used_cpu(int(child)) for child in below)


async def until_idle(pid: int | None) -> None:
    """Until the precompiler has finished what an earlier save gave it."""
    before = -1
    while pid is not None:
        try:
            now = used_cpu(pid)
        except OSError:  # a child ended between the two looks
            now = -2
        if now == before:
            return
        before = now
        await asyncio.sleep(IDLE_S)


async def measure(task: str) -> dict[bool, list[tuple[float, ...]]]:
    """Seconds from the save to the first row, all rows timed and all rows checked, with and without."""
    taken: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    async with TaskCopy(task, Options(), lambda _line: None) as shop:
        outcome = await shop.run()
        if shop.first() is None:
            raise SystemExit(f"{task} was not timed: {shop.why_untimed(outcome)}")
        precompiler: Any = shop.session.supervisor.builder
        await precompiler.prepare(lambda: False)
        if not precompiler.ready:
            raise SystemExit(f"{task}: no precompiler could be started")
        originals, submit = sources(shop.folder), precompiler.submit
        end = time.monotonic() + LIMIT_S
        for number in range(-2, 2 * SAVES):  # the first two are not counted
            if number > 0 and number % 2 == 0 and time.monotonic() > end:
                break
            with_it = number % 4 in (0, 3)  # which way comes first changes from pair to pair
            precompiler.submit = submit if with_it else lambda *_given: None
            await until_idle(precompiler.pid)
            save(shop, originals)
            outcome = await shop.run()
            times = (shop.first(), shop.last(1), shop.last(2))
            if None in times:
                raise SystemExit(f"{task}: a save was not timed and checked: {shop.why_untimed(outcome)}")
            if number >= 0:
                taken[with_it].append(tuple(at for at in times if at is not None))
    return taken


def show(task: str, taken: dict[bool, list[tuple[float, ...]]]) -> None:
    figure(f"{task}, saves each way", str(len(taken[True])))
    for place, what in enumerate(UNTIL):
        on, off = ([row[place] for row in taken[way]] for way in (True, False))
        with_it, without = statistics.median(on), statistics.median(off)
        figure(f"{task}, save to {what}, with", f"{with_it:.3f} s", f"{min(on):.3f} to {max(on):.3f} s")
        figure(f"{task}, save to {what}, without", f"{without:.3f} s", f"{min(off):.3f} to {max(off):.3f} s")
        later = without - with_it
        figure("  later without by", f"{later:+.3f} s", f"{later / with_it * 100:+.1f} %")


def has_gpu() -> bool:
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).stdout.startswith(b"GPU")
    except OSError:
        return False


if not has_gpu():
    print("measure_precompiler.py needs a GPU with torch and Triton, and nvidia-smi found none here.")
    sys.exit()
with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as cache:
    os.environ["TRITON_CACHE_DIR"] = cache
    for name in sys.argv[1:] or TASKS:
        show(name, asyncio.run(measure(name)))
