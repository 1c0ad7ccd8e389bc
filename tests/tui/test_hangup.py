"""A terminal that is gone: the program ends, also while its screen waits for that terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

PROGRAM = """
import signal, sys, threading
from kernbench.tui.actions import hangup

hangup.LOOK_S, hangup.PATIENCE_S = 0.05, 0.5
signal.signal(signal.SIGHUP, signal.SIG_IGN)
resumed = threading.Event()
signal.signal(signal.SIGCONT, lambda number, frame: resumed.set())  # as Textual does
hangup.watch_terminal(lambda: print("gone", resumed.is_set(), file=sys.stderr, flush=True))
signal.raise_signal(signal.SIGCONT)
print("resumed", resumed.is_set(), file=sys.stderr, flush=True)
resumed.clear()
threading.Event().wait()
"""


def test_it_ends_although_it_waits_and_sigcont_resumes_nothing() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=theirs, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stderr is not None
        os.close(theirs)
        assert program.stderr.readline() == "resumed True\n"
        os.close(ours)
        program.send_signal(signal.SIGCONT)
        assert program.stderr.readline() == "gone False\n"
        assert program.wait(30) == 128 + signal.SIGHUP
