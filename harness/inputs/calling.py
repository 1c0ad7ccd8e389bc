"""How a case calls an entry: with its arguments in their own structure and, if the task has `setup`, its state first.

Every side is called by the same code, so all of them pay the same. Arguments are put together before a call is timed.
If an entry is a class, `setup` makes an instance of it, which is called with the arguments in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.inputs.structure import Build

NO_STATE: Any = object()


class CaseEntry:
    """An entry of a task with nested arguments or `setup`; takes flat inputs by name."""

    def __init__(self, function: Callable[..., Any], build: Build | None, state: Any = NO_STATE) -> None:
        self._function, self._build = function, build
        self._first = () if state is NO_STATE else (state,)

    def __call__(self, **inputs: Any) -> Any:
        return self.bound(inputs)()

    def bound(self, inputs: dict[str, Any]) -> Callable[[], Any]:
        """The call, with nothing left to put together."""
        function, first = self._function, self._first
        arguments = inputs if self._build is None else self._build(inputs)
        if isinstance(function, type) and first:
            made, values = first[0], tuple(arguments.values())
            return lambda: made(*values)
        return (lambda: function(*first, **arguments)) if first else bound(function, arguments)


def bound(function: Callable[..., Any], inputs: dict[str, Any]) -> Callable[[], Any]:
    """A call of any side with these inputs."""
    return function.bound(inputs) if isinstance(function, CaseEntry) else lambda: function(**inputs)
