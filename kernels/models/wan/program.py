"""Builds Wan's transformer from its config, with random weights and inputs: nothing is downloaded."""

from __future__ import annotations

import torch
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

CHANNELS = 16
STEPS, SCALE = 50, 1000


def build(device, dtype, seed, latent, text, model):
    torch.manual_seed(seed)
    with torch.device(device):
        made = WanTransformer3DModel(cross_attn_norm=True, qk_norm="rms_norm_across_heads", **model).to(dtype)
        keep_wide(made)
        inputs = {
            "hidden_states": torch.randn(1, CHANNELS, *latent, dtype=dtype),
            "timestep": torch.full((1,), 500, dtype=torch.int64),
            "encoder_hidden_states": torch.randn(1, text, made.config.text_dim, dtype=dtype),
            "return_dict": False,
        }
    return made.eval().requires_grad_(False), inputs


def advance(inputs, output):
    """The next of 50 Euler steps: the output is the latent's velocity."""
    time = (inputs["timestep"] - SCALE // STEPS).clamp(min=0)
    return inputs | {"hidden_states": inputs["hidden_states"] - output[0] / STEPS, "timestep": time}


def keep_wide(model):
    """Norms, modulation tables and the angles stay in fp32, as when the model is loaded from a checkpoint."""
    kept = set(model._keep_in_fp32_modules)
    for name, parameter in model.named_parameters():
        if kept & set(name.split(".")):
            parameter.data = parameter.data.float()
    model.rope = WanRotaryPosEmbed(model.config.attention_head_dim, model.config.patch_size, 1024)  # not rounded
    model.rope.freqs_cos, model.rope.freqs_sin = model.rope.freqs_cos.float(), model.rope.freqs_sin.float()
