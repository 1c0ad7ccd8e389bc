"""What kind of work a kernel or an operator does, by its name."""

from __future__ import annotations

import re

ATTENTION, CONVOLUTION, GEMM = "attention", "convolution", "GEMM"
COMMUNICATION, COPIES, ELEMENTWISE, IDLE = "communication", "copies", "norm and elementwise", "idle"
NOT_OFFERED = (ATTENTION, GEMM, CONVOLUTION, COMMUNICATION)
"""Left to the libraries: a task for them is not worth its while."""
CATEGORIES = (*NOT_OFFERED, COPIES, ELEMENTWISE)
FUSED = re.compile(r"triton_(poi|red|per)_fused")
"""Kernels that torch.compile makes of elementwise work and reductions, named after all operators around them."""
PATTERNS = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (COMMUNICATION, r"nccl|nvshmem|^c10d|(?<!sm)all_?(reduce|gather|to_?all)|reduce_?scatter|cross_device_reduce"),
        (COPIES, r"nchwToNhwc|nhwcToNchw|memcpy|memset|reshape_and_cache"),
        (COPIES, r"^(aten::)?(contiguous|clone|copy_|cat|stack|fill_|zero_|pad)$"),
        (ATTENTION, r"flash(?!infer)|with\w*kvcache|merge_?state|fmha|attention|attn|\bmha\b"),
        (CONVOLUTION, r"conv(?!ert)|implicit_gemm|fprop|dgrad|wgrad"),
        (GEMM, r"gemm|gemv|(?<!kernel_)cutlass|tiledmma|cublas|nvjet|xmma|splitk|^bmm_"),
        (GEMM, r"^(aten::)?(mm|bmm|addmm|addmv|baddbmm|linear|matmul)$"),
        (COPIES, r"(?<!tiled)copy(?!atom)|CatArray|transpose"),
    )
)
"""The first that matches the kernel's name or the operator's decides.

FlashInfer and CuTe DSL name all of their kernels `flashinfer::` and `kernel_cutlass_`, norms too, so the rest of such a
name decides.
"""


def category(kernel: str, operator: str) -> str:
    if FUSED.match(kernel):
        return ELEMENTWISE
    names = [name for name in (kernel, operator) if name]
    return next((found for found, pattern in PATTERNS if any(map(pattern.search, names))), ELEMENTWISE)
