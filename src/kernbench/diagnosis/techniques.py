"""Techniques to try next, each with a one-clause reason. Rules refer to them by key."""

from __future__ import annotations

from typing import NamedTuple


class Technique(NamedTuple):
    name: str
    reason: str
    known_as: tuple[str, ...]
    """Phrases by which a hypothesis names it."""


TECHNIQUES = {
    "vector loads": Technique(
        "16-byte loads",
        "one wide load per thread replaces four to eight narrow ones",
        ("16-byte", "128-bit", "vectorized load", "wide load", "float4"),
    ),
    "more in flight": Technique(
        "several loads before the first use",
        "independent loads overlap their latency",
        ("in flight", "loads ahead", "unroll"),
    ),
    "more rows": Technique(
        "more rows per block",
        "setup, reductions and barriers are spread over more work",
        ("more rows", "several rows", "two rows", "four rows", "rows per block", "rows per program"),
    ),
    "fewer rows": Technique(
        "fewer rows per block",
        "smaller blocks leave a shorter last wave",
        ("fewer rows", "a row a block", "one row per block", "one program per row"),
    ),
    "persistent": Technique(
        "a persistent grid",
        "one block per slot loops over the work, so there is no tail wave",
        ("persistent",),
    ),
    "split": Technique(
        "splitting a row across several blocks",
        "fills every SM; one small reduction joins the parts",
        ("split a row", "split rows", "several blocks to a row", "cluster", "split-k"),
    ),
    "smaller blocks": Technique(
        "smaller blocks",
        "more of them fit on an SM",
        ("smaller block", "small blocks", "fewer warps", "fewer threads"),
    ),
    "register budget": Technique(
        "a register budget (maxnreg)",
        "fewer registers per thread let more warps run at once",
        ("maxnreg", "register budget", "maxrregcount"),
    ),
    "launch bounds": Technique(
        "looser launch bounds or more warps",
        "each thread gets more registers or holds fewer values",
        ("launch bounds", "more warps"),
    ),
    "shorter lives": Technique(
        "shorter live ranges",
        "load late, use at once, recompute what is cheap",
        ("live range", "recompute", "spill"),
    ),
    "smaller tile": Technique(
        "a smaller tile or fewer stages",
        "less shared memory per block, more blocks per SM",
        ("smaller tile", "fewer stages"),
    ),
    "larger tile": Technique(
        "a larger tile per block",
        "every loaded operand is used in more multiply-adds",
        ("larger tile", "bigger tile"),
    ),
    "tma": Technique(
        "TMA bulk copies",
        "one thread fetches a whole tile, using no registers and few instructions",
        ("tma", "bulk cop", "copy engine"),
    ),
    "pipeline": Technique(
        "software pipelining (num_stages)",
        "the next tile loads while this one is used",
        ("pipelin", "num_stages", "double buffer", "ring in shared memory", "persistent ring"),
    ),
    "cache hints": Technique(
        "cache hints",
        "evict-first on data read once leaves the L2 to data that is reused",
        ("past the L1", "evict", "cache hint", "no_allocate", "leave the L2"),
    ),
    "fusion": Technique(
        "fusing with neighboring kernels",
        "values stay in registers instead of going through memory",
        ("fusing", "fusion", "fused with"),
    ),
    "one pass": Technique(
        "one pass over the data",
        "keep the row in registers or shared memory between its uses",
        ("one pass", "one read and one write", "read once", "Welford"),
    ),
    "narrower": Technique(
        "narrower types in memory",
        "at the bandwidth limit, only moving fewer bytes helps",
        ("narrower", "fp8", "int8"),
    ),
    "transpose": Technique(
        "lanes along the contiguous axis",
        "a warp then uses all 32 bytes of every sector",
        ("coalesc", "contiguous axis"),
    ),
    "through shared": Technique(
        "a transpose through shared memory",
        "both its loads and its stores are coalesced",
        ("transpose through shared", "transposed through shared"),
    ),
    "swizzle": Technique(
        "padding or swizzling shared memory",
        "lanes land in different banks",
        ("swizzl", "bank conflict", "padding"),
    ),
    "shuffles": Technique(
        "warp shuffles",
        "a warp reduces among its lanes without a barrier",
        ("shuffl",),
    ),
    "fewer barriers": Technique(
        "one warp per row",
        "no other warp is involved, so no barrier is needed",
        ("one warp per row", "a warp per row", "a warp to a row", "no barrier", "without a barrier"),
    ),
    "fewer instructions": Technique(
        "hoisted index arithmetic",
        "constants and strides known at compile time cost nothing",
        ("fewer instructions", "flat index", "hoist", "template argument"),
    ),
    "fast math": Technique(
        "approximate functions and fused multiply-add",
        "one instruction replaces two to ten",
        ("approximat", "fast math", "fma", "reciprocal", "polynomial"),
    ),
    "lower precision": Technique(
        "lower-precision operands",
        "tensor cores do more operations per cycle on them",
        ("lower precision", "lower-precision"),
    ),
    "tensor cores": Technique(
        "tensor cores",
        "matrix math moves off the scalar pipes",
        ("tensor core",),
    ),
    "packed": Technique(
        "packed half-precision arithmetic",
        "two elements per instruction",
        ("packed", "bf16 pairs", "half2"),
    ),
    "graph": Technique(
        "a CUDA graph around the call",
        "launch overhead dominates",
        ("cuda graph", "graph around"),
    ),
    "balance": Technique(
        "balancing work across blocks",
        "the slowest block decides when the kernel ends",
        ("balanc", "one wave"),
    ),
}


def pick(*keys: str) -> tuple[Technique, ...]:
    return tuple(TECHNIQUES[key] for key in keys[:3])
