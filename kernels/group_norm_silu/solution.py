"""GroupNorm over groups of channels and SiLU, in the layout of x: fp32 inside, one rounding at the store.

CUDA C++ (solution.cu) in one launch, whose teams of blocks hold a group on the chip between its statistics and its
output; launches.py says which kernel takes what. Triton (portable.py) in two launches where a channel has less than 16
bytes or, channels-last, groups are no whole vectors, where x begins off 16 bytes, and on a CPU. Statistics are centred
everywhere. For inference: no gradients.

The rows of small calls are done in a few microseconds, so a call costs few Python statements: what has to be looked at
is looked at once for every form of the arguments and kept.
"""

from __future__ import annotations

import portable
import torch
from launches import Chip, choose

from harness.cuda import Plans, load, outputs_like

IN_CUDA = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
LARGEST_GROUP = 2**31 - 2**22

_CU = load("solution.cu") if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0) else None
_SEVERAL_GPUS = torch.cuda.device_count() > 1
_plans = Plans()
_workspaces: dict = {}


def group_norm_silu(x, weight, bias, num_groups, eps, keeps_workspace=True):
    """A workspace is kept for the next call; op.py keeps none, because torch's CUDA graphs own what is made in them."""
    if _SEVERAL_GPUS and x.get_device() not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(x.get_device()):
            return group_norm_silu(x, weight, bias, num_groups, eps, keeps_workspace)
    key = x.shape, num_groups
    for same_form, launch, output, numbers, space in _plans.get(key, ()):
        if same_form(x, weight, bias):
            x_at, weight_at, bias_at = x.data_ptr(), weight.data_ptr(), bias.data_ptr()
            if launch is None or (x_at | weight_at | bias_at) & 15:
                return _in_triton(x, weight, bias, num_groups, eps)
            out = output()
            if space is None:
                launch(x_at, weight_at, bias_at, out.data_ptr(), 0, *numbers, float(eps))
            else:
                workspace = _workspace(*space, keeps_workspace)
                launch(x_at, weight_at, bias_at, out.data_ptr(), workspace.data_ptr(), *numbers, float(eps))
            return out
    _plans.keep(key, (x, weight, bias), _plan(x, weight, bias, num_groups))
    return group_norm_silu(x, weight, bias, num_groups, eps, keeps_workspace)


def _plan(x, weight, bias, num_groups):
    """The launch for arguments of this form, its output, numbers and workspace; no launch where only Triton will do."""
    _check(x, weight, bias, num_groups)
    if _CU is None or not x.is_cuda or not x.numel() or not (x.is_contiguous() or _is_channels_last(x)):
        return None, None, (), None
    about = torch.cuda.get_device_properties(x.device)
    chip = Chip(about.multi_processor_count, about.shared_memory_per_block_optin)
    kind, channels_last = IN_CUDA[x.dtype], not x.is_contiguous()
    chosen = choose(chip, kind, x.element_size(), tuple(x.shape), num_groups, channels_last)
    if chosen is None:
        return None, None, (), None
    kinds = (*[int] * (5 + len(chosen.rest)), float)
    launch = _CU.get(chosen.kernel).prepared(chosen.grid, chosen.threads, kinds, chosen.shared)
    space = (x.get_device(), chosen.grid, chosen.words) if chosen.words else None
    return launch, outputs_like(x), chosen.rest, space


def _workspace(device, grid, words, keeps):
    """Where blocks exchange moments: one for every stream, whose calls follow each other, and for every graph. They
    count the blocks that have begun, so that launches of different size cannot share one.

    Whoever takes it must have launched before letting it go. Then one that a thread replaces may be freed: it was
    allocated on the stream on which all its users are, and what the allocator gives it to next follows them there.
    """
    if not keeps or torch.cuda.is_current_stream_capturing():
        return torch.zeros(words, dtype=torch.int64, device=device)
    user = device, torch._C._cuda_getCurrentRawStream(device), grid
    kept = _workspaces.get(user)
    if kept is None:
        kept = _workspaces.setdefault(user, torch.zeros(words, dtype=torch.int64, device=device))
    if kept.numel() < words:
        kept = _workspaces[user] = torch.zeros(words, dtype=torch.int64, device=device)
    return kept


def _in_triton(x, weight, bias, num_groups, eps):
    if x.is_contiguous() or _is_channels_last(x):
        return portable.group_norm_silu(x, weight, bias, num_groups, eps, not x.is_contiguous())
    packed = portable.group_norm_silu(x.contiguous(), weight, bias, num_groups, eps, False)
    return torch.empty_like(x).copy_(packed)


def _is_channels_last(x):
    return x.movedim(1, -1).is_contiguous()


def _check(x, weight, bias, num_groups):
    if x.dtype not in IN_CUDA:
        raise ValueError(f"x is {x.dtype}; group_norm_silu takes float32, bfloat16 and float16")
    if x.ndim < 2:
        raise ValueError(f"x of shape {list(x.shape)}: batch and channels are needed, then any number of dimensions")
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"{channels} channels cannot be shared by {num_groups} groups")
    if x.numel() and x[0].numel() // num_groups > LARGEST_GROUP:
        raise ValueError(f"groups of {x[0].numel() // num_groups} values are too large; {LARGEST_GROUP} at most")
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector.shape != (channels,) or not vector.is_contiguous():
            raise ValueError(f"{name} of shape {list(vector.shape)}: {channels} channels take a packed one as long")
        if vector.dtype != x.dtype or vector.device != x.device:
            raise ValueError(f"{name} is {vector.dtype} on {vector.device}, but x {x.dtype} on {x.device}")
