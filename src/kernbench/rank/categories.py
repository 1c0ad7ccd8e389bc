"""What kind of work a kernel or an operator does, by its name."""

from __future__ import annotations

import re

ATTENTION, CONVOLUTION, GEMM = "attention", "convolution", "GEMM"
COPIES, ELEMENTWISE, IDLE = "copies", "norm and elementwise", "idle"
CATEGORIES = (ATTENTION, GEMM, CONVOLUTION, COPIES, ELEMENTWISE)
NOT_OFFERED = frozenset((ATTENTION, GEMM, CONVOLUTION))
"""Left to the libraries: a task for them is not worth its while."""
FUSED = re.compile(r"triton_(poi|red|per)_fused")
"""Kernels that torch.compile makes of elementwise work and reductions, named after all operators around them."""
PATTERNS = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (COPIES, r"nchwToNhwc|nhwcToNchw|memcpy|memset|^(aten::)?(contiguous|clone|copy_|cat|stack|fill_|zero_|pad)$"),
        (ATTENTION, r"flash|fmha|attention|attn|\bmha\b"),
        (CONVOLUTION, r"conv(?!ert)|implicit_gemm|fprop|dgrad|wgrad"),
        (GEMM, r"gemm|gemv|cutlass|cublas|nvjet|xmma|splitk|^(aten::)?(mm|bmm|addmm|addmv|baddbmm|linear|matmul)$"),
        (COPIES, r"copy|CatArray|transpose"),
    )
)
"""The first that matches the kernel's name or the operator's decides."""


def category(kernel: str, operator: str) -> str:
    if FUSED.match(kernel):
        return ELEMENTWISE
    names = [name for name in (kernel, operator) if name]
    return next((found for found, pattern in PATTERNS if any(map(pattern.search, names))), ELEMENTWISE)
