"""Builds FLUX.1's transformer from its config, with random weights and inputs: nothing is downloaded."""

from __future__ import annotations

import torch
from diffusers import FluxTransformer2DModel

STEPS = 28


def build(device, dtype, seed, edge, text, model):
    torch.manual_seed(seed)
    with torch.device(device):
        made = FluxTransformer2DModel(**model).to(dtype).eval().requires_grad_(False)
        about = made.config
        rows = torch.arange(edge, dtype=torch.float32)
        places = torch.stack([torch.zeros(edge, edge), *torch.meshgrid(rows, rows, indexing="ij")], dim=-1)
        inputs = {
            "hidden_states": torch.randn(1, edge * edge, about.in_channels, dtype=dtype),
            "encoder_hidden_states": torch.randn(1, text, about.joint_attention_dim, dtype=dtype),
            "pooled_projections": torch.randn(1, about.pooled_projection_dim, dtype=dtype),
            "timestep": torch.full((1,), 0.5, dtype=dtype),
            "guidance": torch.full((1,), 3.5, dtype=dtype) if about.guidance_embeds else None,
            "img_ids": places.view(-1, 3),
            "txt_ids": torch.zeros(text, 3),
            "return_dict": False,
        }
    return made, inputs


def advance(inputs, output):
    """The next of 28 Euler steps: the output is the latent's velocity."""
    time = (inputs["timestep"] - 1 / STEPS).clamp(min=0)
    return inputs | {"hidden_states": inputs["hidden_states"] - output[0] / STEPS, "timestep": time}
