"""The tasks' entries under the signatures of layers.py; each function gets an entry and returns a site's stand-in."""

from __future__ import annotations

import torch


def modulated_norm(entry):
    def call(x, norm, scale, shift):
        return entry(x, None, None, None, None, scale, shift, "norm_scale_shift", "layer", norm.eps)

    return call


def residual_norm(entry):
    def call(x, residual, gate, norm, scale, shift):
        variant = "residual_gate_norm_scale_shift"
        return entry(x, residual.contiguous(), gate, None, None, scale, shift, variant, "layer", norm.eps)

    return call


def gated_sum(entry):
    """residual + gate * x is x * (0 + scale) + shift."""

    def call(x, gate, residual):
        return entry("scale_shift", x, scale=gate, shift=residual, scale_constant=0.0)

    return call


def normed_and_turned(entry):
    """In place, because the projections made query and key for this call alone; the operator for compile returns new
    ones. The kernel takes one batch at a time."""
    tables = Tables()

    def call(query, key, query_norm, key_norm, rotary, first):
        cos_sin, positions = tables.of(rotary)
        places = positions[first : first + query.shape[1]]
        weights = query_norm.weight, key_norm.weight
        turned = [
            entry(one_query, one_key, *weights, cos_sin, places, False, query_norm.eps)
            for one_query, one_key in zip(query, key, strict=True)
        ]
        return (query, key) if turned[0] is None else tuple(map(_batch, zip(*turned, strict=True)))

    return call


def joined(entry):
    """diffusers' activation is GELU in its tanh form, which the kernel computes itself."""

    def call(attended, projected, activation):
        return entry(attended, projected)

    return call


def _batch(parts):
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)


class Tables:
    """Cosines next to sines, as the kernel reads them: made once a step, because all blocks share the angles."""

    def __init__(self):
        self._cos, self._made = None, None

    def of(self, rotary):
        cos, sin = rotary
        if torch.compiler.is_compiling():
            return _table(cos, sin)
        if self._cos is not cos:
            self._cos, self._made = cos, _table(cos, sin)
        return self._made


def _table(cos, sin):
    """diffusers has every angle twice, one for each of a pair."""
    joined = torch.cat([cos[:, ::2], sin[:, ::2]], dim=1).float().contiguous()
    return joined, torch.arange(len(joined), device=joined.device)


def scale_shift_operator(operators):
    def entry(variant, x, scale, shift, scale_constant):
        return operators.scale_shift(x, scale, shift, scale_constant)

    return entry
