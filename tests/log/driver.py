"""A workbench to be killed: runs one source after the other over the fake harness and says what was reported.

python -m tests.log.driver FOLDER COUNT [same]   with `same` the source is never changed
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import CaseLanded, Event, Notice, RunFinished
from kernbench.worker.deadlines import Deadlines
from tests import FAKE


def say(event: Event) -> None:
    """One line per thing that a user would have seen; a single write, so that it is whole or not there."""
    if isinstance(event, CaseLanded):
        row = event.result
        line = {"case": row.id, "run": event.run, "us": row.solution_us, "checked": row.checked}
    elif isinstance(event, RunFinished):
        line = {"finished": event.summary.run, "iteration": event.summary.iteration, "source": event.summary.source}
    elif isinstance(event, Notice):
        line = {"notice": event.text}
    else:
        return
    os.write(1, (json.dumps(line) + "\n").encode())


async def main(folder: Path, count: int, same: bool) -> None:
    options = Options(harness=FAKE, spares=False, floors=False, deadlines=Deadlines(build=5.0, check=5.0, time=5.0))
    session = Session(taskfile.load(folder), folder / ".kernbench", options)
    session.listen(say)
    try:
        for number in range(count):
            if not same:
                text = f"def toy(): ...\nTIME_US = {50.0 + number / 7}\nWHO = {os.getpid()}\n"
                (folder / "solution.py").write_text(text)
            session.notes.hypothesis = f"idea {number} of {os.getpid()}"
            await session.run_once(iteration=True)
    finally:
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), "same" in sys.argv[3:]))
