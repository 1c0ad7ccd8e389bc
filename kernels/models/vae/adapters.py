"""The task's entry under the signature of layers.py."""

from __future__ import annotations


def normed_silu(entry):
    def call(x, norm, activation):
        return entry(x, norm.weight, norm.bias, norm.num_groups, norm.eps)

    return call
