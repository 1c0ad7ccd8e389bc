"""How many warps the GPU's limits allow per SM, computed from the compiler's facts about a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from harness.shared import format as fmt


@dataclass(frozen=True)
class SmLimits:
    """The resources of one multiprocessor."""

    registers: int = 65536
    shared_bytes: int = 233472
    warps: int = 64
    blocks: int = 32
    register_unit: int = 256
    """A warp's registers are allocated in units of this size."""
    shared_unit: int = 128
    shared_reserved: int = 1024
    """Used by the driver in every block."""


@dataclass(frozen=True)
class Occupancy:
    pct: float
    blocks: int
    limit: str
    """registers, shared memory, warp slots or block slots; joined if equal."""


_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}


def limits(capability: tuple[int, int], registers: int, shared_bytes: int, threads: int) -> SmLimits:
    """The limits of a GPU, from torch's device properties; those lack the block slots, which come from a table."""
    reserved = 1024 if capability >= (8, 0) else 0
    unit = 128 if capability >= (8, 0) else 256
    return SmLimits(registers, shared_bytes, threads // 32, _BLOCKS.get(capability, 32), 256, unit, reserved)


def theoretical(sm: SmLimits, registers: int, shared_bytes: int, warps: int) -> Occupancy | None:
    """None if the kernel cannot be launched."""
    if warps <= 0:
        return None
    per_warp = _up(max(registers, 1) * 32, sm.register_unit)
    shared = _up(shared_bytes + sm.shared_reserved, sm.shared_unit)
    allowed = {
        "registers": sm.registers // per_warp // warps,
        "shared memory": sm.shared_bytes // shared if shared else sm.blocks,
        "warp slots": sm.warps // warps,
        "block slots": sm.blocks,
    }
    blocks = min(allowed.values())
    if blocks == 0:
        return None
    limit = fmt.joined([name for name, most in allowed.items() if most == blocks])
    return Occupancy(100.0 * blocks * warps / sm.warps, blocks, limit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
