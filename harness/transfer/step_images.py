"""The images of a decoder as PNG: as it is, with the entries, and their difference.

Written here with zlib alone: a Python that has torch may have neither Pillow nor numpy.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

LARGEST = 512
"""Of a larger image, the middle of this size: whole pixels, and a file that fits into a pull request."""
BRIGHTER = 8
"""Times the difference: one of 1/255 would not be seen."""


def write(folder: str, model: str, original: Any, ours: Any) -> list[str]:
    """The paths. An image is a tensor of 3 x height x width (or 1 for grey), from 0 to 1."""
    sides = [_middle(image, model) for image in (original, ours)]
    if sides[0].shape != sides[1].shape:
        raise ValueError(f"the images are of {tuple(sides[0].shape)} and {tuple(sides[1].shape)}")
    images = {"original": sides[0], "ours": sides[1], "difference": (sides[0] - sides[1]).abs() * BRIGHTER}
    os.makedirs(folder, exist_ok=True)
    found = []
    for name, image in images.items():
        found.append(os.path.join(folder, f"{model}-{name}.png"))
        with open(found[-1], "wb") as file:
            file.write(_encoded(image))
    return found


def _middle(image: Any, model: str) -> Any:
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"image() of {model} returns {tuple(image.shape)}; it must be 3 x height x width")
    top, left = (max(0, size - LARGEST) // 2 for size in image.shape[1:])
    part = image[:, top : top + LARGEST, left : left + LARGEST].float()
    return part.expand(3, *part.shape[1:])


def _encoded(image: Any) -> bytes:
    _, height, width = image.shape
    shades = (image.nan_to_num(0.0).clamp(0, 1) * 255).round().byte()
    rows = bytes(shades.permute(1, 2, 0).flatten().tolist())
    lines = b"".join(b"\0" + rows[place : place + 3 * width] for place in range(0, len(rows), 3 * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits, RGB
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(kind, data) for kind, data in parts)


def _part(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
