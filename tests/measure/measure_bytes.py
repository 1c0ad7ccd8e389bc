"""Bytes that the screen sends: at rest, with the GPU pane on, for an arriving row, at the end of a run when plots and
heat map are drawn, for a key, under a flood of log."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from pseudo import ROOT, Terminal

ROUNDS = 5
SECONDS = 20
PAST = 40
"""Iterations before."""
KEYS = {"results": "1", "GPU": "2", "profile": "3", "iterations": "4", "output": "5"}


def child() -> None:
    """The workbench on a fake engine and a fake GPU that obey single letters from descriptor 3."""
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from kernbench.events import LogLine, RunFinished, WorkerChanged
    from kernbench.machine.telemetry import Sample
    from tests.tui.scene import H200, HOST, STARTED, FakeEngine, h200, landed, make_app, progress, right, whole_run
    from tests.tui.scene import summary as entry

    class FakeGpu:
        """Idle: a watt and a degree now and then. At work: every figure moves every second."""

        working = False

        def read(self) -> Sample:
            noise = random.random
            if self.working:
                changes = {"busy": 80 + int(20 * noise()), "bus": 40 + int(30 * noise())}
                changes |= {"power_w": 500 + 200 * noise(), "celsius": 55 + int(10 * noise())}
                changes |= {"sm_mhz": 1755 + 15 * int(16 * noise()), "memory_used": int((20 + 5 * noise()) * 1024**3)}
                return Sample(HOST, (h200(60, **changes),))
            changes = {"busy": 0, "bus": 0, "power_w": 76.0 + 1.5 * noise(), "celsius": 30 + (noise() > 0.8)}
            return Sample(HOST, (h200(0, **changes),))

    engine, gpu = FakeEngine(), FakeGpu()
    engine.history = [entry(number, geomean=1 + number / 100, best=number % 7 == 0) for number in range(1, PAST + 1)]
    flood = [LogLine(f"flood {index} " + "x" * 60) for index in range(100)]
    orders = {
        b"w": [WorkerChanged("ready", H200), *whole_run()],
        b"s": [STARTED],
        b"f": flood,
        **{str(index).encode(): landed(right(index)) for index in range(ROUNDS)},
        **{bytes([97 + index]): [progress("time", index)] for index in range(ROUNDS)},
    }

    def end_run() -> None:
        number = len(engine.history) + 1
        last = entry(number, geomean=1.3 + number / 100, source=STARTED.source)
        engine.history.append(last)
        engine.say(RunFinished(last))

    def obey() -> None:
        order = os.read(3, 1)
        if order == b"E":
            end_run()
        if order == b"Q" and app._telemetry is not None:  # what a row costs is not what a second of the GPU costs
            app._telemetry.stop()
        gpu.working = {b"I": False, b"G": True}.get(order, gpu.working)
        engine.say(*orders.get(order, []))

    async def start() -> None:
        asyncio.get_running_loop().add_reader(3, obey)

    engine.start = start  # type: ignore[method-assign]
    app = make_app(engine, reader=gpu)
    app.run()


def measure(columns: int, rows: int) -> None:
    terminal = Terminal([sys.executable, __file__, "child"], columns, rows, orders=True)
    first = terminal.count(3)
    terminal.order("w", 1.0)
    figures = {"first screen": first, "ten seconds at rest": terminal.count(10)}
    terminal.type("2")
    terminal.count(8)
    figures["a second, GPU pane on, GPU idle"] = terminal.count(SECONDS) // SECONDS
    terminal.order("G", 8)
    figures["a second, GPU pane on, GPU at work"] = terminal.count(SECONDS) // SECONDS
    terminal.order("I", 2)
    terminal.order("Q", 2)
    terminal.type("4")
    terminal.count(1)
    terminal.type("1")
    terminal.count(2)
    figures["a run starts (all rows dim)"] = terminal.order("s")
    figures["one arriving row, at most"] = max(terminal.order(str(index)) for index in range(1, ROUNDS))
    figures["one step of progress, at most"] = max(terminal.order(chr(97 + index)) for index in range(1, ROUNDS))
    figures["a run ends (plots and heat map)"] = terminal.order("E", 1.0)
    terminal.type("1")
    terminal.count(1)
    terminal.type("\x1b[B")
    figures["cursor down"] = terminal.count(0.5)
    terminal.order("f", 1.0)
    for name, key in KEYS.items():
        terminal.type(key)
        figures[f"to another pane: {name}"] = terminal.count(0.7)
    figures["100 printed lines in view"] = terminal.order("f", 1.0)
    terminal.leave()
    for name, value in figures.items():
        print(f"{columns}x{rows} {name:<42}{value:>8,} bytes", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    else:
        measure(120, 40)
        measure(200, 60)
