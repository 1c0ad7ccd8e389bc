"""From the key to the summary, warm and cold, and what a waiting ncu costs. Needs an NVIDIA GPU and ncu.

python tests/measure/measure_ncu.py [COUNT]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from harness.shared import taskfile
from harness.shared.lines import to_dict
from kernbench.diagnosis.counters import Profile, read_csv
from kernbench.diagnosis.rules import diagnose
from kernbench.ncu import drilldown, nsight
from kernbench.ncu import standby as ncu

TASK = Path(__file__).parents[2] / "kernels" / "rms_norm"
CASES = ("rmsnorm_m4096_d3072_bf16", "rmsnorm_m75348_d5120_bf16")


def request(case: str) -> dict[str, Any]:
    side = {"name": "solution", "kind": "file", "file": "solution.py", "source": str(TASK)}
    return {"task": to_dict(taskfile.load(TASK)), "case": case, "build": "/tmp/kernbench-build", "sides": [side]}


async def answer(standby: ncu.Standby, case: str) -> float:
    """Seconds from the key to the sentence."""
    began = time.perf_counter()
    outcome = await standby.profile(request(case))
    profile = Profile(read_csv(outcome.text).kernels)
    words = diagnose(profile)
    seconds = time.perf_counter() - began
    if outcome.problem or not profile.kernels or not words.sentence:
        raise SystemExit(f"{case}: {outcome.problem}")
    return seconds


def ticks(standby: ncu.Standby) -> int:
    """CPU time of everything in the standby's group, in clock ticks."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(entry)) == standby.group:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
        except (OSError, ProcessLookupError):
            continue
    return total


async def several(setup: ncu.Setup, count: int, full: bool = False) -> list[ncu.Standby]:
    standbys = await asyncio.gather(*(ncu.Standby.start(setup, full) for _ in range(count)))
    await asyncio.gather(*(standby.wait_ready() for standby in standbys))
    return list(standbys)


async def main(count: int) -> None:
    tool = nsight.find()
    setup = ncu.Setup(sys.executable, "cuda:0", tool)
    print(f"ncu {await nsight.version(tool)}")
    first = (await several(setup, 1))[0]
    await answer(first, CASES[0])  # builds the kernel, which a run of the workbench has done long before
    await first.close()
    began = time.perf_counter()
    standby = await ncu.Standby.start(setup)
    await answer(standby, CASES[0])
    cold = time.perf_counter() - began
    await standby.close()
    print(f"cold: {cold:.2f} s")
    standbys = await several(setup, count + 3)
    before = ticks(standbys[0])
    await asyncio.sleep(3.0)
    print(f"waiting: {ticks(standbys[0]) - before} ticks of CPU in 3 s")
    for case, part in ((CASES[0], standbys[:count]), (CASES[1], standbys[count:])):
        times = [await answer(standby, case) for standby in part]
        low, high = min(times), max(times)
        print(f"warm {case}: median {statistics.median(times):.2f} s ({low:.2f} to {high:.2f}, {len(times)} keys)")
    for standby in standbys:
        await standby.close()
    whole = (await several(setup, 1, full=True))[0]
    began = time.perf_counter()
    outcome = await whole.profile(request(CASES[0]))
    if outcome.report is not None:
        found = await drilldown.read(tool, outcome.report, TASK)
        hottest = found.lines[0] if found.lines else None
        print(f"full, warm: {time.perf_counter() - began:.2f} s; {len(found.details)} characters; hottest {hottest}")
    await whole.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
