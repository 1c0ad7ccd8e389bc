"""Made-up contents of the files that users write: data that is nearly right, and right texts with pieces replaced.

KERNBENCH_FUZZ is the number of examples for each property, such as 20000 for an hour by hand.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from harness.shared.errors import UserError

LONGEST_S = 1.0
"""Of a processor: a busy machine makes no example fail."""
F = TypeVar("F", bound=Callable[..., None])

ODD_TEXT = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(), max_size=4),  # surrogates too
    st.sampled_from(
        ["", "\n", "\u2028", "\0", "\x1b[31m", "../..", "eager", "float32", "x" * 5000, "\ud800", "grid:a=1"]
    ),
)
NUMBERS = st.one_of(
    st.integers(-3, 300),
    st.integers(),
    st.sampled_from([10**19, 10**400, -(2**70)]),
    st.floats(),
    st.booleans(),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(NUMBERS, ODD_TEXT, st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ODD_TEXT, inner, max_size=3)),
    max_leaves=8,
)
ODD = [
    10**400,
    10**20,
    -1,
    float("nan"),
    float("inf"),
    True,
    "\ud800",
    "a\nb",
    "",
    [[1]],
    [],
    {},
    {"a": {"\ud800": []}},
]
"""Each has been a mistake that some reader did not expect."""
PIECES = st.one_of(
    st.text(max_size=5),
    st.sampled_from([*"[]{}\"'=.,#\\-\n\0", "[" * 2000, "a." * 300, "1" * 5000, "-" * 5000, '"""', "0x" + "f" * 5000]),
)


def fuzzed(examples: int) -> Callable[[F], F]:
    """The same examples every time, so many unless KERNBENCH_FUZZ says otherwise."""
    count = int(os.environ.get("KERNBENCH_FUZZ", examples))
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def places(data: Any) -> list[tuple[Any, ...]]:
    """The path to every value in the data, its own first."""
    items = list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    return [(), *((key, *path) for key, item in items for path in places(item))]


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = replaced(data[path[0]], path[1:], value)
    return copy


def nearly(data: Any) -> st.SearchStrategy[Any]:
    """Right data with one value replaced, or one value and one more key."""
    one = st.builds(replaced, st.just(data), st.sampled_from(places(data)), st.one_of(st.sampled_from(ODD), VALUES))
    more = st.builds(lambda made, key, value: {**made, key: value}, one.filter(_is_table), ODD_TEXT, VALUES)
    return st.one_of(one, one, more) if _is_table(data) else one


def _is_table(data: Any) -> bool:
    return isinstance(data, dict)


@st.composite
def spoiled(draw: st.DrawFn, text: str) -> str:
    """The text with up to three pieces of it replaced."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.sampled_from([0, 0, 1, 3, 20, 1000]))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


@contextmanager
def only_sentences() -> Iterator[list[UserError]]:
    """Lets a UserError pass, if its sentence is fit to be shown, and keeps it; takes no longer than a second."""
    began, kept = time.thread_time(), list[UserError]()
    try:
        yield kept
    except UserError as problem:
        kept.append(problem)
        said = str(problem)
        assert len(said.splitlines()) == 1
        assert said.isprintable(), said
        assert len(said) < 2000
        said.encode()
    assert time.thread_time() - began < LONGEST_S


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml_value(item)}" for key, item in value.items()) + "}"
    return "1979-05-27" if value is None else json.dumps(value) if isinstance(value, str) else repr(value)


def toml(data: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {toml_value(value)}\n" for key, value in data.items())


def write(path: Any, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
