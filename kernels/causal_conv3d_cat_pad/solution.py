"""Frames behind cached frames, zero-padded, in one write: what a causal 3-D convolution of a video decoder takes.

CUDA C++ (solution.cu) where frames lie densely, in words of 4 bytes, or of 2 where rows are not whole words of 4 before
and after padding; Triton (portable.py) for the rest and on a CPU. What a call needs is worked out once for every form
of the arguments and kept.
"""

from __future__ import annotations

import torch
from portable import padded_block

from harness.cuda import Plans, load, outputs_like

SIZES = (1, 2, 4, 8)
LARGEST_BLOCK, USUAL_BLOCK = 1024, 128
BLOCKS_OF_A_WAVE = 100
"""A small call is one wave of blocks, as large as that takes; a larger one has blocks of 128 threads."""
WORDS = {4: "unsigned", 2: "unsigned short"}
"""By their bytes."""
MOST_WORDS = 2**31 - 8 * LARGEST_BLOCK
"""Of a tensor: words are counted in 32 bits."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def causal_conv3d_cat_pad(x, cache, padding):
    """A new dense [N, C, T + front + back, H + top + bottom, W + left + right] from x [N, C, T, H, W].

    padding is (left, right, top, bottom, front, back); the frames of cache, [N, C, up to front, H, W] or None, take the
    place of the last of those in front.
    """
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return causal_conv3d_cat_pad(x, cache, padding)
    given = (x,) if cache is None else (x, cache)
    key = x.shape, *padding, cache is None
    for same_form, launch, output, words, low in _plans.get(key, ()):
        if same_form(*given):
            x_at, cache_at = x.data_ptr(), 0 if cache is None else cache.data_ptr()
            if launch is None or (x_at | cache_at) & low:
                return padded_block(x, cache, padding)
            out = output()
            launch(cache_at, x_at, out.data_ptr(), words)
            return out
    _check(x, cache, padding)
    _plans.keep(key, given, _plan(x, cache, padding))
    return causal_conv3d_cat_pad(x, cache, padding)


def _plan(x, cache, padding):
    """The launch for arguments of this form, its output, the words of that and the address bits that must be clear; no
    launch where only Triton will do."""
    (batch, channels, frames, height, width), size = x.shape, x.element_size()
    left, right, top, bottom, front, back = padding
    cached = 0 if cache is None else cache.shape[2]
    shape = batch, channels, frames + front + back, height + top + bottom, width + left + right
    steps = [_step(cache) if cached else 0, _step(x)]
    if not x.is_cuda or not x.numel() or None in steps:
        return None, None, 0, 0
    word = next((word for word in WORDS if not any(n * size % word for n in (width, shape[4], *steps))), 0)
    if not word or (word == 2 and left * size % 2):
        return None, None, 0, 0
    row, of_vector = shape[4] * size // word, 16 // word
    words = torch.Size(shape).numel() * size // word
    steps = [step * size // word for step in steps]
    if (
        row < of_vector  # a vector would then span more than two rows
        or (not top and row * shape[3] % of_vector)  # or two frames
        or max(words, *(batch * channels * step for step in steps)) > MOST_WORDS
    ):
        return None, None, 0, 0
    model = (
        *(WORDS[word], width * size // word, left * size, right * size, height, top, shape[3]),
        *(front - cached, cached, frames, shape[2], *steps),
    )
    vectors = -(-words // of_vector)
    threads = -(-vectors // (BLOCKS_OF_A_WAVE * 128)) * 128
    threads = threads if threads <= LARGEST_BLOCK else USUAL_BLOCK
    kernel = _CU.get(f"padded_frames<{', '.join(map(str, model))}>")
    launch = kernel.prepared(-(-vectors // threads), threads, [int] * 4)
    return launch, outputs_like(x.new_empty(1).expand(shape), torch.contiguous_format), words, word - 1


def _step(tensor):
    """Elements between channels, where their frames lie densely and all channels as far from each other; else None."""
    batch, channels, *inner = tensor.shape
    dense = 1
    for length, stride in zip(reversed(inner), reversed(tensor.stride()[2:]), strict=True):
        if length > 1 and stride != dense:
            return None
        dense *= length
    step = tensor.stride(1) if channels > 1 else tensor.stride(0) if batch > 1 else dense
    if (batch > 1 and tensor.stride(0) != channels * step) or step < dense:
        return None
    return step


def _check(x, cache, padding):
    if x.dim() != 5 or x.element_size() not in SIZES or x.dtype.is_complex:
        raise ValueError(f"x must be [N, C, T, H, W] of a real dtype, not {list(x.shape)} of {x.dtype}")
    if len(padding) != 6 or min(padding) < 0:
        raise ValueError(f"padding {list(padding)} must be six numbers, none negative")
    if not x.shape[2]:
        raise ValueError(f"x of shape {list(x.shape)} has no frames")
    if cache is None:
        return
    if cache.dtype != x.dtype or cache.device != x.device:
        raise ValueError(f"cache is {cache.dtype} on {cache.device}, but x {x.dtype} on {x.device}")
    if cache.dim() != 5 or cache.shape[:2] != x.shape[:2] or cache.shape[3:] != x.shape[3:]:
        raise ValueError(f"cache of shape {list(cache.shape)} does not go with x, {list(x.shape)}")
    if cache.shape[2] > padding[4]:
        raise ValueError(f"cache has {cache.shape[2]} frames, more than the {padding[4]} that go in front of x")
