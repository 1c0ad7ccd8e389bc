"""Wan's block as diffusers computes it, with a call of layers.py for every operation that a kernel can replace."""

from __future__ import annotations

import layers
from diffusers.models.transformers import transformer_wan as wan


def attend(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
    query, key, value = wan._get_qkv_projections(attn, hidden_states, encoder_hidden_states)
    query, key = layers.rms_rows(query, attn.norm_q), layers.rms_rows(key, attn.norm_k)
    query, key, value = (x.unflatten(2, (attn.heads, -1)) for x in (query, key, value))
    if rotary_emb is not None:
        query, key = layers.turned(query, rotary_emb), layers.turned(key, rotary_emb)
    out = wan.dispatch_attention_fn(query, key, value, attn_mask=attention_mask, dropout_p=0.0, is_causal=False)
    return attn.to_out[1](attn.to_out[0](out.flatten(2, 3).type_as(query)))


def block(self, hidden_states, encoder_hidden_states, temb, rotary_emb):
    modulation = (self.scale_shift_table + temb.float()).chunk(6, dim=1)
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation
    x = hidden_states
    out = self.attn1(layers.modulated_norm(x, self.norm1, scale, shift), None, None, rotary_emb)
    normed, x = layers.gated_norm(out, x, gate, self.norm2)
    out = self.attn2(normed, encoder_hidden_states, None, None)
    normed, x = layers.summed_norm(out, x, self.norm3, mlp_scale, mlp_shift)
    return layers.gated_sum(self.ffn(normed), mlp_gate, x)
