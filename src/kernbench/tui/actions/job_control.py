"""ctrl+z: stop the whole job, so that the shell gets the terminal back even if `make` started the workbench."""

from __future__ import annotations

import os
import signal


def stop_job() -> None:
    """Returns when the shell runs `fg`.

    A `make` above the workbench belongs to the same job, and the shell waits for it. SIGTSTP keeps its default action,
    which does nothing if no shell could continue the job (a tmux pane that runs only the workbench).
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)
