"""The tasks' entries under the signatures of layers.py; each function gets an entry and returns a site's stand-in."""

from __future__ import annotations

import torch

RESIDUAL = "residual_gate_norm_scale_shift"


def modulated_norm(entry):
    def call(x, norm, scale, shift):
        return entry(x, None, None, None, None, scale, shift, "norm_scale_shift", "layer", norm.eps)

    return call


def gated_norm(entry):
    """A norm without modulation is one whose scale and shift are zero."""
    zeros = Kept()

    def call(x, residual, gate, norm):
        zero = zeros.of(x, lambda: x.new_zeros(1))
        return entry(x, residual, gate, norm.weight, norm.bias, zero, zero, RESIDUAL, "layer", norm.eps)

    return call


def summed_norm(entry):
    def call(x, residual, norm, scale, shift):
        return entry(x, residual, None, None, None, scale, shift, RESIDUAL, "layer", norm.eps)

    return call


def gated_sum(entry):
    """residual + gate * x is x * (0 + scale) + shift."""

    def call(x, gate, residual):
        return entry("scale_shift", x, scale=gate, shift=residual, scale_constant=0.0)

    return call


def rms_rows(entry):
    def call(x, norm):
        return entry(x.reshape(-1, x.shape[-1]), norm.weight, None, norm.eps, "rmsnorm").view(x.shape)

    return call


def turned(entry):
    tables = Kept(by_identity=True)

    def call(x, rotary):
        cos, sin = tables.of(rotary[0], lambda: _halves(*rotary))
        return entry(x, cos, sin, "standard", False)

    return call


def _halves(cos, sin):
    """One angle a pair, as the kernel reads them."""
    return cos[0, :, 0, 0::2].contiguous(), sin[0, :, 0, 1::2].contiguous()


class Kept:
    """What is made of a tensor, once for a device and dtype or once for each tensor; made anew in a compiled graph."""

    def __init__(self, by_identity=False):
        self._by_identity, self._of, self._made = by_identity, None, None

    def of(self, tensor, make):
        if torch.compiler.is_compiling():
            return make()
        key = tensor if self._by_identity else (tensor.device, tensor.dtype)
        if (self._of is not key) if self._by_identity else (self._of != key):
            self._of, self._made = key, make()
        return self._made


def scale_shift_operator(operators):
    def entry(variant, x, scale, shift, scale_constant):
        return operators.scale_shift(x, scale, shift, scale_constant)

    return entry
