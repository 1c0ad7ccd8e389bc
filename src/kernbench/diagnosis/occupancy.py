"""How many warps the GPU's limits let onto an SM at once, worked out from what the compiler says of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmLimits:
    """What one multiprocessor has to give."""

    registers: int = 65536
    shared_bytes: int = 233472
    warps: int = 64
    blocks: int = 32
    register_unit: int = 256
    """Registers are handed to a warp in units of this."""
    shared_unit: int = 128
    shared_reserved: int = 1024
    """Taken by the driver in every block."""


@dataclass(frozen=True)
class Occupancy:
    pct: float
    blocks: int
    limit: str
    """registers, shared memory, warp slots or block slots; two when both are equal."""


_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}


def limits(capability: tuple[int, int], registers: int, shared_bytes: int, threads: int) -> SmLimits:
    """Of a GPU, from what torch says of it; the block slots are not among that and come from a table."""
    reserved = 1024 if capability >= (8, 0) else 0
    unit = 128 if capability >= (8, 0) else 256
    return SmLimits(registers, shared_bytes, threads // 32, _BLOCKS.get(capability, 32), 256, unit, reserved)


def theoretical(sm: SmLimits, registers: int, shared_bytes: int, warps: int) -> Occupancy | None:
    """None where the kernel cannot be launched at all."""
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
    limit = " and ".join(name for name, most in allowed.items() if most == blocks)
    return Occupancy(100.0 * blocks * warps / sm.warps, blocks, limit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
