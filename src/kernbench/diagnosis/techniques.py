"""What people try next, each with its reason in one clause. Rules name them by key; the words are here only."""

from __future__ import annotations

from typing import NamedTuple


class Technique(NamedTuple):
    name: str
    reason: str


TECHNIQUES = {
    "vector loads": Technique("16-byte loads", "one wide load per thread replaces four to eight narrow ones"),
    "more in flight": Technique("several loads before the first use", "waits overlap when they are independent"),
    "more rows": Technique("more rows per block", "set-up, reductions and barriers are shared by more work"),
    "fewer rows": Technique("fewer rows per block", "smaller blocks leave a shorter last wave"),
    "persistent": Technique("a persistent grid", "one block per slot loops over the work: no tail, no relaunch"),
    "split": Technique("splitting a row over several blocks", "more blocks than SMs, joined by one small reduction"),
    "smaller blocks": Technique("smaller blocks", "more of them fit beside one another on an SM"),
    "register budget": Technique("a register budget (maxnreg)", "fewer registers a thread let more warps in"),
    "launch bounds": Technique("wider launch bounds or more warps", "each thread keeps fewer values, so none spill"),
    "shorter lives": Technique("shorter lives of values", "load late, use at once, recompute what is cheap"),
    "smaller tile": Technique("a smaller tile or fewer stages", "less shared memory a block, more blocks an SM"),
    "tma": Technique("TMA bulk copies", "one thread fetches a tile; no registers and few instructions are spent"),
    "pipeline": Technique("software pipelining (num_stages)", "the next tile is on its way while this one is used"),
    "cache hints": Technique("cache hints", "evict-first for what is read once keeps the L2 for what is read again"),
    "fusion": Technique("fusion with its neighbours", "what stays in registers is not written and read again"),
    "one pass": Technique("one pass over the data", "keep the row in registers or shared memory between its uses"),
    "narrower": Technique("narrower types in memory", "at the ceiling only fewer bytes take less time"),
    "transpose": Technique("lanes along the contiguous axis", "a warp then uses all 32 bytes of every sector"),
    "through shared": Technique("a transpose through shared memory", "both sides of it are coalesced"),
    "swizzle": Technique("padding or swizzling shared memory", "lanes land in different banks"),
    "shuffles": Technique("warp shuffles", "a warp reduces among its lanes without a barrier"),
    "fewer barriers": Technique("one warp per row", "no barrier is needed where no other warp is involved"),
    "fewer instructions": Technique(
        "hoisted index arithmetic", "constants and strides known at compile time cost nothing"
    ),
    "fast math": Technique("approximate functions and fused multiply-add", "one instruction for two or ten"),
    "tensor cores": Technique("tensor cores", "matrix work leaves the scalar pipes"),
    "packed": Technique("packed half-precision arithmetic", "two elements per instruction"),
    "graph": Technique("a CUDA graph around the call", "the launch itself is most of the time"),
    "balance": Technique("even work per block", "the slowest block decides when the kernel ends"),
}


def pick(*keys: str) -> tuple[Technique, ...]:
    return tuple(TECHNIQUES[key] for key in keys[:3])
