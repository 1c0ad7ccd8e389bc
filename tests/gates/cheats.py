"""All cheats, in the order of their classes."""

from __future__ import annotations

from tests.gates import (
    caches,
    inputs,
    judge,
    kept_results,
    left_for_later,
    meter,
    numeric_range,
    opponent,
    taken_answers,
    task_files,
    timed_apart,
    wire,
)
from tests.gates.record import CLASSES, Cheat

FILES = (timed_apart, kept_results, taken_answers, judge, meter, wire, opponent, caches, left_for_later, task_files,
         numeric_range, inputs)  # fmt: skip
CHEATS: list[Cheat] = sorted(
    (cheat for file in FILES for cheat in file.CHEATS), key=lambda cheat: list(CLASSES).index(cheat.group)
)
