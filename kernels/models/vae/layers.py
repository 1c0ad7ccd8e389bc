"""The operation between the decoder's convolutions that a kernel can replace: the site."""

from __future__ import annotations


def normed_silu(x, norm, activation):
    return activation(norm(x))
