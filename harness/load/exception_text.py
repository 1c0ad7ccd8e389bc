"""Reads the text of any exception, however hostile: whatever a source raises becomes bounded, printable text.

An exception is an object of the user's: its `__str__`, `__repr__`, `__class__` and attributes may raise, return
another type, or return 200 MB. Nothing here raises, and nothing here is longer than asked.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

LONGEST = 400
"""Longer sentences are cut; the traceback contains more."""
MOST_READ = 100_000
"""Characters of a message that are read at all."""
LONGEST_TRACEBACK = 64_000
_name_of_class = type.__dict__["__name__"].__get__
_trace_of = BaseException.__dict__["__traceback__"].__get__


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text as one printable line; escapes, newlines and lone surrogates are spelled out."""
    text = text[: longest + 1].replace("\t", " ")
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def class_name(thing: object) -> str:
    """The name of its class, read past any metaclass."""
    return one_line(_name_of_class(type(thing)), 100) or "a class without a name"


def trace_of(problem: BaseException) -> TracebackType | None:
    """Its traceback, read past anything its class defines."""
    trace: TracebackType | None = _trace_of(problem)
    return trace


def attribute(thing: object, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    """An attribute of this type, or the default; a property or `__getattr__` may raise.

    A subclass of str or int is reduced to plain text or a plain number: its methods may raise. Bytes become text.
    """
    try:
        found = getattr(thing, name, default)
    except BaseException:
        return default
    if not issubclass(type(found), kind):
        return default
    if issubclass(type(found), bytes):
        return bytes.__getitem__(found, slice(MOST_READ)).decode(errors="replace")
    if issubclass(type(found), str):
        return str.__getitem__(found, slice(MOST_READ))
    return int.__add__(found, 0) if issubclass(type(found), int) else found


def written(value: object, representation: bool = False) -> str | None:
    """Head and tail of str() or repr() of anything; None if that raises."""
    try:
        text = repr(value) if representation else str(value)
        if str.__len__(text) <= MOST_READ:
            return str.__getitem__(text, slice(None))  # a subclass of str may have methods that raise
        half = MOST_READ // 2
        return f"{str.__getitem__(text, slice(half))}\n...\n{str.__getitem__(text, slice(-half, None))}"
    except BaseException:
        return None


def full_text(problem: BaseException, trace: TracebackType | None) -> str:
    """The traceback as Python prints it, without the middle of a long one."""
    try:
        message = str(problem)
        whole = str.__len__(message) <= MOST_READ
    except BaseException:
        whole = False
    try:
        if whole:
            text = "".join(traceback.format_exception(type(problem), problem, trace))
        else:
            frames = "".join(traceback.format_tb(trace))
            text = f"Traceback (most recent call last):\n{frames}{class_name(problem)}: {written(problem) or ''}\n"
    except BaseException:  # of its notes, its cause or its class
        text = class_name(problem)
    if len(text) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n  ... {len(text) - 2 * half} more characters ...\n{text[-half:]}"
    return encodable(text)
