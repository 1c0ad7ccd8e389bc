"""The variants of a sweep: the source as it is, and one per combination of values, or one per file of a folder."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.regular_file import read_bytes
from harness.shared.task import Task
from harness.shared.used_files import CODE, LARGEST_FILE
from kernbench.sweep import constants
from kernbench.task import snapshot

NOW = "as it is"
MOST = 512
"""Variants of one sweep; `--sample` takes some of more."""


@dataclass(frozen=True)
class Setting:
    """`--set NAME=a,b,c`."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Setting:
        name, equals, rest = text.partition("=")
        values = tuple(dict.fromkeys(part for value in _split(rest) if (part := value.strip())))
        if not equals or not re.fullmatch(r"[^\W\d]\w*", name) or not values:
            raise UserError(f"--set {text}: expected NAME=VALUE,VALUE, such as BLOCK=64,128,256")
        return cls(name, values)

    def __str__(self) -> str:
        return f"{self.name}={','.join(self.values)}"


def _split(text: str) -> Iterable[str]:
    """At commas that are not in brackets: `(1, 2), (2, 4)` is two values."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


@dataclass(frozen=True)
class Variant:
    name: str
    """Unique in its sweep, such as `BLOCK=64 num_warps=4`."""
    values: tuple[str, ...]
    """Of the constants, in their order; the file's name if the variants are files."""
    contents: Mapping[str, bytes]
    """All files of the source."""
    is_now: bool = False

    def stored(self, state: Path, task: Task) -> snapshot.Source:
        return snapshot.keep(self.contents, state, task)


def of_constants(
    contents: Mapping[str, bytes], task: Task, settings: Sequence[Setting], sample: int | None = None
) -> list[Variant]:
    """The source as it is, then every combination of values, or `sample` of them; the same ones every time."""
    names = [setting.name for setting in settings]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--set {twice} is given twice; give all its values in one: --set {twice}=A,B,C")
    files = {name: contents[name] for name in snapshot.code_files(contents, task.files)}
    places = [constants.find(setting.name, files) for setting in settings]
    every = math.prod(len(setting.values) for setting in settings)
    if sample is None and every > MOST:
        raise UserError(f"{every} variants are too many; `--sample 64` takes 64 of them, the same ones every time")
    count = min(every, sample or every)
    chosen: Iterable[int] = range(every) if count == every else sorted(random.Random(0).sample(range(every), count))
    now = Variant(NOW, tuple(place.text for place in places), contents, is_now=True)
    found = [now]
    for number in chosen:
        values = _combination(number, [setting.values for setting in settings])
        own = constants.replaced(contents, list(zip(places, values, strict=True)))
        name = " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        found.append(Variant(name, values, own))
    return _distinct(found)


def _combination(number: int, values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One of the product, by its number; the last constant changes first."""
    chosen = []
    for options in reversed(values):
        number, place = divmod(number, len(options))
        chosen.append(options[place])
    return tuple(reversed(chosen))


def of_folder(contents: Mapping[str, bytes], task: Task, folder: Path) -> list[Variant]:
    """The source as it is, then one variant per file of the folder, which takes the place of the solution's file of
    the same kind."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in CODE and not path.name.startswith("."))
    if not paths:
        raise UserError(f"{folder} has no variants: put one .py, .cpp or .cu file per variant there")
    if len(paths) > MOST:
        raise UserError(f"{folder} has {len(paths)} files; a sweep takes {MOST} at most")
    names = snapshot.code_files(contents, task.files)
    found = [Variant(NOW, (NOW,), contents, is_now=True)]
    for path in paths:
        own = {**contents, _place_of(path, names): read_bytes(path, LARGEST_FILE)}
        found.append(Variant(path.name, (path.name,), own))
    return _distinct(found)


def _place_of(path: Path, names: Iterable[str]) -> str:
    alike = sorted(name for name in names if Path(name).suffix == path.suffix)
    for wanted in (path.name, f"solution{path.suffix}"):
        if wanted in alike:
            return wanted
    if len(alike) == 1:
        return alike[0]
    having = f"{fmt.joined(alike)}, none of them called solution{path.suffix}" if alike else f"no {path.suffix} file"
    raise UserError(f"{path}: which file does it replace? The solution has {having}")


def _distinct(variants: Sequence[Variant]) -> list[Variant]:
    """Without those whose files another one has; the source as it is keeps the values that the sweep gives it."""
    found: list[Variant] = []
    for variant in variants:
        same = next((place for place, other in enumerate(found) if other.contents == variant.contents), None)
        if same is None:
            found.append(variant)
        elif found[same].is_now:
            found[same] = Variant(NOW, variant.values, variant.contents, is_now=True)
    return found
