"""The tasks' entries under the signatures of layers.py."""

from __future__ import annotations


def normed_silu(entry):
    def call(x, norm, activation):
        return entry(x, norm.weight, norm.bias, norm.num_groups, norm.eps)

    return call


def residual_end(entry):
    """The convolution runs without its bias, which the entry adds with the residual."""

    def call(convolution, x, skip, divisor):
        bare = convolution._conv_forward(x, convolution.weight, None)
        return entry(bare, convolution.bias, skip, float(divisor))

    return call
