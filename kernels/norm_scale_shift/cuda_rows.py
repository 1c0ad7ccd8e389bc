"""The path on a GPU: which kernel of solution.cu takes a call, how it cuts a row, and a launch of few steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from modulation import Spread

from harness.cuda import load

NAMES = {torch.bfloat16: "__nv_bfloat16", torch.float16: "__half", torch.float32: "float"}
STEP, MOST_COLS = 256, 8192
"""Columns that this path takes: multiples of the first up to the second."""
NOT_FRAMED = Spread(0, 0, 1, 0)
PARAMETERS: dict[str, tuple[type, ...]] = {
    "plain_row": (*[int] * 4, float),
    "residual_row": (*[int] * 7, float),
    "any_row": (*[int] * 9, float, *[int] * 10),
}
_CU = load("solution.cu") if torch.cuda.is_available() else None


class Choice(NamedTuple):
    """`chunks` of `width` elements a thread, and so many blocks on a multiprocessor."""

    width: int
    chunks: int
    blocks: int


class Launch(NamedTuple):
    """`start` takes addresses in the order of the kernel's parameters, then eps, then `layout`."""

    kernel: str
    start: Callable[..., None]
    layout: tuple[int, ...]
    aligned: tuple[int, ...]
    """1 for operands whose address must be a multiple of 16, 0 for the others: gate, weight, bias, scale, shift."""


def choose(rows: int, cols: int, size: int, residual: bool, places: Sequence[str | None], processors: int) -> Choice:
    """By what was measured on an H200.

    Few rows are all latency: a thread for every chunk. Where operands come with every row, about 384 threads keep the
    bus busy. Otherwise 128: blocks of few warps wait less at their barrier, and rows of 3072 to 5120 columns moved 15
    to 30 % faster than with a thread for every chunk; but long sums take registers, and 320 threads did better there.
    """
    width = 8 if size == 2 else 4
    wide = residual or size == 4  # held in fp32
    if rows <= 2 * processors:
        return Choice(width, _chunks(cols, width, 1024), 1)
    if "Token" in places or "Frame" in places:
        chunks = _chunks(cols, width, 384)
        return Choice(width, chunks, _blocks(cols, width, chunks, 24 + 2 * width * chunks))
    chunks = _chunks(cols, width, 320 if wide and cols > 4096 else 128)
    eights = width * chunks // 8
    return Choice(width, chunks, _blocks(cols, width, chunks, max(40, 20 * eights - 4) if wide else 24 + 10 * eights))


def _chunks(cols: int, width: int, threads: int) -> int:
    """Chunks a thread so that whole warps share a row equally and come nearest to so many threads, 1024 at most."""
    warps = cols // width // 32
    shares = [warps // chunks for chunks in range(1, warps + 1) if warps % chunks == 0 and warps // chunks <= 32]
    return warps // min(shares, key=lambda share: max(share * 32 / threads, threads / (share * 32)))


def _blocks(cols: int, width: int, chunks: int, registers: int) -> int:
    """Blocks that fit a multiprocessor when a thread takes so many registers; warps are dealt out by fours."""
    threads = cols // (width * chunks)
    return max(1, min(2048 // threads, 65536 // (registers * 128 * -(-threads // 128))))


def place(operand: torch.Tensor | None, spread: Spread | None, batch: int, tokens: int, cols: int) -> str | None:
    """The Place of an operand in solution.cu; None where its vectors cannot be read 16 bytes at a time."""
    if operand is None or spread is None:
        return "Absent"
    if spread.column == 0:
        return "One"
    size = operand.element_size()
    if spread.column != 1 or spread.batch * size % 16 or spread.frame * size % 16:
        return None
    if spread.shared:
        return "Shared"
    dense = spread.frame == cols and spread.tokens == 1 and (batch == 1 or spread.batch == tokens * cols)
    return "Token" if dense else "Frame"


def launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    operands: Sequence[torch.Tensor | None],
    spreads: Sequence[Spread | None],
    layer: bool,
) -> Launch | None:
    """None where this path does not take the layout. `operands` are gate, weight, bias, scale, shift."""
    batch, tokens, cols = x.shape
    rows, size = batch * tokens, x.element_size()
    dense = x.is_contiguous() and (residual is None or residual.is_contiguous())
    places = [place(operand, spread, batch, tokens, cols) for operand, spread in zip(operands, spreads, strict=True)]
    if not dense or cols % STEP or cols > MOST_COLS or None in places:
        return None
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    choice = choose(rows, cols, size, residual is not None, places, processors)
    layout: tuple[int, ...] = ()
    if "Frame" in places or places[1:3] != ["Absent", "Absent"]:
        gate, _, _, scale, shift = (spread or NOT_FRAMED for spread in spreads)
        kernel, layout = "any_row", (tokens, *gate[:3], *scale[:3], *shift[:3])
    else:
        kernel = "plain_row" if residual is None else "residual_row"
    norm = _norm(x, residual is not None, layer, choice, operands, places)
    threads = cols // (choice.width * choice.chunks)
    start = _CU.get(f"{kernel}<{norm}, {choice.blocks}>").prepared(rows, threads, PARAMETERS[kernel])
    return Launch(kernel, start, layout, tuple(int(where != "One") for where in places))


def _norm(
    x: torch.Tensor,
    residual: bool,
    layer: bool,
    choice: Choice,
    operands: Sequence[torch.Tensor | None],
    places: Sequence[str | None],
) -> str:
    """The Norm of solution.cu that a kernel is a template of."""
    given = (
        f"Given<{NAMES[torch.float32 if operand is None else operand.dtype]}, {where}>"
        for operand, where in zip(operands, places, strict=True)
    )
    numbers = (residual, layer, x.shape[2], choice.width, choice.chunks)
    return f"Norm<{NAMES[x.dtype]}, {', '.join(str(int(number)) for number in numbers)}, {', '.join(given)}>"
