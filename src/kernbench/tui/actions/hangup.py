"""Detects a closed terminal."""

from __future__ import annotations

import select


def is_dead(descriptor: int) -> bool:
    """Whether the other end of the terminal is closed: a lost connection or a closed window."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # poll always reports a hang-up
    return any(events & (select.POLLHUP | select.POLLNVAL) for _, events in poll.poll(0))
