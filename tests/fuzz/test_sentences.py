"""Whatever a source raises becomes one printable, bounded line, and describing it never raises."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from harness.load.exception_text import LONGEST, LONGEST_TRACEBACK, MOST_READ
from harness.load.failure import Failure, Paths, describe
from harness.load.interpreter import lacks
from harness.shared.lines import encode

CASES = int(os.environ.get("KERNBENCH_FUZZ", "150"))
often = settings(max_examples=CASES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
PATHS = Paths("/task", "/snapshot")
TEXT = some.text(some.characters(codec=None) | some.sampled_from("\n\r\x1b\x9b\x00\u2028\u202e\ud800"), max_size=600)
"""Lone surrogates, escapes and newlines more often than chance would have them."""


def is_a_sentence(text: str) -> bool:
    return 0 < len(text) <= LONGEST and text.isprintable()


def checked(problem: BaseException) -> Failure:
    """Describes it as a row does, and checks that it can go on the wire."""
    lacks(problem)
    fault = describe(problem, PATHS)
    assert is_a_sentence(fault.message), fault.message
    assert len(fault.traceback) <= LONGEST_TRACEBACK + MOST_READ + 100
    if fault.where is not None:
        assert is_a_sentence(fault.where.file or "empty")
        assert is_a_sentence(fault.where.text or "empty")
    json.loads(encode("failed", where=fault.where, message=fault.message, traceback=fault.traceback).encode())
    return fault


def raised(problem: BaseException) -> BaseException:
    try:
        raise problem
    except BaseException as caught:
        return caught


def lie(kind: str, text: str) -> Any:
    """A value that raises, has another type, or is a text whose methods raise."""

    class Text(str):
        def __len__(self) -> int:
            raise ValueError(text)

        splitlines = strip = encode = replace = __getitem__ = __iter__ = __eq__ = __len__  # type: ignore[assignment]
        __hash__ = str.__hash__

    return {"text": text, "subclass": Text(text), "number": 10**5000, "none": None, "list": [text]}[kind]


KINDS = some.sampled_from(("raise", "exit", "text", "subclass", "number", "none", "list"))
NAMES = ("__str__", "__repr__", "__class__", "__cause__", "__context__", "__notes__", "__traceback__", "__module__")
MORE = (
    "args",
    "node",
    "src",
    "file",
    "line",
    "output",
    "code",
    "msg",
    "text",
    "filename",
    "lineno",
    "__suppress_context__",
)
BASES = (Exception, SyntaxError, SystemExit, TypeError, UnicodeDecodeError, KeyError, OSError, KeyboardInterrupt)


def hostile(base: type, name: str, lies: dict[str, str], text: str) -> type[BaseException]:
    """A class of this name whose attributes answer as `lies` says."""

    def answer(kind: str) -> Any:
        if kind == "raise":
            raise ValueError(text)
        if kind == "exit":
            raise SystemExit(text)
        return lie(kind, text)

    members: dict[str, Any] = {}
    for key, kind in lies.items():
        if key in ("__str__", "__repr__"):
            members[key] = lambda self, kind=kind: answer(kind)
        else:
            members[key] = property(lambda self, kind=kind: answer(kind))
    made = type("Hostile", (base,), members)
    made.__name__ = name.replace("\0", "0").encode(errors="replace").decode()
    return made


@often
@given(TEXT)
def test_any_message_is_one_printable_line(text: str) -> None:
    for problem in (RuntimeError(text), SystemExit(text), SyntaxError(text), KeyError(text), Exception(text, text)):
        checked(raised(problem))


@often
@given(some.sampled_from(BASES), TEXT, some.dictionaries(some.sampled_from(NAMES + MORE), KINDS, max_size=6), TEXT)
def test_an_exception_that_lies_about_itself_is_still_described(
    base: type, name: str, lies: dict[str, str], text: str
) -> None:
    made = hostile(base, name, lies, text)
    problem = made.__new__(made, *(("utf-8", b"x", 0, 1, text) if base is UnicodeDecodeError else (text,)))
    checked(problem)
    for index, key in enumerate(lies):
        if not key.startswith("__"):
            continue
        other = RuntimeError(text)
        other.__cause__ = problem
        other.add_note(text) if index else None
        checked(raised(other))


@settings(often, max_examples=max(CASES // 10, 10))
@given(some.text(max_size=20), some.sampled_from(("message", "note", "exit", "name", "group")))
def test_a_huge_text_is_cut(text: str, place: str) -> None:
    huge = (text or "x") * (LONGEST_TRACEBACK // len(text or "x") + MOST_READ)
    problem: BaseException = RuntimeError("short")
    if place == "message":
        problem = RuntimeError(huge)
    elif place == "exit":
        problem = SystemExit(huge)
    elif place == "name":
        problem = type(huge.replace("\0", "0").encode(errors="replace").decode(), (Exception,), {})()
    elif place == "group":
        problem = ExceptionGroup(huge, [ValueError(huge)])
    else:
        problem.add_note(huge)
    checked(raised(problem))


def test_a_message_of_200_megabytes_costs_little_more_than_itself() -> None:
    import tracemalloc

    problem = raised(RuntimeError("x" * 200_000_000))
    tracemalloc.start()
    try:
        fault = checked(problem)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert fault.message.startswith("RuntimeError: xxx")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (RuntimeError("a\ud800b"), r"RuntimeError: a\ud800b"),
        (RuntimeError("red \x1b[31m text"), "RuntimeError: red  text"),
        (RuntimeError("bell \x07 rings"), r"RuntimeError: bell \x07 rings"),
        (type("Two\nLines", (Exception,), {})("first\nsecond"), r"Two\nLines: first"),
        (
            hostile(ValueError, "Mute", {"__str__": "raise"}, "x")(),
            "Mute, and its message cannot be read: __str__ raises",
        ),
        (SystemExit(hostile(ValueError, "Mute", {"__repr__": "raise"}, "x")()), "it called sys.exit(...)"),
    ],
)
def test_the_sentence_says_what_can_be_read(problem: BaseException, message: str) -> None:
    assert checked(problem).message == message
