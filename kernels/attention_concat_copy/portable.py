"""The path for every stride, width, address and machine, in Triton: a program moves a tile of tokens of one run."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE, INTERPRETED_TILE = 4096, 1 << 17
"""Elements of a program; the interpreter is slow by the program."""
AS_BITS = {2: torch.int16, 4: torch.int32}
"""By element size: what is only moved needs no arithmetic of its own dtype."""


@triton.jit
def _tokens(
    run, out, rows, tokens, all_tokens, before, width, head_dim, batch_step, token_step, head_step, lane_step,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (column < width)
    batch = row // tokens
    token = row - batch * tokens
    head = (column // head_dim).to(tl.int64)
    lane = column - head * head_dim
    value = tl.load(run + batch * batch_step + token * token_step + head * head_step + lane * lane_step, mask=inside)
    tl.store(out + (batch * all_tokens + before + token) * width + column, value, mask=inside)


def dense_tokens(*runs):
    """The runs [B, S, H, D] one after the other, in a dense tensor; a launch for each."""
    batch, _, heads, head_dim = runs[0].shape
    all_tokens, width = sum(run.shape[1] for run in runs), heads * head_dim
    out = torch.empty((batch, all_tokens, heads, head_dim), dtype=runs[0].dtype, device=runs[0].device)
    bits, before = AS_BITS[out.element_size()], 0
    for run in runs:
        tokens = run.shape[1]
        if run.numel():
            tile = TILE if run.is_cuda else INTERPRETED_TILE
            block = min(triton.next_power_of_2(width), tile)
            together = min(tile // block, triton.next_power_of_2(batch * tokens))
            _tokens[(triton.cdiv(batch * tokens, together), triton.cdiv(width, block))](
                run.view(bits), out.view(bits), batch * tokens, tokens, all_tokens, before, width, head_dim,
                *run.stride(), ROWS=together, BLOCK=block, num_warps=4,
            )  # fmt: skip
        before += tokens
    return out
