"""Whether the terminal is still there."""

from __future__ import annotations

import select


def is_dead(descriptor: int) -> bool:
    """The other end of the terminal was closed: a lost connection, a window that is gone."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is always told
    return any(events & (select.POLLHUP | select.POLLNVAL) for _, events in poll.poll(0))
