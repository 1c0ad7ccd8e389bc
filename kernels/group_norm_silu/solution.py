"""GroupNorm and SiLU."""

from __future__ import annotations

import portable


def group_norm_silu(x, weight, bias, num_groups, eps):
    return portable.group_norm_silu(x, weight, bias, num_groups, eps, not x.is_contiguous())
