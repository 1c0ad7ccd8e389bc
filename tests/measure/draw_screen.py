"""Draws the README's picture: python tests/measure/draw_screen.py TASK_FOLDER OUT.svg [WIDTH HEIGHT]

Opens the real workbench on the task (whose runs should be there already), waits for the run it makes, saves the screen.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from harness.shared import taskfile
from kernbench.engine.session import Session
from kernbench.events import RunFinished
from kernbench.tui.app import Workbench


async def main(folder: Path, out: Path, width: int, height: int) -> None:
    session = Session(taskfile.load(folder), folder / ".kernbench")
    finished = asyncio.Event()
    session.listen(lambda event: finished.set() if isinstance(event, RunFinished) else None)
    app = Workbench(session)
    async with app.run_test(size=(width, height)) as pilot:
        await asyncio.wait_for(finished.wait(), 120)
        await pilot.pause(4)
        picture = app.export_screenshot(title="kernbench", simplify=True)
        picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they would be fetched from outside
        out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    size = [int(word) for word in sys.argv[3:5]] or [140, 40]
    asyncio.run(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]), size[0], size[1]))
