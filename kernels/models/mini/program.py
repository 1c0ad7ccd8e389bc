"""Builds the mini model: DiT blocks over an edge x edge latent, and a decoder block that doubles the edge."""

from __future__ import annotations

import layers
import torch
import torch.nn.functional as F
from torch import nn

GROUPS = 8
BASE = 10000.0
EULER = 0.05
"""Part of the image that one step takes from the latent."""


def build(device, dtype, seed, dim, heads, edge, text, blocks, channels):
    torch.manual_seed(seed)
    model = Mini(dim, heads, edge, blocks, channels).to(device=device, dtype=dtype)
    model.place_angles(edge * edge, dim // heads, device)
    inputs = {
        "x": torch.randn(1, edge * edge, dim, device=device, dtype=dtype),
        "time": torch.randn(1, dim, device=device, dtype=dtype),
        "text": torch.randn(1, text, dim, device=device, dtype=dtype),
    }
    return model.eval().requires_grad_(False), inputs


def advance(inputs, output):
    """The next step's inputs: the image, folded to the latent's size, moves the first channels."""
    x, change = inputs["x"], F.pixel_unshuffle(output, 2).flatten(2).transpose(1, 2)
    return inputs | {"x": torch.cat([x[..., :12] - EULER * change, x[..., 12:]], dim=-1)}


def image(output):
    """From 0 to 1, for a PNG."""
    return output[0] / 2 + 0.5


class Mini(nn.Module):
    def __init__(self, dim, heads, edge, blocks, channels):
        super().__init__()
        self.edge = edge
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(blocks))
        self.decoder = Decoder(dim, channels)

    def place_angles(self, tokens, head_dim, device):
        """Cosines, then sines, in fp32 whatever the dtype of the weights."""
        exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        angles = torch.arange(tokens, device=device, dtype=torch.float32)[:, None] * BASE**-exponents
        self.register_buffer("cos_sin", torch.cat([angles.cos(), angles.sin()], dim=-1))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("positions", torch.arange(tokens, device=device))

    def forward(self, x, time, text):
        for block in self.blocks:
            x = block(x, time, text, self)
        image = x.transpose(1, 2).unflatten(2, (self.edge, self.edge)).contiguous()
        return self.decoder(image)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(dim, 7 * dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.cross_q, self.cross_kv, self.cross_out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(5 * dim, dim)
        self.q_weight, self.k_weight = (nn.Parameter(_gain(dim // heads)) for _ in range(2))
        self.cross_weight, self.gated_weight = nn.Parameter(_gain(dim)), nn.Parameter(_gain(dim))

    def forward(self, x, time, text, angles):
        parts = self.modulation(F.silu(time)).unsqueeze(1).chunk(7, dim=-1)
        shift, scale, gate, cross_shift, cross_scale, cross_gate, last_gate = parts
        y = self.attend(layers.modulated_norm(x, scale, shift), angles)
        y, x = layers.residual_norm(y, x, gate, cross_scale, cross_shift)
        attended = self.cross(y, text, angles)
        x = layers.gated_norm(attended, self.gated_weight, cross_gate, x)
        return layers.gated_sum(self.down(layers.joined(attended, self.up(x))), last_gate, x)

    def attend(self, x, angles):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        weights = self.q_weight, self.k_weight
        q, k = layers.normed_and_turned(q, k, *weights, angles.cos_sin, angles.positions)
        return self.out(_attention(q, k, v))

    def cross(self, x, text, angles):
        q = layers.rms_rows(self.cross_q(x), self.cross_weight).unflatten(-1, (self.heads, -1))
        k, v = self.cross_kv(text).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return self.cross_out(_attention(layers.turned(q, angles.cos, angles.sin), k, v))


class Decoder(nn.Module):
    def __init__(self, dim, channels):
        super().__init__()
        self.first = nn.Conv2d(dim, channels, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(self.first(x), scale_factor=2.0, mode="nearest")
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=False):
            y = conv(layers.normed_silu(y, norm.weight, norm.bias, GROUPS))
        norm = self.norms[-1]
        return self.last(layers.normed_silu(x + y, norm.weight, norm.bias, GROUPS))


def _gain(size):
    return 1 + 0.1 * torch.randn(size)


def _attention(q, k, v):
    """Of [B,T,H,D]; the heads side by side."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
