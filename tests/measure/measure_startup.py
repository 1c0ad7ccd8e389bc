"""How long `kernbench --version` takes, best of five, against a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
import time

from bench import KERNBENCH, figure


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


bare = min(seconds(sys.executable, "-c", "") for _ in range(5))
version = min(seconds(KERNBENCH, "--version") for _ in range(5))
figure("kernbench --version, best of 5", f"{version * 1000:.0f} ms", f"a bare interpreter takes {bare * 1000:.0f} ms")
