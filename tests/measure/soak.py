"""A day of saves in minutes: good ones, wrong ones, crashes, floods and hangs, and what the workbench grows meanwhile.

`python -m tests.measure.soak MINUTES [--device cuda] [--period 30]` writes a line per period as it goes, and a verdict.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import processes
from tests.faults.python_sources import call, load
from tests.faults.row import for_gpu
from tests.faults.workbench import GOOD, HEADING, Silent, Workbench, settings, torn, write_task

REST_S = 10.0
MOST_MB = 2.0
"""Growth of private memory from the second quarter to the last."""
FLOOD = "F = False; B = (b'words ' * 20 + b'\\n') * 8264"
DAEMON = "import subprocess\nsubprocess.Popen(['sleep', '99'], start_new_session=True)"
FLOODS = "global F\nif not F:\n    F = True\n    for _ in range(200): os.write(1, B)"
MIX: dict[str, tuple[int, str, str]] = {
    "good": (60, GOOD, "ok"),
    "wrong": (8, "import torch\ndef softmax(x): return torch.softmax(x, -1) * 1.01\n", "wrong"),
    "raises": (6, call("raise ValueError('no')"), "runtime_error"),
    "syntax": (6, "def softmax(x\n", "build_error"),
    "exits": (4, call("os._exit(1)"), "crashed"),
    "segfaults": (4, call("ctypes.string_at(8)", "import ctypes"), "crashed"),
    "leaves a daemon": (2, call("os._exit(1)", DAEMON), "crashed"),
    "floods": (4, call(FLOODS, FLOOD), "ok timeout"),
    "hangs": (3, call("while True: pass"), "timeout"),
    "hangs at import": (1, load("while True: pass"), "timeout"),
    "writes code": (2, load("open('FOLDER/made.py', 'w').write('T = %r' % time.time())"), "ok"),
}
"""How often, the source, and the statuses it may be answered with."""
OUT_OF_RANGE = "torch.zeros(3, device=x.device)[torch.tensor([9], device=x.device)]; torch.cuda.synchronize()"
ON_A_GPU = {
    "device assert": (5, call(OUT_OF_RANGE), "runtime_error crashed"),
    "hangs on the GPU": (2, call("torch.cuda._sleep(40_000_000_000); torch.cuda.synchronize()"), "timeout"),
}


@dataclass
class Tally:
    saves: int = 0
    answered: int = 0
    odd: list[str] = field(default_factory=list)
    """Saves that were answered with something else."""
    profiles: int = 0


@dataclass(frozen=True)
class Sample:
    minutes: float
    private_mb: float
    descriptors: int
    processes: int


def sample(bench: Workbench, began: float) -> Sample:
    private = processes.memory(bench.pid, "Private_Dirty") + processes.memory(bench.pid, "Private_Clean")
    ours = processes.marked(bench.mark)
    return Sample((time.monotonic() - began) / 60, private, processes.descriptors(bench.pid), len(ours))


def save(bench: Workbench, kind: str, choice: tuple[int, str, str], tally: Tally) -> None:
    tally.saves += 1
    text = choice[1].replace("FOLDER", str(bench.folder))
    try:
        answer = bench.answer(bench.save(solution_py=text), 60)
    except Silent as problem:
        tally.odd.append(f"{kind}: {problem}")
        if bench.process.poll() is not None:
            raise
        return
    tally.answered += 1
    if not answer.statuses <= {*choice[2].split(), "skipped"}:
        tally.odd.append(f"{kind}: answered {sorted(answer.statuses)}")


def profile(bench: Workbench, tally: Tally) -> None:
    """A profile by a second process, as from another terminal."""
    words = [sys.executable, "-m", "kernbench", "profile", str(bench.folder), "--case", "a_8x32"]
    done = subprocess.run(words, env=settings("profile"), capture_output=True, text=True, timeout=300, check=False)
    tally.profiles += done.returncode == 0


def line(at: Sample, tally: Tally, folder: Path) -> str:
    log = folder / "ITERATIONS.md"
    entries = len(HEADING.findall(log.read_text(errors="replace"))) if log.is_file() else 0
    return (
        f"{at.minutes:6.1f} min  {at.private_mb:7.2f} MB private  {at.descriptors:3} descriptors  "
        f"{at.processes:2} processes  {tally.saves:5} saves  {tally.answered:5} answered  {entries:5} entries"
    )


def soak(bench: Workbench, minutes: float, period: float, on_gpu: bool, tally: Tally) -> list[Sample]:
    mix = {**MIX, **(ON_A_GPU if on_gpu else {})}
    dice, samples = random.Random(22), list[Sample]()
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        until = time.monotonic() + period
        while time.monotonic() < until:
            (kind,) = dice.choices(list(mix), [choice[0] for choice in mix.values()])
            save(bench, kind, mix[kind], tally)
            time.sleep(dice.uniform(0.0, 1.5))
        if on_gpu:
            profile(bench, tally)
        save(bench, "good", MIX["good"], tally)
        bench.settle(REST_S)
        samples.append(sample(bench, began))
        print(line(samples[-1], tally, bench.folder), flush=True)
    return samples


def verdict(bench: Workbench, first: Sample, samples: list[Sample], tally: Tally) -> list[str]:
    """What is not as it should be; needs four periods to say anything about memory."""
    wrong = list(tally.odd[:10])
    quarter = len(samples) // 4
    if not quarter:
        wrong.append("too short for a verdict on memory: at least four periods are needed")
    else:
        early, late = samples[quarter : 2 * quarter], samples[-quarter:]
        grown = statistics.median(s.private_mb for s in late) - statistics.median(s.private_mb for s in early)
        print(f"private memory from the second quarter to the last: {grown:+.2f} MB")
        if grown > MOST_MB:
            wrong.append(f"private memory grew by {grown:.2f} MB")
    time.sleep(REST_S)
    last = sample(bench, time.monotonic())
    for name in ("descriptors", "processes"):
        if getattr(last, name) > getattr(first, name):
            wrong.append(f"{getattr(last, name)} {name} after {REST_S:.0f} s of rest, {getattr(first, name)} before")
    if tally.answered != tally.saves:
        wrong.append(f"{tally.saves - tally.answered} saves without an answer")
    return wrong + torn(bench.folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--period", type=float, default=30.0, help="seconds")
    given = parser.parse_args()
    on_gpu, place, tally = given.device == "cuda", Path(tempfile.mkdtemp(prefix="kernbench-soak-")), Tally()
    bench = Workbench(write_task(place / "softmax", **({"task_toml": for_gpu()} if on_gpu else {})))
    try:
        bench.answer((0, 0, time.monotonic()), 180)
        bench.recovered(60)
        bench.settle(30, 1.5)
        first = sample(bench, time.monotonic())
        samples = soak(bench, given.minutes, given.period, on_gpu, tally)
        wrong = verdict(bench, first, samples, tally)
    finally:
        bench.close()
        shutil.rmtree(place, ignore_errors=True)
    profiles = f", {tally.profiles} profiles" if on_gpu else ""
    print(f"{tally.saves} saves, {tally.answered} answered{profiles}: " + ("FAIL" if wrong else "flat, nothing lost"))
    print(*(re.sub(r"\s+", " ", sentence)[:300] for sentence in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
