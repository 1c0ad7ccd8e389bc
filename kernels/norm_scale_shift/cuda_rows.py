"""The path on a GPU: which kernel of solution.cu takes a call, how it cuts a row, and a launch of few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from modulation import Spread

from harness.cuda import load

NAMES = {torch.bfloat16: "__nv_bfloat16", torch.float16: "__half", torch.float32: "float"}
MOST_COLS = 8192
WIDEST = 16
"""Bytes that a thread loads at once."""
MOST_CHUNKS = 16
"""That threads are to have where vectors are narrow; few blocks on a multiprocessor, or chunks left empty, may make it
more."""
UNEVEN = 1.5
"""Times the cost of a share that leaves chunks empty: it has masks, and slower statistics."""
NOT_FRAMED = Spread(0, 0, 1, 0)
PARAMETERS: dict[str, tuple[type, ...]] = {
    "plain_row": (*[int] * 4, float),
    "residual_row": (*[int] * 7, float),
    "any_row": (*[int] * 9, float, *[int] * 10),
}
_CU = load("solution.cu") if torch.cuda.is_available() else None


class Choice(NamedTuple):
    """`chunks` of `width` elements for each of `threads`, the last one not for all, and blocks on a multiprocessor."""

    width: int
    chunks: int
    threads: int
    blocks: int


class Launch(NamedTuple):
    """`start` takes addresses in the order of the kernel's parameters, then eps, then `layout`."""

    kernel: str
    start: Callable[..., None]
    layout: tuple[int, ...]
    low: tuple[int, ...]
    """Address bits that must be clear, for x (and residual), gate, weight, bias, scale, shift."""


def choose(
    rows: int, cols: int, width: int, size: int, residual: bool, places: Sequence[str | None], processors: int
) -> Choice:
    """By what was measured on an H200.

    Few rows are all latency: a thread for every chunk. Where operands come with every row, about 384 threads keep the
    bus busy. Otherwise 128: blocks of few warps wait less at their barrier, and rows of 3072 to 5120 columns moved 15
    to 30 % faster than with a thread for every chunk; but long sums take registers, and 320 threads did better there.
    The rows in flight count as well: of 3328 columns a multiprocessor held four rows of 13 warps, and reached 72 % of
    a copy.
    """
    vectors, wide = cols // width, residual or size == 4  # wide: held in fp32
    if rows <= 2 * processors:
        chunks = -(-vectors // 1024)
        return Choice(width, chunks, _threads(vectors, chunks), 1)
    framed = "Token" in places or "Frame" in places
    aim = 384 if framed else 320 if wide and cols > 4096 else 128
    aim = max(aim, _threads(vectors, MOST_CHUNKS))

    def cost(choice: Choice) -> float:
        far = max(choice.threads / aim, aim / choice.threads)
        return far / choice.blocks * (1 if choice.threads * choice.chunks == vectors else UNEVEN)

    return min(_shares(vectors, width, framed, wide), key=cost)


def _shares(vectors: int, width: int, framed: bool, wide: bool) -> Iterator[Choice]:
    """Every way of sharing a row among whole warps that wastes neither a warp nor a chunk."""
    for chunks in range(1, -(-vectors // 32) + 1):
        threads, each = _threads(vectors, chunks), chunks * width
        if threads > 1024 or -(-vectors // threads) < chunks:
            continue
        if framed:
            registers = 24 + 2 * each
        elif width == 1:
            registers = 28 + each
        else:
            registers = max(40, -(-20 * each // 8) - 4) if wide else 24 + -(-10 * each // 8)
            registers += 4 if wide and threads * chunks > vectors else 0  # for the mask
        yield Choice(width, chunks, threads, _blocks(threads, registers))


def _threads(vectors: int, chunks: int) -> int:
    """Threads of whole warps, as few as do with so many chunks each."""
    return -(-vectors // (32 * chunks)) * 32


def _blocks(threads: int, registers: int) -> int:
    """Blocks that fit a multiprocessor when a thread takes so many registers. Each of the four schedulers has a quarter
    of the registers, and a thread gets them in units of eight."""
    warps = 512 // (-(-registers // 8) * 8) * 4
    return max(1, min(32, 2048 // threads, warps * 32 // threads))


def place(operand: torch.Tensor | None, spread: Spread | None, batch: int, tokens: int, cols: int) -> str | None:
    """The Place of an operand in solution.cu; None where its columns are not adjacent."""
    if operand is None or spread is None:
        return "Absent"
    if spread.column == 0 and spread.shared:
        return "One"
    if spread.column != 1:
        return None
    if spread.shared:
        return "Shared"
    dense = spread.frame == cols and spread.tokens == 1 and (batch == 1 or spread.batch == tokens * cols)
    return "Token" if dense else "Frame"


def widest(x: torch.Tensor, read: Sequence[tuple[torch.Tensor, Spread]], aligned: int) -> int:
    """Elements of the longest vector that divides a row, and by which x and the operands that are `read` by vectors can
    be loaded if all of them are at multiples of `aligned` bytes."""
    width = WIDEST // x.element_size()
    while width > 1 and not (
        x.shape[2] % width == 0
        and low_bits(x, width) < aligned
        and all(
            low_bits(operand, width) < aligned
            and not any(step * operand.element_size() & low_bits(operand, width) for step in (over.batch, over.frame))
            for operand, over in read
        )
    ):
        width //= 2
    return width


def low_bits(operand: torch.Tensor, width: int) -> int:
    """The bits that an address has clear where vectors of so many elements are loaded, in instructions of 16 bytes."""
    return min(WIDEST, width * operand.element_size()) - 1


def launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    operands: Sequence[torch.Tensor | None],
    spreads: Sequence[Spread | None],
    layer: bool,
    aligned: int = WIDEST,
) -> Launch | None:
    """None where this path does not take the layout. `operands` are gate, weight, bias, scale, shift; all addresses are
    multiples of `aligned`."""
    batch, tokens, cols = x.shape
    rows, size = batch * tokens, x.element_size()
    dense = x.is_contiguous() and (residual is None or residual.is_contiguous())
    places = [place(operand, spread, batch, tokens, cols) for operand, spread in zip(operands, spreads, strict=True)]
    if not dense or rows >= 1 << 31 or cols > MOST_COLS or None in places:
        return None
    by_vectors = [where not in ("Absent", "One") for where in places]
    read = [pair for pair, is_read in zip(zip(operands, spreads, strict=True), by_vectors, strict=True) if is_read]
    width = widest(x, read, aligned)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    choice = choose(rows, cols, width, size, residual is not None, places, processors)
    layout: tuple[int, ...] = ()
    if "Frame" in places or places[1:3] != ["Absent", "Absent"]:
        gate, _, _, scale, shift = (spread or NOT_FRAMED for spread in spreads)
        kernel, layout = "any_row", (tokens, *gate[:3], *scale[:3], *shift[:3])
    else:
        kernel = "plain_row" if residual is None else "residual_row"
    norm = _norm(x, residual is not None, layer, choice, operands, places)
    start = _CU.get(f"{kernel}<{norm}, {choice.blocks}>").prepared(rows, choice.threads, PARAMETERS[kernel])
    low = (low_bits(operand, width) if is_read else 0 for operand, is_read in zip(operands, by_vectors, strict=True))
    return Launch(kernel, start, layout, (low_bits(x, width), *low))


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
