"""What the measuring scripts share: the program, a scratch copy of the demo, one way to print."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

KERNBENCH = str(Path(sys.executable).with_name("kernbench"))


@contextmanager
def scratch_task(source: str = "softmax_host") -> Iterator[Path]:
    """A copy of a shipped task in a folder that goes away: the checkout's own log stays as it is."""
    with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as folder:
        subprocess.run([KERNBENCH, "new", "demo", "--from", source], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        yield Path(folder, "demo")


def wait_for(stream: IO[str], event: str) -> dict[str, Any]:
    """The next JSON line of that event."""
    for line in stream:
        data: dict[str, Any] = json.loads(line)
        if data["event"] == event:
            return data
    raise SystemExit(f"the program ended before it said {event!r}")


def figure(name: str, value: str, note: str = "") -> None:
    print(f"{name:<52} {value:>10}" + (f"   {note}" if note else ""), flush=True)
