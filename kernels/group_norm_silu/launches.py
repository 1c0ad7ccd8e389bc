"""Which kernel of solution.cu takes a form of x, with teams of which size: what one H200 says.

An H200 has 132 multiprocessors with 227 KiB of shared memory and 256 KiB of registers each. Times are of single rows of
fp16 in 32 groups with a cold L2, in us.
- Up to 8 MB (contiguous) or 3.5 MB (channels-last) clusters of eight small blocks: 2.8 at 0.6 MB, against 3.2 in one
  block; above, exchanging moments through memory costs no more than what clusters lose: only 30 clusters of eight
  blocks with 256 threads, or of four with 512, run at a time, and there are 32 groups.
- Up to 30 MB the chip holds x: 15.9 at 21 MB, against 16.2 in the ring. With 8 vectors of a thread in registers it is
  0.4 faster than with 2. Blocks of 1024 threads take 2 to 4 longer.
- Beyond, the ring: 31 at 47 MB, 358 to 372 at 570 MB. Two vectors at a time cost fewer instructions than one (30.0
  against 33.7 at 47 MB). Interleaving their instructions made it 3 to 5 % slower, four vectors for half as many threads
  10 %, and more loads under way nothing.
- Channels-last, slices of 128 bytes: 64 are as good up to 20 MB, 32 cost 190 instead of 81 at 107 MB. What the chip
  cannot hold in such slices is read twice as whole positions: 53 at 75 MB, against 58 in a ring. Plain loads first,
  then loads and stores that leave the L2 early are worth 5 to 10 % there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

LARGEST_TEAM = 160
MOST_CHANNELS = 256
TURNS = 3
TINY = 8 * 1024
"""Bytes of a unit that two blocks do as fast as eight."""
SMALL, BY_CLUSTERS = 3.5e6, 8e6
"""Bytes of x that clusters take, with small and with larger blocks."""
BY_TWO = 10e6
"""Bytes of a channels-last x that two blocks to a multiprocessor hold faster than one: 9.5 against 10.1 us at 9 MB."""
HELD, HELD_FLOATS, HELD_LAST = 30e6, 20e6, 36e6
"""Bytes of x that the chip is to hold. The ring is good for floats earlier: it has half as many to do."""
UNDER_WAY = {16: 17e6, 8: 19e6, 4: 19e6, 2: 17e6}
"""By number of teams in the ring, bytes that these may have under way: the rest of 28 MB hides the exchange."""
STATIC = 512
"""Bytes of shared memory that a kernel declares beside entries, and room for alignment."""


class Chip(NamedTuple):
    blocks: int
    """Multiprocessors: the blocks of a launch that exchanges moments through memory."""
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

    kind: str
    layout: str
    number: int
    vectors: int
    """Of a unit."""
    groups: int
    slices: int
    """Units of a batch entry."""
    within: int = 1
    """Groups of a vector."""
    spatial: int = 1
    channels: int = 0
    width: int = 1
    row: int = 0
    batch: int = 0

    def share(self, team: int) -> int:
        """Of a block: whole lines of memory, and whole positions."""
        grain = max(8, self.width)
        return math.ceil(self.vectors / (team * grain)) * grain

    def geometry(self, team: int) -> tuple[int, ...]:
        place = (self.spatial, self.channels, self.row, self.batch)
        return self.vectors, self.share(team), self.slices, *place

    def words(self, team: int) -> int:
        return 2 + 2 * self.number * self.groups * team

    def entries(self, threads: int, copies: int) -> int:
        """Bytes that statistics take before they are merged."""
        of_warp = 8 if self.channels else self.width
        return copies * threads // 32 * of_warp * self.within * 16 + STATIC + 8 * 8 * self.groups


def choose(
    chip: Chip, kind: str, size: int, shape: tuple[int, ...], num_groups: int, channels_last: bool
) -> Launch | None:
    """For values of `size` bytes, which CUDA calls `kind`. None where vectors would straddle channels or groups."""
    cuts = list((slices_of if channels_last else groups_of)(kind, size, shape, num_groups))
    if not cuts or cuts[0].vectors >= 2**30:
        return None
    options = (_slices if channels_last else _groups)(chip, cuts)
    return next((launch for launch in options if launch is not None), None)


def _groups(chip: Chip, cuts: list[Units]) -> Iterator[Launch | None]:
    (cut,) = cuts
    unit, total = 16 * cut.vectors, 16 * cut.vectors * cut.number
    if unit <= TINY:
        yield held(chip, cut, 2, 256, 16)
    if total <= BY_CLUSTERS or 2 * cut.number > chip.blocks:
        yield held(chip, cut, 8, 128 if total <= SMALL else 256, 16)
    if total <= (HELD_FLOATS if cut.kind == "float" else HELD):
        yield held(chip, cut, 0, 512, 8)
    for teams in (16, 8, 4, 2, 1):
        if teams <= cut.number and teams * unit <= UNDER_WAY.get(teams, math.inf):
            share = 16 * cut.share(_team(chip, teams))
            wide, narrow = (math.ceil(share / step) * step for step in (16 * 1024, 12 * 1024))
            fewer = teams <= 4 and narrow < wide  # 105 us instead of 114 at 178 MB; nothing with more teams
            yield ring(chip, cut, teams, 384, 2, 3) if fewer else ring(chip, cut, teams, 512, 2, 2)
    yield twice(chip, cut, 512, 2, 3)


def _slices(chip: Chip, cuts: list[Units]) -> Iterator[Launch | None]:
    cut = {cut.width: cut for cut in cuts}
    total = 16 * cuts[0].vectors * cuts[0].number
    if total <= SMALL and 2 in cut:
        if 16 * cut[2].vectors <= TINY:
            yield held(chip, cut[2], 2, 256, 16)
        yield held(chip, cut[2], 8, 128 if cut[2].share(8) <= 1024 else 256, 16)
    for width in (8, 4):
        if width in cut and total <= BY_TWO and (cut[width].number >= 8 or width == 4):
            yield held(chip._replace(blocks=2 * chip.blocks, shared=chip.shared // 2 - 1024), cut[width], 0, 256, 8)
    for width in (8, 4, 16, 32, 2):
        if width in cut and total <= HELD_LAST:
            yield held(chip, cut[width], 0, 512, 8)
    yield twice(chip, cuts[0], 512, 2, 3)


def groups_of(kind: str, size: int, shape: tuple[int, ...], num_groups: int) -> Iterator[Units]:
    channels = shape[1] // num_groups
    spatial, rest = divmod(math.prod(shape[2:]), 16 // size)
    if rest == 0 and spatial > 1 and channels <= MOST_CHANNELS:
        place = {"spatial": spatial, "channels": channels}
        yield Units(kind, "Layout<0, 1, 1>", shape[0] * num_groups, channels * spatial, 1, num_groups, **place)


def slices_of(kind: str, size: int, shape: tuple[int, ...], num_groups: int) -> Iterator[Units]:
    """Widest first, down to 16 bytes."""
    positions, group = math.prod(shape[2:]), shape[1] // num_groups * size
    each, within = max(1, group // 16), max(1, 16 // group)
    if each * 16 != group * within or within > 2:
        return
    row = shape[1] * size // 16
    for width in (32, 16, 8, 4, 2, 1):
        if row % width == 0 and width % each == 0:
            layout, groups, slices = f"Layout<{width}, {each}, {within}>", width // each * within, row // width
            place = {"within": within, "width": width, "row": row, "batch": positions * row}
            yield Units(kind, layout, shape[0] * slices, positions * width, groups, slices, **place)


def held(chip: Chip, cut: Units, cluster: int, threads: int, registers: int) -> Launch | None:
    """By clusters, or where `cluster` is 0 by as many blocks to a unit as there are."""
    team = cluster or _team(chip, cut.number)
    if team == 0 or cut.vectors * cut.spatial >= 2**32:
        return None
    each = math.ceil(cut.share(team) / threads)
    registers = min(registers, each)
    slots = each - registers
    shared = slots * threads * 16
    if cut.entries(threads, 1 if cluster else 2) + 8 * MOST_CHANNELS + shared > chip.shared:
        return None
    per_spatial = 2**32 // cut.spatial + 1 if cut.spatial > 1 else 0
    kernel = f"held<{cut.kind}, {cut.layout}, {threads}, {cluster}, {registers}, {str(slots > 0).lower()}>"
    rest = (cut.number, team, slots, *cut.geometry(team), per_spatial)
    words = 0 if cluster else cut.words(team)
    return Launch(kernel, cut.number * team if cluster else chip.blocks, threads, shared, rest, words)


def ring(chip: Chip, cut: Units, teams: int, workers: int, batch: int, ahead: int) -> Launch | None:
    team = _team(chip, teams)
    step = workers * batch * 16
    steps = math.ceil(cut.share(team) * 16 / step)
    tables = 8 * (TURNS + 1) * cut.channels
    slots = min((chip.shared - cut.entries(workers, TURNS + 1) - tables) // step, TURNS * steps + ahead)
    if steps + ahead > slots:
        return None
    kernel = f"ring<{cut.kind}, {cut.layout}, {workers}, {batch}, {ahead}>"
    rest = (cut.number, team, slots, *cut.geometry(team))
    return Launch(kernel, chip.blocks, workers + 32, slots * step + tables, rest, cut.words(team))


def twice(chip: Chip, cut: Units, threads: int, batch: int, ahead: int) -> Launch:
    team = _team(chip, 1)
    step = threads * batch * 16
    tables = 8 * cut.channels
    slots = (chip.shared - cut.entries(threads, 2) - tables) // step
    kernel = f"twice<{cut.kind}, {cut.layout}, {threads}, {batch}, {ahead}>"
    rest = (cut.number, team, slots, *cut.geometry(team))
    return Launch(kernel, chip.blocks, threads, slots * step + tables, rest, cut.words(team))


def _team(chip: Chip, teams: int) -> int:
    """Blocks of each of `teams`; 0 where there are not enough."""
    return min(chip.blocks // teams, LARGEST_TEAM)
