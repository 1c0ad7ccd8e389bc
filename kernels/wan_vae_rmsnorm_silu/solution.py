"""Wan's RMSNorm over channels and SiLU, in the layout of x: fp32 inside, one rounding at the store.

CUDA C++ (solution.cu) for dense tensors whose channels, or the positions that follow each other in memory, are whole
16-byte vectors: channels-last, contiguous, or with frames outside of channels. Triton (portable.py) for every other
form and on a CPU. What has to be looked at is looked at once for every form of the arguments and kept. For inference:
no gradients.
"""

from __future__ import annotations

import portable
import torch

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
MOST_CHANNELS = 32768
"""Of a position, which one program of Triton holds."""
MOST_EACH, TEAM_THREADS = 8, 128
"""Vectors of a row to a lane, channels-last; teams share no more than their block."""
IN_A_BLOCK, LARGEST_BLOCK = 1024, 512
"""Channels that a block takes where they lie apart, and its most threads."""
VECTORS_EACH = (3, 6, 12)
"""Of a thread there: few, so that small calls fill the GPU, or so many that the barrier joins few warps."""

_CU = load("solution.cu") if torch.cuda.is_available() else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()


def wan_vae_rmsnorm_silu(x, gamma, bias=None):
    """silu(x / max(|x|, 1e-12) * sqrt(C) * gamma + bias) of x [B, C, ...], with norms |x| over the channels."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return wan_vae_rmsnorm_silu(x, gamma, bias)
    given = (x, gamma) if bias is None else (x, gamma, bias)
    key = x.shape, bias is None
    for same_form, launch, output, numbers in _plans.get(key, ()):
        if same_form(*given):
            x_at, gamma_at, bias_at = x.data_ptr(), gamma.data_ptr(), 0 if bias is None else bias.data_ptr()
            if launch is None or (x_at | gamma_at | bias_at) & 15:
                return _in_triton(x, gamma, bias)
            out = output()
            launch(x_at, gamma_at, bias_at, out.data_ptr(), *numbers)
            return out
    _check(x, gamma, bias)
    _plans.keep(key, given, _plan(x, gamma, bias))
    return wan_vae_rmsnorm_silu(x, gamma, bias)


def _plan(x, gamma, bias):
    """The launch for arguments of this form, its output and numbers; no launch where only Triton will do."""
    channels, width, lying = x.shape[1], 16 // x.element_size(), _lying(x)
    vectors_packed = all(vector is None or vector.stride(0) == 1 or channels == 1 for vector in (gamma, bias))
    if not x.is_cuda or not x.numel() or lying is None or not vectors_packed:
        return None, None, ()
    outer, inner = lying
    kind, biased = IN_CUDA[x.dtype], str(bias is not None).lower()
    if inner == 1 and channels % width == 0 and channels // width <= 32 * MOST_EACH and outer < 2**31:
        vectors = channels // width
        team = _team(vectors)
        name = f"normed_rows<{kind}, {vectors}, {team}, {TEAM_THREADS}, {biased}>"
        grid, threads, count = -(-outer * team // TEAM_THREADS), TEAM_THREADS, outer
    elif inner % width == 0 and channels <= IN_A_BLOCK and channels * inner // width < 2**31 and outer < 2**16:
        count = inner // width
        lanes, threads, blocks = _tile(count, outer, channels, torch.cuda.get_device_properties(x.device))
        name = f"normed_columns<{kind}, {channels}, {lanes}, {threads}, {blocks}, {biased}>"
        grid = -(-count // lanes), outer
    else:
        return None, None, ()
    launch = _CU.get(name).prepared(grid, threads, (*[int] * 5, float))
    return launch, outputs_like(x), (count, channels**0.5)


def _lying(x):
    """What lies outside of the channels and what inside of them, if x is dense; else None."""
    outside, inside, dense, seen = 1, 1, 1, False
    for stride, dim in sorted((stride, dim) for dim, stride in enumerate(x.stride()) if x.shape[dim] > 1):
        if stride != dense:
            return None
        dense *= x.shape[dim]
        if dim == 1:
            seen = True
        elif seen:
            outside *= x.shape[dim]
        else:
            inside *= x.shape[dim]
    return (outside, inside) if seen or x.shape[1] > 1 else (inside, 1)


def _team(vectors):
    """Lanes that take a row: as few idle as can be, then about three vectors to each."""
    each = {lanes: -(-vectors // lanes) for lanes in (1, 2, 4, 8, 16, 32)}
    able = [lanes for lanes in each if each[lanes] <= MOST_EACH]
    return min(able, key=lambda lanes: (lanes * each[lanes] * 8 // vectors, abs(each[lanes] - 3)))


def _tile(vectors, outer, channels, device):
    """Vectors side by side that a block takes, its threads, and as many blocks as are to fit a multiprocessor."""
    processors = device.multi_processor_count
    lanes = 16 if channels <= 128 else 8
    while lanes > 4 and -(-vectors // lanes) * outer < processors:
        lanes //= 2
    share = vectors * outer * channels // (processors * 1024)
    each = next((each for each in VECTORS_EACH if each >= share), VECTORS_EACH[-1])
    threads = min(-(-(-(-channels // each) * lanes) // 32) * 32, LARGEST_BLOCK)
    each = -(-channels * lanes // threads)
    registers = max(64, 36 + 4 * each)  # what ptxas needs to spill next to nothing
    return lanes, threads, max(1, min(32, 2048 // threads, 65536 // (registers * threads)))


def _in_triton(x, gamma, bias):
    if not x.numel():
        return torch.empty_like(x)
    lying = _lying(x)
    if lying is None:
        x = torch.empty_like(x).copy_(x)  # which keeps the order of the strides
        lying = _lying(x)
    return portable.normed(x, gamma, bias, *lying)


def _check(x, gamma, bias):
    if x.dim() < 2 or x.dtype not in IN_CUDA:
        raise ValueError(f"x must be [B, C, ...] of float32, bfloat16 or float16, not {list(x.shape)} of {x.dtype}")
    channels = x.shape[1]
    if not 0 < channels <= MOST_CHANNELS:
        raise ValueError(f"x has {channels} channels; 1 to {MOST_CHANNELS} can be normalized")
    for name, vector in (("gamma", gamma), ("bias", bias)):
        if vector is None and name == "bias":
            continue
        if not vector.dim() or vector.shape[0] != channels or vector.numel() != channels:
            raise ValueError(f"{name} of shape {list(vector.shape)}: {channels} channels take [{channels}, 1, ...]")
        if vector.dtype != x.dtype or vector.device != x.device:
            raise ValueError(f"{name} is {vector.dtype} on {vector.device}, but x {x.dtype} on {x.device}")
