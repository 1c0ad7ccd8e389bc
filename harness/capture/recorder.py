"""One site: what every call of it got, grouped by form, with counts and time.

The first call of a form is read in full; later ones are only counted and timed. On a GPU a call is timed by two events
on its stream, which are read later, so that nothing waits.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .described import Describer, statistics, tensors

MOST_FORMS = 48
"""Of one site. A number that is another in every call would make a form of each."""
MOST_WAITING = 512
"""Pairs of events that are not read yet."""


@dataclass
class Form:
    arguments: list[dict[str, Any]]
    calls: int = 0
    timed: int = 0
    ms: float = 0.0
    """Of the timed calls: all but the first, which may have to load or compile something."""
    first_ms: float = 0.0
    mutates: list[str] = field(default_factory=list)
    aliases: list[list[str]] = field(default_factory=list)
    """Arguments that share memory."""
    same: list[list[str]] = field(default_factory=list)
    """Arguments that are one and the same tensor."""
    result: dict[str, Any] = field(default_factory=dict)
    is_random: bool = False
    """Whether the first call drew random numbers."""

    def add(self, ms: float, is_first: bool) -> None:
        if is_first:
            self.first_ms = ms
        else:
            self.timed, self.ms = self.timed + 1, self.ms + ms

    def plain(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class _Call:
    form: Form
    before: list[tuple[str, Any, int, dict[str, Any]]] = field(default_factory=list)
    """Of the first call of a form: its tensors, as they were."""
    random: list[Any] = field(default_factory=list)

    def conclude(self, torch: Any, on_gpu: bool, result: Any) -> None:
        """What the first call of a form did."""
        if not self.random:
            return
        self.form.mutates = [
            path
            for path, tensor, version, values in self.before
            if _version(tensor) != version or statistics(torch, tensor) != values
        ]
        self.form.result = Describer(torch, values=False).of(result)
        self.form.is_random = not all(map(torch.equal, self.random, _random_state(torch, on_gpu)))


class Recorder:
    """Takes a site's place. `changed` is called after every call that was recorded."""

    def __init__(self, site: str, original: Callable[..., Any], drop_first: bool, changed: Callable[[], None]) -> None:
        self.site, self._original, self._drop_first, self._changed = site, original, drop_first, changed
        self._signature = signature(original)
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._keys: dict[int, tuple[Any, str]] = {}
        self._waiting: list[tuple[Form, bool, Any, Any]] = []
        self.problem = ""
        self.forget()

    def forget(self) -> None:
        self.forms: dict[str, Form] = {}
        self.left_out = self.in_graphs = 0
        self._waiting.clear()

    def wrapper(self) -> Callable[..., Any]:
        original = self._original

        @functools.wraps(original)
        def call(*args: Any, **named: Any) -> Any:
            torch = sys.modules.get("torch")
            if torch is None or torch.compiler.is_compiling() or getattr(self._inside, "busy", False):
                return original(*args, **named)
            self._inside.busy = True
            try:
                return self._record(torch, args, named)
            finally:
                self._inside.busy = False

        for name in dir(original):  # an operator's overloads and methods; functions have none
            if not name.startswith("_"):
                setattr(call, name, getattr(original, name))
        return call

    def _record(self, torch: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        on_gpu = torch.cuda.is_initialized()
        if on_gpu and torch.cuda.is_current_stream_capturing():
            self.in_graphs += 1
            return self._original(*args, **named)
        try:
            first = self._described(torch, on_gpu, args, named)
        except Exception as problem:  # the program's call must go on
            self.problem = f"a call could not be described: {type(problem).__name__}: {problem}"
            first = None
        if first is None:
            return self._original(*args, **named)
        try:
            result = self._timed(torch, first.form, on_gpu, args, named)
        finally:
            if not first.form.calls:  # it failed: the next call of this form is the first
                self.forms = {key: form for key, form in self.forms.items() if form is not first.form}
        with contextlib.suppress(Exception):
            first.conclude(torch, on_gpu, result)
            self._changed()
        return result

    def _described(self, torch: Any, on_gpu: bool, args: tuple[Any, ...], named: dict[str, Any]) -> _Call | None:
        """None if the call is of a form beyond the most that are kept."""
        arguments = self._arguments(args, named)
        with self._lock:
            key = json.dumps([[name, flag, self._key(torch, value)] for name, flag, value in arguments])
            if key in self.forms:
                return _Call(self.forms[key])
            if len(self.forms) >= MOST_FORMS:
                self.left_out += 1
                return None
            form = self._new(torch, arguments)
            call = _Call(form)
            for name, _flag, value in arguments:
                for path, tensor in tensors(name, value, torch):
                    call.before.append((path, tensor, _version(tensor), statistics(torch, tensor)))
            call.random = _random_state(torch, on_gpu)
            self.forms[key] = form
        return call

    def _timed(self, torch: Any, form: Form, on_gpu: bool, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        start = stop = None
        if on_gpu:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
        began = time.perf_counter()
        result = self._original(*args, **named)
        took = (time.perf_counter() - began) * 1e3
        if stop is not None:
            stop.record()
        with self._lock:
            form.calls += 1
            is_first = form.calls == 1
            if stop is None:
                form.add(took, is_first)
            else:
                self._waiting.append((form, is_first, start, stop))
        if len(self._waiting) >= MOST_WAITING:
            self.settle()
        return result

    def settle(self) -> None:
        """Reads the events of calls that have ended, and waits for the last of them."""
        with self._lock, contextlib.suppress(RuntimeError):  # a context that is gone
            waiting, self._waiting = self._waiting, []
            for form, is_first, start, stop in waiting:
                stop.synchronize()
                form.add(start.elapsed_time(stop), is_first)

    def _arguments(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[tuple[str, bool, Any]]:
        """Name, whether it has to be passed by position, and value; defaults count as passed."""
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        kinds = {name: item.kind for name, item in self._signature.parameters.items()}
        has_rest = inspect.Parameter.VAR_POSITIONAL in kinds.values() and any(
            bound.arguments.get(name) for name, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL
        )
        found: list[tuple[str, bool, Any]] = []
        for name, value in list(bound.arguments.items())[1 if self._drop_first else 0 :]:
            if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                found += [(f"{name}_{index}", True, item) for index, item in enumerate(value)]
            elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
                found += [(key, False, item) for key, item in value.items()]
            else:
                usual = kinds[name] is inspect.Parameter.POSITIONAL_OR_KEYWORD
                found.append((name, kinds[name] is inspect.Parameter.POSITIONAL_ONLY or (usual and has_rest), value))
        return found

    def _key(self, torch: Any, value: Any) -> Any:
        """Its form; that of an object is kept, because a module can have hundreds of weights."""
        if type(value).__module__ == "builtins" or isinstance(value, torch.Tensor):
            return Describer(torch, values=False).of(value)
        known = self._keys.get(id(value))
        if known is None or known[0]() is not value:
            try:
                reference = weakref.ref(value)
            except TypeError:
                return Describer(torch, values=False).of(value)
            known = self._keys[id(value)] = reference, json.dumps(Describer(torch, values=False).of(value))
        return known[1]

    def _new(self, torch: Any, arguments: list[tuple[str, bool, Any]]) -> Form:
        described = [
            {"name": name, "by_position": flag, "value": Describer(torch, values=True).of(value)}
            for name, flag, value in arguments
        ]
        shared: dict[Any, list[str]] = {}
        same: dict[Any, list[str]] = {}
        for name, _flag, value in arguments:
            for path, tensor in tensors(name, value, torch):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # a tensor without memory
                    shared.setdefault(tensor.untyped_storage().data_ptr(), []).append(path)
                    same.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), []).append(path)
        several = [[names for names in groups.values() if len(names) > 1] for groups in (shared, same)]
        return Form(described, aliases=several[0], same=several[1])


def signature(original: Callable[..., Any]) -> inspect.Signature:
    """Of a function, or an operator's by its schema."""
    schema = schema_of(original)
    if schema is None:
        return inspect.signature(original)
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(
                item.name,
                kinds[item.kwarg_only],
                default=item.default_value if item.has_default_value() else inspect.Parameter.empty,
            )
            for item in schema.arguments
        ]
    )


def schema_of(original: Any) -> Any:
    """Of an operator: torch.ops.LIBRARY.NAME, one of its overloads, or what torch.library.custom_op makes."""
    for name in ("_opoverload", "default"):
        original = getattr(original, name, original)
    return getattr(original, "_schema", None)


def _version(tensor: Any) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # made in inference mode: only its values can tell
        return 0


def _random_state(torch: Any, on_gpu: bool) -> list[Any]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if on_gpu else [])]
