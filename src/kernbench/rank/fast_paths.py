"""The table of fused kernels that exist already, and what it says about a function of a recording."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.taskfile.values import TaskError, count, known_keys, tables, text, toml
from kernbench.rank.recording import Tensor

FILE = "fast_paths.toml"
SHIPPED = Path(__file__).with_name(FILE)
KEYS = frozenset(("name", "project", "entry", "wired", "functions", "ran", "size"))
SIZE_KEYS = frozenset(("name", "one_of", "multiple_of", "at_most", "at_most_bytes"))
MOST = 1 << 31
RAN, SHOULD, NEEDS_GPU, NONE = "ran", "should have run", "needs a GPU", "none known"


@dataclass(frozen=True)
class Size:
    """A condition on the last extent of a tensor."""

    name: str
    one_of: tuple[int, ...] = ()
    multiple_of: int = 1
    at_most: int = MOST
    at_most_bytes: int = MOST

    def holds(self, extent: int, item_bytes: int) -> bool:
        fits = extent <= self.at_most and extent * item_bytes <= self.at_most_bytes
        return fits and extent % self.multiple_of == 0 and (not self.one_of or extent in self.one_of)

    def __str__(self) -> str:
        parts = [f"one of {fmt.joined([str(one) for one in self.one_of], 'or')}"] if self.one_of else []
        parts += [f"a multiple of {self.multiple_of}"] if self.multiple_of > 1 else []
        parts += [f"at most {self.at_most}"] if self.at_most < MOST else []
        parts += [f"at most {self.at_most_bytes} bytes"] if self.at_most_bytes < MOST else []
        return fmt.joined(parts)


@dataclass(frozen=True)
class FastPath:
    name: str
    project: str
    entry: str
    wired: re.Pattern[str]
    functions: re.Pattern[str]
    ran: re.Pattern[str]
    size: Size | None = None


@dataclass(frozen=True)
class Verdict:
    """`text` is the column, `detail` what the column has no room for."""

    text: str = NONE
    path: str = ""
    detail: str = ""


def load(places: Sequence[Path]) -> list[FastPath]:
    """The tables at these places and the shipped one; of two paths with the same name, the first counts."""
    found: dict[str, FastPath] = {}
    for place in (*places, SHIPPED):
        if place.is_file():
            for path in read(place):
                found.setdefault(path.name, path)
    return list(found.values())


def read(file: Path) -> list[FastPath]:
    data = toml(file)
    known_keys(file, "", data, frozenset(("path",)))
    found = []
    for item in tables(file, "path", data.get("path", [])):
        known_keys(file, "path", item, KEYS)
        name, project, entry = (text(file, f"path.{key}", item.get(key)) for key in ("name", "project", "entry"))
        given = {"wired": ".", **item}  # by default wherever a function has the name
        wired, functions, ran = (_pattern(file, f"path.{key}", given.get(key)) for key in ("wired", "functions", "ran"))
        found.append(FastPath(name, project, entry, wired, functions, ran, _size(file, item.get("size"))))
    return found


def _pattern(file: Path, key: str, value: Any) -> re.Pattern[str]:
    try:
        return re.compile(text(file, key, value))
    except re.error as problem:
        raise TaskError(file, key, f"not a regular expression: {problem}") from None


def _size(file: Path, value: Any) -> Size | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TaskError(file, "path.size", 'must be a table, such as { name = "head_dim", one_of = [64, 128] }')
    known_keys(file, "path.size", value, SIZE_KEYS)
    choices = value.get("one_of", [])
    if not isinstance(choices, list):
        raise TaskError(file, "path.size.one_of", "must be a list of integers")
    return Size(
        text(file, "path.size.name", value.get("name")),
        tuple(count(file, "path.size.one_of", one, MOST) for one in choices),
        count(file, "path.size.multiple_of", value.get("multiple_of", 1), MOST),
        count(file, "path.size.at_most", value.get("at_most", MOST), MOST),
        count(file, "path.size.at_most_bytes", value.get("at_most_bytes", MOST), MOST),
    )


def judge(
    paths: Sequence[FastPath], site: str, kernels: Collection[str], largest: Tensor, on_gpu: bool = True
) -> Verdict:
    """About a function, its kernels and its largest tensor."""
    for path in paths:
        if any(path.ran.search(name) for name in (site, *kernels)):
            return Verdict(RAN, path.name, f"{path.project}: {path.entry}")
    for path in paths:
        if not path.functions.search(site):
            continue
        detail = f"{path.project}: {path.entry}"
        if not on_gpu:
            return Verdict(NEEDS_GPU, path.name, detail)
        word = SHOULD if path.wired.search(site) else f"only in {path.project}"
        if path.size is None or (largest.dims and path.size.holds(largest.dims[-1], largest.item_bytes)):
            return Verdict(word, path.name, detail)
        extent = str(largest.dims[-1]) if largest.dims else "not recorded"
        return Verdict(
            f"{word}: {path.size.name} {extent}", path.name, f"{detail}; {path.size.name} has to be {path.size}"
        )
    return Verdict()
