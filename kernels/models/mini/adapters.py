"""The tasks' entries under the signatures of layers.py; each function gets an entry and returns a site's stand-in."""

from __future__ import annotations

from layers import EPS, GATED_EPS


def modulated_norm(entry):
    def call(x, scale, shift):
        return entry(x, None, None, None, None, scale, shift, "norm_scale_shift", "layer", EPS)

    return call


def residual_norm(entry):
    def call(x, residual, gate, scale, shift):
        variant = "residual_gate_norm_scale_shift"
        return entry(x, residual, gate, None, None, scale, shift, variant, "layer", EPS)

    return call


def normed_and_turned(entry):
    def call(q, k, q_weight, k_weight, cos_sin, positions):
        turned = entry(q[0], k[0], q_weight, k_weight, cos_sin, positions, False, EPS)
        if turned is None:  # in place: the projection made them
            return q, k
        return turned[0].unsqueeze(0), turned[1].unsqueeze(0)

    return call


def rms_rows(entry):
    def call(x, weight):
        return entry(x.reshape(-1, x.shape[-1]), weight, None, EPS, "rmsnorm").view(x.shape)

    return call


def turned(entry):
    def call(x, cos, sin):
        return entry(x, cos, sin, "standard", False)

    return call


def gated_norm(entry):
    def call(x, weight, gate, residual):
        return entry(x, weight, None, gate, residual, None, None, None, "rms", GATED_EPS, "norm_tanh_mul_add")

    return call


def gated_sum(entry):
    """residual + gate * x is x * (0 + scale) + shift."""

    def call(x, gate, residual):
        return entry("scale_shift", x, scale=gate, shift=residual, scale_constant=0.0)

    return call


def joined(entry):
    return entry


def normed_silu(entry):
    def call(x, weight, bias, groups):
        return entry(x, weight, bias, groups, EPS)

    return call


def scale_shift_operator(operators):
    def entry(variant, x, scale, shift, scale_constant):
        return operators.scale_shift(x, scale, shift, scale_constant)

    return entry


def tanh_operator(operators):
    def entry(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps, variant):
        return operators.norm_tanh_mul_add(x, weight, bias, scale, shift, norm_type, eps)

    return entry
