"""Which kernel of solution.cu takes a form of x, with teams of which size, and its launch.

The buckets are reasoned, from the sizes of an H200 (132 multiprocessors with 227 KiB of shared memory and 256 KiB of
registers each, 60 MB of L2), and await their measurement:
- `held`, one cluster per unit, while the clusters of all units can hold x at the same time: up to 33 MB in 32 groups.
  Units up to 16 KiB take one block, whose barrier is cheaper than a cluster's.
- `ring` above, for units up to about 20 MB: as many teams as can each keep a unit and the loads ahead of it.
- `twice` for larger units, and for channels-last ones that would need slices narrower than 32 bytes, a sector of memory.
Channels-last, `held` prefers slices of 64 bytes, and takes 32 where only they make enough units to fill the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from harness.cuda import load

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
THREADS = 512
AHEAD = 6
"""Steps of 8 KiB that a block of `ring` and `twice` has under way: more than the 32 KiB that keep the memory busy."""
REGISTERS = (1, 2, 3, 4, 6, 8, 12, 16)
LARGEST_CLUSTER = 8
LARGEST_TEAM = 160
MOST_CHANNELS = 256
ONE_BLOCK = 16 * 1024 // 16
"""Vectors of a unit up to which a cluster does not pay."""
SMALL = 4 * 2**20
"""Bytes of x that need not fill the chip."""

_CU = load("solution.cu") if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0) else None


class Launch(NamedTuple):
    start: Callable[..., None]
    rest: tuple[int, ...]
    """Arguments after the pointers, but for eps."""
    words: int
    """Of 8 bytes that the blocks need to exchange moments; 0 where they take no workspace."""


@dataclass(frozen=True)
class Units:
    """How x is cut, in vectors of 16 bytes; `layout` is the template argument and `geometry` what follows a share."""

    layout: str
    number: int
    vectors: int
    groups: int
    slice: int
    geometry: tuple[int, ...]
    spatial: int = 0
    channels: int = 0

    def share(self, team: int) -> int:
        """Of a block: whole lines of memory, and whole positions."""
        grain = max(8, self.slice)
        return -(-self.vectors // (team * grain)) * grain


@dataclass(frozen=True)
class Chip:
    blocks: int
    shared: int

    def slots(self, fixed: int, threads: int) -> int:
        """Vectors of a thread that fit into shared memory beside what the kernel declares."""
        return (self.shared - fixed) // (threads * 16)


def launch_for(x: torch.Tensor, num_groups: int, last: bool) -> Launch | None:
    """None where vectors would straddle channels or groups: x is then for Triton."""
    if _CU is None or not x.is_cuda:
        return None
    about = torch.cuda.get_device_properties(x.device)
    chip = Chip(about.multi_processor_count, about.shared_memory_per_block_optin)
    return choose(chip, IN_CUDA[x.dtype], x.shape, x.element_size(), num_groups, last, x.device)


def choose(chip: Chip, kind: str, shape: Any, size: int, num_groups: int, last: bool, built: Any = True) -> Any:
    cuts = list(_slices(shape, size, num_groups)) if last else list(_groups(shape, size, num_groups))
    if not cuts or cuts[0].vectors >= 2**30:
        return None
    small = cuts[0].number * cuts[0].vectors * 16 <= SMALL
    return _held(chip, kind, cuts, small) or _ring(chip, kind, cuts) or _twice(chip, kind, cuts[0])


def _groups(shape: Any, size: int, num_groups: int) -> Iterator[Units]:
    channels, width = shape[1] // num_groups, 16 // size
    spatial, rest = divmod(_positions(shape), width)
    if rest == 0 and spatial > 1:
        vectors = channels * spatial
        geometry = (num_groups, spatial, channels, 0, 0)
        yield Units("Layout<0, 1, 1>", shape[0] * num_groups, vectors, 1, 1, geometry, spatial, channels)


def _slices(shape: Any, size: int, num_groups: int) -> Iterator[Units]:
    """Widest first, down to 32 bytes."""
    group, row = shape[1] // num_groups * size, shape[1] * size // 16
    each, within = max(1, group // 16), max(1, 16 // group)
    if row * 16 != shape[1] * size or each * 16 != group * within or each & (each - 1) or within > 2:
        return
    for width in (32, 16, 8, 4, 2):
        if row % width == 0 and width % each == 0:
            geometry = (row // width, 1, 0, row, _positions(shape) * row)
            layout = f"Layout<{width}, {each}, {within}>"
            vectors, groups = _positions(shape) * width, width // each * within
            yield Units(layout, shape[0] * (row // width), vectors, groups, width, geometry)


def _positions(shape: Any) -> int:
    positions = 1
    for extent in shape[2:]:
        positions *= extent
    return positions


def _held(chip: Chip, kind: str, cuts: list[Units], small: bool) -> Any:
    for cut in (cut for cut in cuts if cut.slice <= 4 and cut.channels <= MOST_CHANNELS):
        team = 1
        while 2 * team <= LARGEST_CLUSTER and cut.vectors > ONE_BLOCK and 2 * team * cut.number <= chip.blocks:
            team *= 2
        full = small or cut is cuts[-1] or team * cut.number * 4 >= chip.blocks * 3
        share = cut.share(team)
        threads = min(THREADS, max(64, 1 << (share - 1).bit_length()))
        each = -(-share // threads)
        registers = next((count for count in REGISTERS if count >= each), REGISTERS[-1])
        slots = max(0, each - registers)
        fixed = 12 * cut.groups * (threads // 32 + team) + 8 * MOST_CHANNELS
        if full and slots <= chip.slots(fixed, threads) and cut.vectors * cut.spatial < 2**32:
            name = f"held<{kind}, {cut.layout}, {threads}, {team}, {registers}>"
            per_spatial = 2**32 // cut.spatial + 1 if cut.spatial else 0
            slices, spatial, *others = cut.geometry
            rest = (slots, cut.vectors, share, slices, spatial, per_spatial, *others)
            return name, (cut.number * team, threads, slots * threads * 16), rest, 0
    return None
