"""Passes every event of a session to its listeners, in the order they were added.

A listener that raises, such as one that prints to a full disk, is removed; the run continues and is logged. Its error
is kept for the caller that waits for the session, and the session is asked to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kernbench.events import Event

Listener = Callable[[Event], None]


class Listeners:
    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._listeners: list[Listener] = []
        self._failure: Exception | None = None
        """The first error that a listener raised."""

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as problem:
                self._listeners.remove(listener)
                self._failure = self._failure or problem
                self._stop.set()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
