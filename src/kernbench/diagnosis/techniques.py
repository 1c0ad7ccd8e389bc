"""Techniques to try next, each with a one-clause reason. Rules refer to them by key."""

from __future__ import annotations

from typing import NamedTuple


class Technique(NamedTuple):
    name: str
    reason: str


TECHNIQUES = {
    "vector loads": Technique("16-byte loads", "one wide load per thread replaces four to eight narrow ones"),
    "more in flight": Technique("several loads before the first use", "independent loads overlap their latency"),
    "more rows": Technique("more rows per block", "setup, reductions and barriers are spread over more work"),
    "fewer rows": Technique("fewer rows per block", "smaller blocks leave a shorter last wave"),
    "persistent": Technique("a persistent grid", "one block per slot loops over the work, so there is no tail wave"),
    "split": Technique("splitting a row across several blocks", "fills every SM; one small reduction joins the parts"),
    "smaller blocks": Technique("smaller blocks", "more of them fit on an SM"),
    "register budget": Technique(
        "a register budget (maxnreg)", "fewer registers per thread let more warps run at once"
    ),
    "launch bounds": Technique(
        "looser launch bounds or more warps", "each thread gets more registers or holds fewer values"
    ),
    "shorter lives": Technique("shorter live ranges", "load late, use at once, recompute what is cheap"),
    "smaller tile": Technique("a smaller tile or fewer stages", "less shared memory per block, more blocks per SM"),
    "larger tile": Technique("a larger tile per block", "every loaded operand is used in more multiply-adds"),
    "tma": Technique("TMA bulk copies", "one thread fetches a whole tile, using no registers and few instructions"),
    "pipeline": Technique("software pipelining (num_stages)", "the next tile loads while this one is used"),
    "cache hints": Technique("cache hints", "evict-first on data read once leaves the L2 to data that is reused"),
    "fusion": Technique("fusing with neighboring kernels", "values stay in registers instead of going through memory"),
    "one pass": Technique("one pass over the data", "keep the row in registers or shared memory between its uses"),
    "narrower": Technique("narrower types in memory", "at the bandwidth limit, only moving fewer bytes helps"),
    "transpose": Technique("lanes along the contiguous axis", "a warp then uses all 32 bytes of every sector"),
    "through shared": Technique("a transpose through shared memory", "both its loads and its stores are coalesced"),
    "swizzle": Technique("padding or swizzling shared memory", "lanes land in different banks"),
    "shuffles": Technique("warp shuffles", "a warp reduces among its lanes without a barrier"),
    "fewer barriers": Technique("one warp per row", "no other warp is involved, so no barrier is needed"),
    "fewer instructions": Technique(
        "hoisted index arithmetic", "constants and strides known at compile time cost nothing"
    ),
    "fast math": Technique("approximate functions and fused multiply-add", "one instruction replaces two to ten"),
    "lower precision": Technique("lower-precision operands", "tensor cores do more operations per cycle on them"),
    "tensor cores": Technique("tensor cores", "matrix math moves off the scalar pipes"),
    "packed": Technique("packed half-precision arithmetic", "two elements per instruction"),
    "graph": Technique("a CUDA graph around the call", "launch overhead dominates"),
    "balance": Technique("balancing work across blocks", "the slowest block decides when the kernel ends"),
}


def pick(*keys: str) -> tuple[Technique, ...]:
    return tuple(TECHNIQUES[key] for key in keys[:3])
