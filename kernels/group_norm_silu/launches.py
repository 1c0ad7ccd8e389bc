"""Which kernel of solution.cu takes a form of x, with teams of which size: what one H200 says.

An H200 has 132 multiprocessors with 227 KiB of shared memory and 256 KiB of registers each. Times are of single rows of
fp16 in 32 groups with a cold L2, in us.
- Up to 8 MB (contiguous) or 3.5 MB (channels-last) clusters of eight small blocks: 2.8 at 0.6 MB, against 3.2 in one
  block; above, exchanging moments through memory costs no more than what clusters lose: only 30 clusters of eight
  blocks with 256 threads, or of four with 512, run at a time, and there are 32 groups.
- Channels-last in slices of one group, the tensor cores can add up: from 5 vectors of a thread on 1 to 3 % faster, with
  fewer up to 6 % slower. Then clusters are good up to 5.2 MB: 6.5, against 6.6.
- Up to 30 MB the chip holds x: 17.5 at 28 MB, against 18.8 in the ring. With 8 vectors of a thread in registers it is
  0.4 faster than with 2. Blocks of 1024 threads take 2 to 4 longer.
- Beyond, the ring: 47 at 84 MB, 162 at 285 MB, 342 at 570 MB. Two vectors at a time cost fewer instructions than one
  (30.0 against 33.7 at 47 MB). Interleaving their instructions made it 3 to 5 % slower, four vectors for half as many
  threads 10 %, and more loads under way nothing.
- The last step of a share in the ring may be partly empty and most likely costs as much as a full one: 52 MB take 29.4
  with 640 workers, who need 5 whole steps, and 32.0 with 512, who need 6 and a quarter.
- Channels-last, slices of 128 bytes: 64 are as good up to 20 MB, 32 cost 190 instead of 81 at 107 MB.
- From 21 to 36 MB the kernel that reads twice is faster, although the chip holds everything and it reads once: 21.1 at
  33 MB instead of 22.3. Most likely because it adds up what has come before it asks for the rest.
- What the chip cannot hold is read twice as whole positions, 202 at 285 MB. Up to some size nearly nothing is: with
  registers the chip holds 36 MB, and the L2 some 25 more. So 75 MB take 44 in all slices at once, and 84, 89 and 107 MB
  take 51, 54 and 64 in halves of positions one after the other, all at once up to 5 more. Registers for 12 or 16
  vectors of a thread instead of 8, that is 40 or 45 MB, gain nothing up to here and cost 1 to 8 % at 26 to 33 MB.
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
BY_ONE, BY_TWO = 6e6, 10e6
"""Bytes of a channels-last x that two blocks to a multiprocessor hold faster than one: 9.5 against 10.1 us at 9 MB. Up
to the first one is faster: 6.75 against 6.92 us at 5 MB."""
ALONE = 64 * 1024, 168 * 1024
"""Bytes of a channels-last unit of one group, more than and up to, that clusters do best with the tensor cores: 32 of
200 KiB take 5 % longer."""
STEPWISE = 20e6
"""Bytes of a channels-last x from which the chip holds it better in steps."""
AT_ONCE, BY_HALVES = 80e6, 120e6
"""Bytes of a channels-last batch entry of which the chip and the L2 hold nearly all, or nearly all of a half."""
HELD, HELD_FLOATS, HELD_LAST = 30e6, 20e6, 36e6
"""Bytes of x that the chip is to hold. The ring is good for floats earlier: it has half as many to do."""
UNDER_WAY = {16: 17e6, 8: 19e6, 4: 18e6, 2: 17e6}
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
    mixed: int = 0
    """Contiguous, values of a vector where it may hold two channels, so that `spatial` counts values; else 0."""
    width: int = 1
    row: int = 0
    batch: int = 0
    quads: bool = False
    """Whether each four lanes share an entry, so that the tensor cores may add up: for units of one group."""

    def share(self, team: int) -> int:
        """Of a block: whole lines of memory, and whole positions."""
        grain = max(8, self.width)
        return math.ceil(self.vectors / (team * grain)) * grain

    def geometry(self, team: int) -> tuple[int, ...]:
        place = (self.spatial, self.channels, self.row, self.batch)
        return self.vectors, self.share(team), self.slices, *place

    def words(self, team: int) -> int:
        return 2 + 2 * self.number * self.groups * team

    def entries(self, threads: int, copies: int, blocks: int = 1) -> int:
        """Bytes that statistics take before they are merged, and after that those of so many blocks."""
        of_warp = 8 if self.quads else self.width
        of_ends = copies if self.mixed else 0
        return (copies * threads // 32 * of_warp * self.within + of_ends) * 16 + STATIC + 8 * self.groups * blocks

    def per_spatial(self) -> int:
        """By which the device divides by `spatial`: the upper half of the product or, where vectors are mixed, that
        shifted right by one less than the bit length of spatial - 1. Exact for all of a unit; a signed number of
        32 bits."""
        if self.mixed:
            return -(-(2 ** (31 + (self.spatial - 1).bit_length())) // self.spatial) - 2**32
        return 2**32 // self.spatial + 1 if self.spatial > 1 else 0


def choose(
    chip: Chip, kind: str, size: int, shape: tuple[int, ...], num_groups: int, channels_last: bool
) -> Launch | None:
    """For values of `size` bytes, which CUDA calls `kind`. None where channels have fewer
    values than a vector, groups fewer than two vectors' or more than 256 channels, or, channels-last, vectors would
    straddle groups."""
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
            workers = _workers(cut.share(_team(chip, teams)), teams)
            yield ring(chip, cut, teams, workers, 2, 3 if workers == 384 else 2)
    yield twice(chip, cut, 1, 0)


def _slices(chip: Chip, cuts: list[Units]) -> Iterator[Launch | None]:
    cut = {cut.width: cut for cut in cuts}
    total = 16 * cuts[0].vectors * cuts[0].number
    alone = cut[2] if 2 in cut and cut[2].groups == 1 and cut[2].kind != "float" else None
    if alone and ALONE[0] < 16 * alone.vectors <= ALONE[1] and total <= BY_ONE:
        yield held(chip, alone._replace(quads=True), 8, 128 if alone.share(8) <= 1024 else 256, 16)
    if total <= SMALL and 2 in cut:
        if 16 * cut[2].vectors <= TINY:
            yield held(chip, cut[2], 2, 256, 16)
        if cut[2].share(8) > 1024 and 4 in cut:  # 3 % less at 3 MB
            yield held(chip, cut[4], 8, 512, 16)
        yield held(chip, cut[2], 8, 128 if cut[2].share(8) <= 1024 else 256, 16)
    if total <= BY_ONE and 4 in cut:
        yield held(chip, cut[4], 0, 512, 16)
    for width in (8, 4):
        if width in cut and total <= BY_TWO and (cut[width].number >= 8 or width == 4):
            registers = 8 if cut[width].number >= 8 else 16  # 9.9 instead of 10.8 at 10 MB in four slices
            halves = chip._replace(blocks=2 * chip.blocks, shared=chip.shared // 2 - 1024)
            yield held(halves, cut[width], 0, 256, registers)
    if STEPWISE < total <= HELD_LAST and 8 in cut:
        yield twice(chip, cut[8], cut[8].number, 8, once=True)
    for width in (8, 4, 16, 32, 2):
        if width in cut and total <= HELD_LAST:
            yield held(chip, cut[width], 0, 512, 8)
    row, entry = cuts[0].row, 16 * cuts[0].batch
    if entry <= AT_ONCE and 8 in cut:
        yield twice(chip, cut[8], cut[8].slices, 8)
    if entry <= BY_HALVES and row // 2 in cut:
        yield twice(chip, cut[row // 2], 1, 8)
    yield twice(chip, cuts[0], 1, 8)
    yield twice(chip, cuts[0], 1, 0)


def groups_of(kind: str, size: int, shape: tuple[int, ...], num_groups: int) -> Iterator[Units]:
    channels, spatial, width = shape[1] // num_groups, math.prod(shape[2:]), 16 // size
    if channels > MOST_CHANNELS or spatial < width:
        return
    place = {"channels": channels, "quads": True}
    if spatial % width == 0 and spatial > width:
        layout, vectors, place["spatial"] = "Layout<0, 1, 1>", channels * spatial // width, spatial // width
    else:  # whole vectors that every unit has, wherever it begins
        values = channels * spatial
        layout, vectors = f"Layout<0, {width}, 1>", (values - width + math.gcd(values, width)) // width
        place |= {"spatial": spatial, "mixed": width}
    if vectors:
        yield Units(kind, layout, shape[0] * num_groups, vectors, 1, num_groups, **place)


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
    if team == 0 or (not cut.mixed and cut.vectors * cut.spatial >= 2**32):
        return None
    each = math.ceil(cut.share(team) / threads)
    registers = min(registers, each)
    slots = each - registers
    shared = slots * threads * 16
    if cut.entries(threads, 1 if cluster else 2, cluster or 1) + 8 * MOST_CHANNELS + shared > chip.shared:
        return None
    # By products of 16 values 0 to 1.3 % faster than of 8; a ring of one team was up to 1.2 % slower.
    layout = cut.layout.replace(">", ", false, 16>") if cut.quads else cut.layout
    kernel = f"held<{cut.kind}, {layout}, {threads}, {cluster}, {registers}, {str(slots > 0).lower()}>"
    rest = (cut.number, team, slots, *cut.geometry(team), cut.per_spatial())
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


def twice(chip: Chip, cut: Units, teams: int, registers: int, once: bool = False) -> Launch | None:
    """With `registers`, where units are not too small for it, blocks take positions in turn. With `once` only where the
    chip holds all units, so that nothing is read again."""
    threads, batch, ahead, team = 512, 2, 3, _team(chip, teams)
    if team == 0 or cut.vectors <= team * threads * registers:
        return None
    layout, (vectors, share, *place) = cut.layout, cut.geometry(team)
    if registers:
        layout = layout.replace(">", ", true>")
        share = math.ceil(vectors / (team * threads)) * threads
    step = threads * batch * 16
    tables = 8 * cut.channels
    weights = 2 * 2 * 16 * cut.width
    slots = (chip.shared - cut.entries(threads, 2) - tables - weights) // step
    steps = math.ceil((share - registers * threads) / (threads * batch))
    if once and steps > slots:
        return None
    slots = min(slots, max(steps, ahead + 1))
    kernel = f"twice<{cut.kind}, {layout}, {threads}, {batch}, {ahead}, {registers}>"
    rest = (cut.number, team, slots, vectors, share, *place)
    return Launch(kernel, chip.blocks, threads, slots * step + tables, rest, cut.words(team))


def _workers(share: int, teams: int) -> int:
    """Who leave least of their last step in the ring empty, of equals the first: up to 7 % less where it differs."""
    if teams == 1:
        choices = [512, 384]  # more take 3 to 8 % longer
    elif share <= 6 * 2 * 640:
        choices = [672, 640, 576, 512]  # fewer gain nothing, even where they leave less empty
    else:
        choices = [512]  # 640 are 1 % slower with 7 of 10 steps: the other 3 hardly hide the exchange
    return min(choices, key=lambda workers: -share % (2 * workers))


def _team(chip: Chip, teams: int) -> int:
    """Blocks of each of `teams`; 0 where there are not enough."""
    return min(chip.blocks // teams, LARGEST_TEAM)
