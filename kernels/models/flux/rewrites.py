"""FLUX's blocks as diffusers computes them, with a call of layers.py for every operation that a kernel can replace."""

from __future__ import annotations

import layers
import torch
from diffusers.models.transformers import transformer_flux as flux


def ada_norm(self, x, timestep=None, class_labels=None, hidden_dtype=None, emb=None):
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.linear(self.silu(emb)).chunk(6, dim=1)
    return layers.modulated_norm(x, self.norm, scale, shift), gate, mlp_shift, mlp_scale, mlp_gate


def ada_norm_single(self, x, emb=None):
    shift, scale, gate = self.linear(self.silu(emb)).chunk(3, dim=1)
    return layers.modulated_norm(x, self.norm, scale, shift), gate


def attend(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, image_rotary_emb=None):
    """Text and image are normed and turned apart and joined afterwards: the angles belong to the tokens."""
    image, text = _split(flux._get_qkv_projections(attn, hidden_states, encoder_hidden_states), attn)
    count = 0 if text is None else text[0].shape[1]
    rotary = image_rotary_emb
    query, key = layers.normed_and_turned(image[0], image[1], attn.norm_q, attn.norm_k, rotary, count)
    value = image[2]
    if text is not None:
        norms = attn.norm_added_q, attn.norm_added_k
        text_query, text_key = layers.normed_and_turned(text[0], text[1], *norms, rotary, 0)
        pairs = (text_query, query), (text_key, key), (text[2], value)
        query, key, value = (torch.cat(pair, dim=1) for pair in pairs)
    out = flux.dispatch_attention_fn(query, key, value, attn_mask=attention_mask).flatten(2, 3).to(query.dtype)
    if text is None:
        return out
    text_out, image_out = out.split_with_sizes([count, out.shape[1] - count], dim=1)
    return attn.to_out[1](attn.to_out[0](image_out.contiguous())), attn.to_add_out(text_out.contiguous())


def _split(projections, attn):
    """Query, key and value of the image and, in a double block, of the text, head by head."""
    image, text = projections[:3], projections[3:]
    shaped = [[x.unflatten(-1, (-1, attn.head_dim)) for x in group] for group in (image, text) if group[0] is not None]
    return shaped[0], shaped[1] if attn.added_kv_proj_dim is not None else None


def single_block(self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None, joint_attention_kwargs=None):
    count = encoder_hidden_states.shape[1]
    x = torch.cat([encoder_hidden_states, hidden_states], dim=1)
    normed, gate = self.norm(x, emb=temb)
    projected = self.proj_mlp(normed)
    attended = self.attn(hidden_states=normed, image_rotary_emb=image_rotary_emb)
    x = layers.gated_sum(self.proj_out(layers.joined(attended, projected, self.act_mlp)), gate, x)
    return x[:, :count], x[:, count:]


def double_block(self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None, joint_attention_kwargs=None):
    normed, *image = self.norm1(hidden_states, emb=temb)
    text_normed, *text = self.norm1_context(encoder_hidden_states, emb=temb)
    out, text_out = self.attn(
        hidden_states=normed, encoder_hidden_states=text_normed, image_rotary_emb=image_rotary_emb
    )
    hidden_states = _rest(out, hidden_states, image, self.norm2, self.ff)
    return _rest(text_out, encoder_hidden_states, text, self.norm2_context, self.ff_context), hidden_states


def _rest(out, x, modulation, norm, feed_forward):
    gate, shift, scale, mlp_gate = modulation
    normed, x = layers.residual_norm(out, x, gate, norm, scale, shift)
    return layers.gated_sum(feed_forward(normed), mlp_gate, x)
