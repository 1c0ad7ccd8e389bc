"""Values from a user's TOML or JSON file, each checked; every error names the file and the key.

Sizes, depths and counts are limited, and only regular files are opened, so that no file can block its reader.
"""

from __future__ import annotations

import json
import re
import reprlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.used_files import LARGEST_FILE

DEEPEST = 20
LONGEST_SENTENCE = 400
LEAST_POSITIVE, MOST_POSITIVE = 1e-9, 1e9
"""Within these, sums and products of a table's numbers neither overflow nor vanish."""
LARGEST_TOML = 1 << 18
"""Python's parser reads about 0.7 MB a second."""
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){40}""")
"""Python's parser needs 30 s for `a.a.a` with 32,000 parts."""
_DIGITS = re.compile(r"[0-9_]{4301,}")
"""More digits than Python converts."""
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80


class TaskError(UserError):
    """An unusable task: one sentence with file and key."""

    def __init__(self, file: Path, key: str, problem: str) -> None:
        key, problem = one_line(key), one_line(problem)
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file, self.key, self.problem = file, key, problem


def one_line(text: str) -> str:
    """Text from a user's file, escaped and shortened; the end stays, because it has the line number."""
    if len(text) > LONGEST_SENTENCE:
        text = f"{text[: LONGEST_SENTENCE // 2]} ... {text[-LONGEST_SENTENCE // 4 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: Any) -> str:
    """A value from a user's file as Python writes it, shortened."""
    return _repr.repr(value)


def toml(path: Path, missing: str = "no such file") -> dict[str, Any]:
    """A whole TOML file; everything in it is text, numbers below 2^64, dates, and lists and tables of these."""
    text = file_text(path, missing, LARGEST_TOML)
    if found := _LONG_KEY.search(text):
        raise TaskError(path, _line(text, found), f"nested too deeply; use at most {DEEPEST} levels")
    return cast(dict[str, Any], parsed(path, text, tomllib.loads, "TOML"))


def _line(text: str, found: re.Match[str] | None) -> str:
    return f"line {text.count(chr(10), 0, found.start()) + 1}" if found else ""


def parsed(path: Path, text: str, parse: Callable[[str], Any], language: str) -> Any:
    try:
        data = parse(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as problem:
        raise TaskError(path, "", f"not valid {language}: {problem}") from None
    except RecursionError:
        raise TaskError(path, "", f"nested too deeply; use at most {DEEPEST} levels") from None
    except ValueError:  # the limit on digits is the only other reason
        place = _line(text, _DIGITS.search(text))
        raise TaskError(path, place, "a number has too many digits; use one below 2^64") from None
    _check_values(path, "", data)
    return data


def file_text(path: Path, missing: str, limit: int = LARGEST_FILE) -> str:
    try:
        return file_bytes(path, missing, limit).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise TaskError(path, "", f"not UTF-8 (byte {problem.start}): {problem.reason}") from None


def file_bytes(path: Path, missing: str, limit: int = LARGEST_FILE) -> bytes:
    try:
        return read_bytes(path, limit)
    except NotRegular as problem:
        raise TaskError(path, "", str(problem).removeprefix(f"{path} ").removeprefix("is ")) from None
    except FileNotFoundError:
        raise TaskError(path, "", missing) from None
    except OSError as problem:
        raise TaskError(path, "", f"cannot be read: {problem.strerror}") from None


def _check_values(path: Path, key: str, value: Any, depth: int = 0) -> None:
    """Refuses what cannot be written again, as JSON or on a screen, wherever in the file it is."""
    if depth > DEEPEST:
        raise TaskError(path, key, f"nested too deeply; use at most {DEEPEST} levels")
    if isinstance(value, dict):
        for name, item in value.items():
            place = f"{key}.{name}" if key else name
            _check_values(path, place, name, depth)
            _check_values(path, place, item, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_values(path, f"{key}[{index}]", item, depth + 1)
    elif isinstance(value, int) and value.bit_length() > 64:
        raise TaskError(path, key, "an integer of more than 64 bits; use a smaller one")
    elif isinstance(value, str) and not is_text(value):
        raise TaskError(path, key, f"{shown(value)} contains a lone surrogate, which is not text")


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_data(path: Path, key: str, data: Any) -> None:
    """Cases are sent as JSON, so report what JSON cannot represent (a TOML date, a NaN)."""
    for name, value in data.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            problem = "contains a date or another value that JSON cannot represent; use text, numbers, lists and tables"
            raise TaskError(path, f"{key}.{name}", problem) from None


def known_keys(path: Path, key: str, data: dict[str, Any], known: frozenset[str]) -> None:
    for name in data:
        if name not in known:
            place = f"{key}.{name}" if key else name
            raise TaskError(path, place, f"unknown key; the known keys are {', '.join(sorted(known))}")


def tables(path: Path, key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        wanted = f"must be written as [[{key}]] tables" if key else "must be a list of objects"
        raise TaskError(path, key, wanted)
    return value


def text(path: Path, key: str, value: Any) -> str:
    if value is None:
        raise TaskError(path, key, "missing")
    is_line = isinstance(value, str) and is_text(value) and value.splitlines() in ([], [value])
    if not is_line or (not value and not key.endswith("summary")):
        raise TaskError(path, key, f"must be a single-line string, not {shown(value)}")
    assert isinstance(value, str)
    return value


def texts(path: Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TaskError(path, key, "must be a list of strings")
    return tuple(text(path, key, item) for item in value)


def choice(path: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise TaskError(path, key, f"{shown(value)} is not one of {', '.join(allowed)}")
    return str(value)


def flag(path: Path, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TaskError(path, key, f"must be true or false, not {shown(value)}")
    return value


def count(path: Path, key: str, value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise TaskError(path, key, f"must be an integer from 1 to {most}, not {shown(value)}")
    return value


def positive(path: Path, key: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not LEAST_POSITIVE <= value <= MOST_POSITIVE:
        limits = f"{fmt.plain(LEAST_POSITIVE)} to {fmt.plain(MOST_POSITIVE)}"
        raise TaskError(path, key, f"must be a number from {limits}, not {shown(value)}")
    return float(value)
