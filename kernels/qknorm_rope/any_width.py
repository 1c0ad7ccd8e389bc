"""How any_width.cuh is to share out the heads of a token, for widths and layouts that nobody tuned."""

from __future__ import annotations

from math import gcd

WARPS = 24
"""Of a multiprocessor, at least, where the call has so many: fewer would leave it waiting for memory."""
MOST_OF_HEAD, MOST_OF_LANE = 16, 32
"""Elements that a lane takes of a head and of all its heads together: what fits in 80 registers."""
LARGEST_BLOCK = 16
"""Warps."""


def width_of_vectors(head_dim, rope_dim, is_neox, *strides):
    """Elements that are loaded at once: no vector straddles a token, a part of a head, or a pair of neighbours.

    None where heads cannot be cut so.
    """
    pieces = 2 if is_neox else 1
    if head_dim % 2 or head_dim // pieces > MOST_OF_HEAD // pieces * 32:
        return None
    width = gcd(8, head_dim // pieces, rope_dim // pieces, *strides)
    return width if width * pieces > 1 else None


def shares(tokens, heads, units, unit, multiprocessors):
    """Lanes to a head, heads to a group of lanes, threads to a block, and blocks to q or k of a token.

    A head has `units` of `unit` elements. Few tokens take the most warps: nothing is shorter than a single load. Many
    take what costs the fewest instructions. These are counted in units of seven: 6 for a warp, 2 for each head of a
    group of lanes, and for each unit of a lane one more than it has elements, once for every head and once for weights
    and angles.
    """
    found = []
    for each in range(1, max(1, MOST_OF_HEAD // unit) + 1):
        lanes = -(-units // each)
        for rows in range(1, MOST_OF_LANE // (each * unit) + 1):
            if lanes <= 32 and rows <= 4:
                warps = -(-heads // (32 // lanes * rows))
                found.append((warps * (6 + 2 * rows + each * (rows + 1) * (unit + 1)), warps, lanes, rows))
    wanted = min(WARPS * multiprocessors / (2 * tokens), max(warps for _, warps, _, _ in found))
    _, warps, lanes, rows = min(shape for shape in found if shape[1] >= wanted)
    slices = -(-warps // LARGEST_BLOCK)
    return lanes, rows, 32 * -(-warps // slices), slices
