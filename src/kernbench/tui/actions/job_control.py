"""ctrl+z: the whole job stops, so that the shell gets the terminal back whoever started the workbench."""

from __future__ import annotations

import os
import signal


def stop_job() -> None:
    """Returns when the shell says `fg`.

    A `make` above the workbench is part of the same job, and the shell waits for it. The signal's own meaning is asked
    for, since it does nothing where no shell could ever continue the job (a tmux pane that runs the workbench alone).
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)
