"""Builds an image decoder from its config, with random weights and inputs: nothing is downloaded."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL


def build(device, dtype, seed, edge, channels_last, model):
    torch.manual_seed(seed)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with torch.device(device):
        decoder = AutoencoderKL(**model).decoder.to(dtype).to(memory_format=layout)
        latent = torch.randn(1, model["latent_channels"], edge, edge, dtype=dtype).to(memory_format=layout)
    return decoder.eval().requires_grad_(False), {"sample": latent}


def image(output):
    """From 0 to 1, for a PNG."""
    return output[0] / 2 + 0.5
