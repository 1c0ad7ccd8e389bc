"""What right means for ltx2_qknorm_split_rope, and what there is to beat.

torch.nn.RMSNorm in the dtype of q and k, then the split rotation that LTX-2 was trained with: the product with the
cosine is rounded to that dtype before the sine's is added in fp32.
"""

from __future__ import annotations

import torch

BASE = 10000.0
OTHERS_BESIDE = 3
"""How many tables as wide lie side by side in a buffer that a `sliced` table is cut out of."""


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`table` is the order of cos and sin in memory, `start` begins q so many elements into its buffer."""
    generator = torch.Generator(device=device).manual_seed(seed)
    batch, heads, half = case["batch"], case["heads"], case["head_dim"] // 2
    width, dtype = heads * 2 * half, getattr(torch, case["dtype"])

    def draw(tokens, start=0):
        flat = torch.randn(start + batch * tokens * width, generator=generator, device=device) * spread + offset
        return flat.to(dtype)[start:].view(batch, tokens, width)

    def gain():
        return (1.0 + 0.1 * torch.randn(width, generator=generator, device=device)).to(dtype)

    def tables(name, tokens, first):
        angle = _angles(tokens, heads, half, first, device)
        return {f"{name}_{of}": _placed(getattr(torch, of)(angle).to(dtype), batch, case) for of in ("cos", "sin")}

    return {
        "q": draw(case["q_tokens"], case.get("start", 0)),
        "k": draw(case["k_tokens"]),
        "q_norm_weight": gain(),
        "k_norm_weight": gain(),
        **tables("q", case["q_tokens"], seed % 97),
        **tables("k", case["k_tokens"], seed % 89),
        "eps": case["eps"],
    }


def _angles(tokens, heads, half, first, device):
    """Position times frequency: [tokens, heads, half], where every head has frequencies of its own."""
    position = torch.arange(first, first + tokens, device=device, dtype=torch.float32)
    exponent = torch.arange(heads * half, device=device, dtype=torch.float32) / (heads * half)
    return (position[:, None] * BASE**-exponent).view(tokens, heads, half)


def _placed(table, batch, case):
    """[batch, heads, tokens, half]; in memory the tokens come first, unless the case says otherwise."""
    table = torch.stack([table.roll(shift, dims=0) for shift in range(batch)])
    if case.get("table") == "head_first":
        return table.transpose(1, 2).contiguous()
    if case.get("table") == "sliced":
        buffer = torch.zeros((*table.shape[:3], OTHERS_BESIDE, table.shape[3]), dtype=table.dtype, device=table.device)
        table = buffer[:, :, :, 1].copy_(table)
    return table.transpose(1, 2)


def ltx2_qknorm_split_rope(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps):
    turned = []
    for x, weight, cos, sin in ((q, q_norm_weight, q_cos, q_sin), (k, k_norm_weight, k_cos, k_sin)):
        normal = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
        turned.append(_turned(torch.float32, normal, cos, sin).to(x.dtype))
    return tuple(turned)


def truth(q, k, q_norm_weight, k_norm_weight, q_cos, q_sin, k_cos, k_sin, eps):
    """Rounded nowhere."""
    turned = []
    for x, weight, cos, sin in ((q, q_norm_weight, q_cos, q_sin), (k, k_norm_weight, k_cos, k_sin)):
        wide = x.double()
        normal = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight.double()
        turned.append(_turned(torch.float64, normal, cos.double(), sin.double()))
    return tuple(turned)


def _turned(wide, x, cos, sin):
    heads, half = cos.shape[1], cos.shape[3]
    first, second = x.unflatten(-1, (heads, 2, half)).unbind(-2)
    cos, sin = cos.transpose(1, 2), sin.transpose(1, 2)
    turned_first = (first * cos).to(wide) - second.to(wide) * sin.to(wide)
    turned_second = (second * cos).to(wide) + first.to(wide) * sin.to(wide)
    return torch.stack((turned_first, turned_second), dim=-2).flatten(-3)


def traffic(case):
    """Bytes read, bytes written, flops of one call: q and k in and out once, their tables and the gains once."""
    width, size = case["heads"] * case["head_dim"], getattr(torch, case["dtype"]).itemsize
    elements = case["batch"] * (case["q_tokens"] + case["k_tokens"]) * width
    return (2 * elements + 2 * width) * size, elements * size, 7 * elements
