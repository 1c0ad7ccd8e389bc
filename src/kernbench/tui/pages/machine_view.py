"""The machine code of two sources as a page: figures and instruction counts side by side, then what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.shared import format as fmt
from kernbench import report
from kernbench.diagnosis import machine_code
from kernbench.diagnosis.machine_code import KernelCode, Listing
from kernbench.tui.text import diff_text
from kernbench.tui.text.code_text import Line
from kernbench.tui.text.spans import clean

NO_SASS = "SASS needs nvdisasm, which comes with the CUDA toolkit and with Triton"
MOST_LINES = 2000
"""Of one diff: a page of 10,000 lines takes a second to lay out."""
FEWER_IS_BETTER = ("registers", "local memory, bytes")
Figure = tuple[str, int | None, int | None]
"""Name, before, after."""


def lines(old: Sequence[KernelCode], new: Sequence[KernelCode], width: int, columns: bool) -> list[Line]:
    """Every kernel of either source."""
    found: list[Line] = []
    for before, after in machine_code.pairs(old, new):
        found += [*_kernel(before, after, width, columns), []]
    return found[:-1] or [[("no GPU kernel was compiled", "dim")]]


def _kernel(before: KernelCode | None, after: KernelCode | None, width: int, columns: bool) -> Iterator[Line]:
    kernel = after or before
    assert kernel is not None
    mark = " (new)" if before is None else " (gone)" if after is None else ""
    yield [(clean(kernel.name) + mark, "head"), (clean(f"  {kernel.variant}") if kernel.variant else "", "dim")]
    if before is not None and after is not None and before.variant != after.variant:
        yield [(clean(f"  before: {before.variant or '-'}"), "dim")]
    yield from _table(before, after)
    if before is None or after is None:
        return
    yield []
    if before.sass.lines and after.sass.lines:
        yield from _listings("SASS", before.sass, after.sass, width, columns)
    else:
        yield [(NO_SASS, "dim")]
    yield from _listings("PTX", before.ptx, after.ptx, width, columns)


def _table(before: KernelCode | None, after: KernelCode | None) -> Iterator[Line]:
    figures = [("", None, None), *_figures(before, after)]
    rows = [(name, _plain(old), _plain(new), _change(old, new)) for name, old, new in figures]
    rows[0] = ("", "before", "after", "")
    for line, (name, old, new) in zip(report.columns(rows), figures, strict=True):
        worse = name in FEWER_IS_BETTER and old is not None and (new or 0) > old
        yield [(f"  {line}", "dim" if not name else "warn" if worse else "strong" if old != new else "")]


def _figures(before: KernelCode | None, after: KernelCode | None) -> Iterator[Figure]:
    def both(name: str, figure: Callable[[KernelCode], int | None]) -> Figure:
        return name, figure(before) if before else None, figure(after) if after else None

    yield both("registers", lambda kernel: kernel.registers)
    yield both("local memory, bytes", lambda kernel: kernel.local_bytes)
    yield both("shared memory, bytes", lambda kernel: kernel.shared_bytes)
    kernels = [kernel for kernel in (before, after) if kernel is not None]
    has_sass, has_ptx = all(kernel.sass.lines for kernel in kernels), all(kernel.ptx.lines for kernel in kernels)
    if has_sass:
        yield both("SASS instructions", lambda kernel: kernel.sass.instructions)
    if has_ptx:
        yield both("PTX instructions", lambda kernel: kernel.ptx.instructions)
    if not has_sass and not has_ptx:
        return
    for kind in machine_code.SASS_KINDS:
        counts = [
            (kernel.sass if has_sass else kernel.ptx).kinds[kind] if kernel else None for kernel in (before, after)
        ]
        if any(counts):
            yield f"  {kind}", counts[0], counts[1]


def _listings(name: str, old: Listing, new: Listing, width: int, columns: bool) -> Iterator[Line]:
    if old.lines == new.lines:
        yield [(f"{name}: no difference" if old.lines else f"{name}: not kept", "dim")]
        return
    found = diff_text.lines({name: "\n".join(old.lines)}, {name: "\n".join(new.lines)}, width, columns)
    yield from found[:MOST_LINES]
    if len(found) > MOST_LINES:
        yield [(f"... {fmt.plural(len(found) - MOST_LINES, 'more line')} of {name}", "dim")]


def _plain(value: int | None) -> str:
    return "-" if value is None else str(value)


def _change(old: int | None, new: int | None) -> str:
    return "" if old is None or new is None or old == new else f"{new - old:+d}"
