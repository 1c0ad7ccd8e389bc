"""Which Python functions outside of torch the time of a program's operators belongs to.

Every call of torch's API is timed, and counts for all functions on the stack. The functions worth a task are the
outermost ones in which matrix products, attention and convolutions take little: there is most to fuse. Times are for
choosing, never for a verdict: looking costs more than most operators.
"""

from __future__ import annotations

import sys
import time
from types import CodeType, FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

HEAVY = frozenset(
    "linear bilinear matmul mm bmm addmm addbmm baddbmm mv dot einsum tensordot chain_matmul"
    " multi_head_attention_forward scaled_dot_product_attention"
    " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc"
    " convolution __matmul__ __rmatmul__ _scaled_mm _grouped_mm scaled_mm grouped_mm".split()
)
"""Matrix products, attention and convolutions: libraries have better kernels for them than a first try."""
OURS = __name__.partition(".")[0]
NOT_THE_MODELS = sys.stdlib_module_names | {
    *"torch triton functorch torchgen cutlass tvm_ffi helion cupy numba __main__".split(),
    OURS,
}
MOST_WAITING = 4096


class _Sums:
    """Of one function."""

    def __init__(self, site: str) -> None:
        self.site, self.ms, self.heavy_ms = site, 0.0, 0.0
        self.callers: set[str] = set()


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[CodeType, _Sums | None] = {}
        self._total_ms = 0.0
        self._waiting: list[tuple[list[_Sums], bool, Any, Any]] = []

    def begin(self) -> None:
        """For the thread that imports torch, until the program ends."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__" or torch.compiler.is_compiling():  # an attribute such as x.shape
            return func(*args, **kwargs)
        chain = self._chain(sys._getframe(1))
        if chain is None:
            return func(*args, **kwargs)
        cuda: Any = torch.cuda
        start = stop = None
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            start, stop = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
        began = time.thread_time()  # other programs on the CPU do not count
        result = func(*args, **kwargs)
        took = (time.thread_time() - began) * 1e3
        if stop is None:
            self._count(chain, name in HEAVY, took)
        else:
            stop.record()
            self._waiting.append((chain, name in HEAVY, start, stop))
            if len(self._waiting) >= MOST_WAITING:
                self.settle()
        return result

    def _chain(self, frame: FrameType | None) -> list[_Sums] | None:
        """The functions on the stack, innermost first, each once; None while an object is constructed."""
        found: list[_Sums] = []
        while frame is not None:
            code = frame.f_code
            if code.co_name == "__init__":
                return None
            sums = self._sums[code] if code in self._sums else self._known(frame)
            if sums is not None and sums not in found:
                if found:
                    found[-1].callers.add(sums.site)
                found.append(sums)
            frame = frame.f_back
        return found

    def _known(self, frame: FrameType) -> _Sums | None:
        site = site_of(frame)
        sums = self._sums[frame.f_code] = None if site is None else _Sums(site)
        return sums

    def _count(self, chain: list[_Sums], is_heavy: bool, ms: float) -> None:
        self._total_ms += ms
        for sums in chain:
            sums.ms += ms
            sums.heavy_ms += ms if is_heavy else 0.0

    def forget(self) -> None:
        """In a forked process, whose parent counts what came before."""
        self._waiting, self._total_ms = [], 0.0
        for sums in filter(None, self._sums.values()):
            sums.ms = sums.heavy_ms = 0.0

    def settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for chain, is_heavy, start, stop in waiting:
            stop.synchronize()
            self._count(chain, is_heavy, start.elapsed_time(stop))

    def plain(self) -> dict[str, Any]:
        self.settle()
        found = [sums for sums in self._sums.values() if sums is not None]
        return {
            "total_ms": self._total_ms,
            "functions": [
                {"site": sums.site, "ms": sums.ms, "heavy_ms": sums.heavy_ms, "callers": sorted(sums.callers)}
                for sums in found
            ],
        }


def site_of(frame: FrameType) -> str | None:
    """MODULE:NAME of the function that a frame runs, if it is the model's and can be found by that name."""
    code, scope = frame.f_code, frame.f_globals
    module = scope.get("__name__", "")
    if not isinstance(module, str) or module.partition(".")[0] in NOT_THE_MODELS or module not in sys.modules:
        return None
    for name, value in list(scope.items()):
        if _runs(value, code):
            return f"{module}:{name}"
        if isinstance(value, type) and value.__module__ == module:
            for inner, method in list(vars(value).items()):
                if _runs(method, code):
                    return f"{module}:{name}.{inner}"
    return None


def _runs(value: Any, code: CodeType) -> bool:
    """Whether a function is this code, or decorates it."""
    for _ in range(8):
        value = getattr(value, "__func__", value)
        if getattr(value, "__code__", None) is code:
            return True
        value = getattr(value, "__wrapped__", None)
        if value is None:
            return False
    return False
