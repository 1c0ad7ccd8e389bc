"""The operations around the decoder's convolutions that kernels can replace: the sites."""

from __future__ import annotations


def normed_silu(x, norm, activation):
    return activation(norm(x))


def last(convolution, x, skip, divisor):
    """The end of a residual block."""
    return (skip + convolution(x)) / divisor
