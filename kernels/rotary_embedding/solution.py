"""Rotary embedding, out of place: adjacent pairs with fp32 tables, or LTX-2's halves with bf16 tables of every head.

CUDA C++ (solution.cu) for bf16 whose lanes lie side by side, in words of 16 bytes, or of 8, 4 or 2 where widths or
strides are not multiples of 16; Triton (portable.py) for every other layout, for halves of more than 256, and on a CPU.
Every element is read once and written once, so the work is to keep the memory busy:

- halves take the kernel and the block that their size asks for (BY_SIZE);
- adjacent pairs take a block per token, and a thread two heads, for which it reads the tables once: 79.6 us for 27030
  tokens of 24 heads, where one head a thread takes 81.6, three 80.4 and four 80.8; words shorter than 16 bytes take
  four heads, to have as many bytes in flight;
- a call too small to fill the GPU takes so large blocks that every multiprocessor starts one, and only one: 1.96 us for
  2 x 126 tokens in blocks of 512, 2.03 in blocks of 256.

A call costs a handful of Python statements, because a small one is done in 2 us on the device: what has to be looked
at, is looked at once for every form of the arguments and kept.
"""

from __future__ import annotations

import math

import torch
from checks import check
from portable import turn

from harness.cuda import Plans, load, outputs_like

VECTOR = 8
"""Elements of bf16 in 16 bytes."""
WORDS = {8: "uint4", 4: "uint2", 2: "u32", 1: "u16"}
"""What solution.cu reads at a time, by its elements of bf16."""
BLOCK = 256
SMALL_BLOCKS = (128, 256, 512, 1024)
BY_SIZE = (
    (20e6, "halves", 768),
    (50e6, "halves_by_lanes", 512),
    (100e6, "halves_exchanged", 512),
    (200e6, "halves_exchanged", 256),
    (math.inf, "halves_by_lanes", 256),
)
"""Kernel and block for calls of packed halves that move up to so many bytes; in us on an H200, two rounds:

19 MB, all of it in flight at once in two blocks a multiprocessor: halves 5.48 (in blocks of 512 5.56), by lanes 5.58;
38 MB: by lanes 9.45, halves 9.46 to 9.53, exchanged 9.51;
75 MB: exchanged 17.03 (in blocks of 256 17.14), by lanes 17.10, halves 17.21;
151 MB: exchanged 32.90 (in blocks of 512 32.98), by lanes 33.08, halves 32.95 and, for halves of 64 bytes, 33.40;
302 MB: by lanes 67.3, exchanged 67.5, halves 67.9; 604 MB: by lanes 135.5, exchanged 136.0, halves 136.5.
"""
PAIR_BYTES = 6 * 16
"""Two vectors read and two written, and one of each table."""
EACH = {4: 2, 2: 4, 1: 4}
"""Pairs of words to a thread where halves are packed and many, by the elements of a word."""
WIDEST_ROWS = 512, 1024
"""Threads for a token of adjacent pairs; more than the first only where nothing else will do."""
PRODUCTION = (
    "halves<4>", "halves_by_lanes<4>", "halves_by_lanes<8>", "halves_exchanged<4>", "halves_exchanged<8>",
    "adjacent_pairs<16, 2, uint4>",
)  # fmt: skip

_CU = load("solution.cu", names=PRODUCTION) if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def rotary_embedding(x, cos, sin, variant, interleaved=False):
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return rotary_embedding(x, cos, sin, variant, interleaved)
    for same_form, launch, beyond, sizes, output in _plans.get((x.shape, variant, interleaved), ()):
        if same_form(x, cos, sin):
            x_at, cos_at, sin_at = x.data_ptr(), cos.data_ptr(), sin.data_ptr()
            if launch is None or (x_at | cos_at | sin_at) & beyond:
                return _in_triton(x, cos, sin, variant, interleaved)
            out = output()
            launch(x_at, cos_at, sin_at, out.data_ptr(), *sizes)
            return out
    _plans.keep((x.shape, variant, interleaved), (x, cos, sin), _plan(x, cos, sin, variant, interleaved))
    return rotary_embedding(x, cos, sin, variant, interleaved)


def _in_triton(x, cos, sin, variant, interleaved):
    if variant == "ltx2_split":
        heads, half = cos.shape[1], cos.shape[3]
        return turn(x.unflatten(-1, (heads, 2 * half)), cos.transpose(1, 2), sin.transpose(1, 2), True).view(x.shape)
    if interleaved and cos.shape[1] == x.shape[-1]:
        cos, sin = cos[:, ::2], sin[:, ::2]
    heads_of_tokens = x if x.dim() == 4 else x[None]
    return turn(heads_of_tokens, cos[None, :, None], sin[None, :, None], False).view(x.shape)


def _plan(x, cos, sin, variant, interleaved):
    """The launch for arguments of this form, the address bits that must be clear, its last arguments, and what makes
    the output; no launch where only Triton will do."""
    check(x, cos, sin, variant, interleaved)
    if not x.is_cuda or x.dtype != torch.bfloat16 or not 0 < x.numel() < 2**31:
        return None, 0, (), None
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    planned = _halves(x, cos, sin, multiprocessors) if variant == "ltx2_split" else _adjacent_pairs(x, cos, sin)
    if planned is None:
        return None, 0, (), None
    width, kernel, grid, block, sizes = planned
    launch = _CU.get(kernel).prepared(grid, block, (int,) * (4 + len(sizes)))
    return launch, 2 * width - 1, sizes, outputs_like(x, memory_format=torch.contiguous_format)


def _steps(tensor):
    """Strides; 0 where there is only one to step to, as torch may say anything there."""
    return [stride if length > 1 else 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _halves(x, cos, sin, multiprocessors):
    """Elements of a word, kernel, grid, block and last arguments; None where only Triton will do."""
    batch, heads, tokens, half = cos.shape
    if half > 256 or x.stride(2) != 1 or batch > 65535:
        return None
    strides = (*_steps(x)[:2], *_steps(cos)[:3], *_steps(sin)[:3])
    width = math.gcd(VECTOR, half, *strides)
    words, pairs = half // width, tokens * heads * half // width
    if x.is_contiguous() and all(table.transpose(1, 2).is_contiguous() for table in (cos, sin)):
        packed = _packed_halves if width == VECTOR else _packed_in_words
        return width, *packed(words, batch * pairs, multiprocessors, width)
    block = _block_of_few(pairs, multiprocessors // batch) or BLOCK
    sizes = (pairs, heads, *(stride // width for stride in strides))
    return width, f"halves_strided<{words}, {WORDS[width]}>", (-(-pairs // block), batch), block, sizes


def _packed_halves(vectors, pairs, multiprocessors, _):
    in_warps = vectors & (vectors - 1) == 0 and vectors <= 16
    kernel = "halves_by_lanes" if in_warps else "halves"
    block = _block_of_few(pairs * (2 if in_warps else 1), multiprocessors)
    if block is None and in_warps:
        kernel, block = next((kernel, block) for most, kernel, block in BY_SIZE if pairs * PAIR_BYTES <= most)
        if kernel == "halves_exchanged" and pairs % 32:
            kernel = "halves_by_lanes"
    threads, block = pairs * (2 if kernel == "halves_by_lanes" else 1), block or BLOCK
    return f"{kernel}<{vectors}>", -(-threads // block), block, (pairs,)


def _packed_in_words(words, pairs, multiprocessors, width):
    block = _block_of_few(pairs, multiprocessors)
    block, each = (block, 1) if block else (BLOCK, EACH[width])
    return f"halves_in_words<{words}, {WORDS[width]}, {each}>", -(-pairs // (block * each)), block, (pairs,)


def _block_of_few(threads, multiprocessors):
    """Threads to a block where one block a multiprocessor is enough for all; else None."""
    return next((size for size in SMALL_BLOCKS if -(-threads // size) <= multiprocessors), None)


def _adjacent_pairs(x, cos, sin):
    """Elements of a word, kernel, grid, block and last arguments; None where only Triton will do.

    A word of x takes as many bytes of each table.
    """
    heads_of_tokens = x if x.dim() == 4 else x[None]
    batch, tokens, heads, dim = heads_of_tokens.shape
    x_batch, x_token, x_head, _ = _steps(heads_of_tokens)
    cos_token, sin_token = _steps(cos)[0], _steps(sin)[0]
    width = math.gcd(VECTOR, dim, x_batch, x_token, 2 * cos_token, 2 * sin_token)
    tables_fit = cos.shape[1] == dim // 2 and (dim == 2 or cos.stride(1) == sin.stride(1) == 1)
    if width == 1 or not tables_fit or x.stride(-1) != 1 or (heads > 1 and x_head != dim) or batch > 65535:
        return None
    columns, fewest = dim // width, 2 if width == VECTOR else 4
    for widest in WIDEST_ROWS:
        for together in (min(fewest, heads), 4 if width == VECTOR else 8):
            threads = columns * -(-heads // together)
            if threads <= widest:
                rows = max(1, min(BLOCK // threads, tokens))
                steps = x_batch // width, x_token // width, 2 * cos_token // width, 2 * sin_token // width
                kernel, grid = f"adjacent_pairs<{columns}, {together}, {WORDS[width]}>", (-(-tokens // rows), batch)
                return width, kernel, grid, (threads, rows), (tokens, heads * columns, *steps)
    return None
