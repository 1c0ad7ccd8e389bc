"""The operations around the decoder's convolutions that kernels can replace: the sites."""

from __future__ import annotations


def normed_silu(x, norm, activation):
    return activation(norm(x))


def residual_end(convolution, x, skip, divisor):
    """The last convolution of a residual block, and what follows it."""
    return (skip + convolution(x)) / divisor
