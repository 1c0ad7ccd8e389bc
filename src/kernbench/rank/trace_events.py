"""Reads the events of a Chrome trace one by one, so that a trace of gigabytes needs no more memory than its events."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from harness.shared.errors import UserError

CHUNK = 1 << 20
MARK = '"traceEvents"'
LONGEST_EVENT = 64 << 20
_SIGN = re.compile(r"\S")


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Every object of the list `traceEvents`, or of a trace that is only this list."""
    with _opened(path) as file:
        try:
            yield from _Reader(path, file).objects()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
            raise UserError(f"{path} cannot be read: {problem}; is it a whole Chrome trace?") from None


def _opened(path: Path) -> IO[str]:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


class _Reader:
    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path, self._file = path, file
        self._text, self._at, self._before = "", 0, 0
        """What has been read, how far it was used, and how many characters came before it."""

    def objects(self) -> Iterator[dict[str, Any]]:
        self._find_list()
        decode = json.JSONDecoder().raw_decode
        while True:
            sign = self._next_sign()
            if not sign:
                raise self._unreadable(self._before + self._at, "the file ends inside the list of events")
            if sign == "]":
                return
            if sign == ",":
                self._at += 1
                continue
            try:
                value, self._at = decode(self._text, self._at)
            except json.JSONDecodeError as problem:
                place = self._before + problem.pos
                if len(self._text) - self._at > LONGEST_EVENT or not self._more():
                    raise self._unreadable(place, problem.msg) from None
                continue
            if isinstance(value, dict):
                yield value

    def _find_list(self) -> None:
        if self._next_sign() == "[":
            self._at += 1
            return
        for wanted in (MARK, "["):
            while (begin := self._text.find(wanted, self._at)) < 0:
                self._at = max(self._at, len(self._text) - len(wanted) + 1)
                if not self._more():
                    raise UserError(
                        f"{self._path} has no {MARK}: it is not a Chrome trace, as torch.profiler writes it"
                    )
            self._at = begin + len(wanted)

    def _next_sign(self) -> str:
        """Empty at the end of the file."""
        while (sign := _SIGN.search(self._text, self._at)) is None:
            self._at = len(self._text)
            if not self._more():
                return ""
        self._at = sign.start()
        return sign[0]

    def _more(self) -> bool:
        """Twice as much for every new try, so that a long event is not decoded once per chunk."""
        chunk = self._file.read(max(CHUNK, len(self._text) - self._at))
        self._before += self._at
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def _unreadable(self, at: int, problem: str) -> UserError:
        return UserError(f"{self._path} cannot be read at character {at}: {problem}")
