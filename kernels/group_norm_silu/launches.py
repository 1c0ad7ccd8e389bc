"""Which kernel of solution.cu takes a form of x, with teams of which size.

The buckets are reasoned, not yet measured, from the sizes of an H200: 132 multiprocessors with 227 KiB of shared memory
and 256 KiB of registers each.
- `held`, a cluster per unit, while the clusters of all units run at the same time and hold x: up to 33 MB in 32 groups.
  Units up to 16 KiB take one block, whose barrier is cheaper than a cluster's.
- `ring` for what is larger: as many teams as can each keep a unit and the loads ahead of it, units up to about 22 MB.
- `twice` for the rest: larger units, and channels-last ones that would need slices narrower than a sector of 32 bytes.
Channels-last, slices are as wide as fits; `held` takes 64 bytes, or 32 where only these make units enough for the chip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

THREADS = 512
AHEAD = 6
"""Steps of 8 KiB that a block of `ring` and `twice` has under way: more than the 32 KiB that keep the memory busy."""
REGISTERS = (1, 2, 3, 4, 6, 8, 12, 16)
LARGEST_CLUSTER = 8
LARGEST_TEAM = 160
MOST_CHANNELS = 256
ONE_BLOCK = 16 * 1024 // 16
"""Vectors of a unit up to which a cluster does not pay."""
SMALL = 4 * 2**20 // 16
"""Vectors of x that need not fill the chip."""


class Chip(NamedTuple):
    blocks: int
    """Multiprocessors: the blocks of `ring` and `twice`."""
    shared: int
    """Bytes of shared memory that a block may have."""


class Launch(NamedTuple):
    kernel: str
    grid: int
    threads: int
    shared: int
    rest: tuple[int, ...]
    """Arguments after the pointers, but for eps, which is the last."""
    words: int = 0
    """Of 8 bytes, that the workspace needs; 0 where the kernel takes none."""


class Units(NamedTuple):
    """How x is cut, in vectors of 16 bytes."""

    layout: str
    number: int
    vectors: int
    """Of a unit."""
    groups: int
    slices: int
    """Units of a batch entry."""
    spatial: int = 1
    channels: int = 0
    width: int = 1
    row: int = 0
    batch: int = 0

    @property
    def place(self) -> tuple[int, ...]:
        return self.spatial, self.channels, self.row, self.batch

    def share(self, team: int) -> int:
        """Of a block: whole lines of memory, and whole positions."""
        grain = max(8, self.width)
        return math.ceil(self.vectors / (team * grain)) * grain


def choose(
    chip: Chip, kind: str, size: int, shape: tuple[int, ...], num_groups: int, channels_last: bool
) -> Launch | None:
    """For values of `size` bytes, which CUDA calls `kind`. None where vectors would straddle channels or groups."""
    cuts = list((_slices if channels_last else _groups)(size, shape, num_groups))
    if not cuts or cuts[0].vectors >= 2**30:
        return None
    return _held(chip, kind, cuts) or _ring(chip, kind, cuts) or _twice(chip, kind, cuts[0])


def _groups(size: int, shape: tuple[int, ...], num_groups: int) -> Iterator[Units]:
    channels = shape[1] // num_groups
    spatial, rest = divmod(math.prod(shape[2:]), 16 // size)
    if rest == 0 and spatial > 1:
        number = shape[0] * num_groups
        yield Units("Layout<0, 1, 1>", number, channels * spatial, 1, num_groups, spatial, channels)


def _slices(size: int, shape: tuple[int, ...], num_groups: int) -> Iterator[Units]:
    """Widest first, down to 32 bytes."""
    positions, group = math.prod(shape[2:]), shape[1] // num_groups * size
    each, within = max(1, group // 16), max(1, 16 // group)
    if each * 16 != group * within or within > 2:
        return
    row = shape[1] * size // 16
    for width in (32, 16, 8, 4, 2):
        if row % width == 0 and width % each == 0:
            layout, groups, slices = f"Layout<{width}, {each}, {within}>", width // each * within, row // width
            place = {"width": width, "row": row, "batch": positions * row}
            yield Units(layout, shape[0] * slices, positions * width, groups, slices, **place)


def _held(chip: Chip, kind: str, cuts: list[Units]) -> Launch | None:
    narrow = [cut for cut in cuts if cut.width <= 4 and cut.channels <= MOST_CHANNELS]
    full = [cut for cut in narrow if 4 * cut.number * _cluster(chip, cut) >= 3 * chip.blocks]
    small = [cut for cut in narrow if cut.number * cut.vectors <= SMALL]
    for cut in (full + small)[:1]:
        team = _cluster(chip, cut)
        share = cut.share(team)
        threads = min(THREADS, max(64, 1 << (share - 1).bit_length()))
        each = math.ceil(share / threads)
        registers = next((count for count in REGISTERS if count >= each), REGISTERS[-1])
        slots = max(0, each - registers)
        fixed = 12 * cut.groups * (threads // 32 + team) + 8 * MOST_CHANNELS
        if fixed + slots * threads * 16 <= chip.shared and cut.vectors * cut.spatial < 2**32:
            per_spatial = 2**32 // cut.spatial + 1 if cut.spatial > 1 else 0
            rest = (slots, cut.vectors, share, cut.slices, cut.spatial, per_spatial, *cut.place[1:])
            kernel = f"held<{kind}, {cut.layout}, {threads}, {team}, {registers}>"
            return Launch(kernel, cut.number * team, threads, slots * threads * 16, rest)
    return None


def _cluster(chip: Chip, cut: Units) -> int:
    """Blocks to a unit: as many as fill the chip once."""
    team = 1
    while team < LARGEST_CLUSTER and cut.vectors > ONE_BLOCK and 2 * team * cut.number <= chip.blocks:
        team *= 2
    return team


def _ring(chip: Chip, kind: str, cuts: list[Units]) -> Launch | None:
    for cut in (cut for cut in cuts if cut.width <= 8):
        for teams in (teams for teams in (4, 2, 1) if teams <= cut.number):
            team = min(chip.blocks // teams, LARGEST_TEAM)
            if cut.share(team) <= (_slots(chip, cut) - AHEAD) * THREADS:
                return _streamed("ring", chip, kind, cut, team)
    return None


def _twice(chip: Chip, kind: str, cut: Units) -> Launch:
    return _streamed("twice", chip, kind, cut, min(chip.blocks, LARGEST_TEAM))


def _slots(chip: Chip, cut: Units) -> int:
    """Steps that fit into shared memory beside what the kernels declare, with some room for alignment."""
    fixed = 2 * cut.groups * (12 * THREADS // 32 + 8) + 64
    return (chip.shared - fixed) // (THREADS * 16)


def _streamed(kernel: str, chip: Chip, kind: str, cut: Units, team: int) -> Launch:
    slots = _slots(chip, cut)
    rest = (cut.number, team, slots, cut.vectors, cut.share(team), cut.slices, *cut.place)
    words = 2 + 2 * cut.number * cut.groups * team
    name = f"{kernel}<{kind}, {cut.layout}, {THREADS}, {AHEAD}>"
    return Launch(name, chip.blocks, THREADS, slots * THREADS * 16, rest, words)
