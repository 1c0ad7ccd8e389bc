"""A closed terminal: how to tell, and how to end then.

Textual's thread for output dies with the terminal. What the screen still writes fills that thread's queue, and the
screen would wait for room in it forever. So a thread of ours watches the terminal. A terminal that closes also sends
SIGCONT, which must not make Textual resume.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

LOOK_S = 1.0
"""Between two looks. There may be no SIGHUP: under nohup, Textual would read end-of-file forever."""
PATIENCE_S = 15.0
"""For the worker to close and the log to be written."""
EXIT_CODE = 128 + signal.SIGHUP


def is_gone() -> bool:
    """Whether the terminal that this program reads from is closed."""
    return is_dead(sys.__stdin__.fileno() if sys.__stdin__ else -1)


def is_dead(descriptor: int) -> bool:
    """Whether the other end of the terminal is closed: a lost connection or a closed window."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # poll always reports a hang-up
    return any(events & (select.POLLHUP | select.POLLNVAL) for _, events in poll.poll(0))


def watch_terminal(on_gone: Callable[[], object]) -> None:
    """End the program soon after its terminal; `on_gone`, called from another thread, may end it sooner."""

    def look() -> None:
        while not is_gone():
            time.sleep(LOOK_S)
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the program is ending
            on_gone()
        time.sleep(PATIENCE_S)
        end_now()

    threading.Thread(target=look, daemon=True, name="hangup").start()
    resume = signal.getsignal(signal.SIGCONT)
    if callable(resume):  # Textual's
        signal.signal(signal.SIGCONT, lambda number, frame: None if is_gone() else resume(number, frame))


def end_now() -> None:
    """Once everything is closed and written, or has had its time."""
    os._exit(EXIT_CODE)
