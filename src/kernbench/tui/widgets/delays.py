"""Call something later, for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.message_pump import MessagePump


def call_after(seconds: float, pump: MessagePump, callback: Callable[[], object]) -> None:
    """Like Textual's set_timer, which never calls back if the machine stalls just as the timer starts."""
    asyncio.get_running_loop().call_later(seconds, pump.call_next, callback)
