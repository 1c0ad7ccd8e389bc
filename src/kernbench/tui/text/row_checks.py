"""A row's inputs and errors, as aligned lines of the row page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from harness.shared import format as fmt
from harness.shared.results import CaseResult, InputForm, OutputError
from harness.shared.task import Case, Task, Tolerance
from kernbench import render, report
from kernbench.tui.text.spans import Span, clean

Line = list[Span]
INDENT = "  "


NEAREST = "the element closest to its limit, or furthest past it"


def errors(result: CaseResult) -> Iterator[Line]:
    """A line per output: its largest error, and the element closest to or past its tolerance."""
    overall = result.error
    if overall is None and result.exact is None:
        return
    yield []
    if overall is not None:
        yield from _table_of_errors(result, overall)
    if result.exact is not None:
        yield [(f"equal to the reference: {_equal(result.exact)}", "")]


def _equal(share: float) -> str:
    return "bit for bit" if share == 1 else f"{fmt.share(share)} of values"


def _table_of_errors(result: CaseResult, overall: OutputError) -> Iterator[Line]:
    known = {"largest": overall.max, "baseline's largest": overall.baseline_max}
    figures = [f"  {word} {fmt.error(value)}" for word, value in known.items() if value is not None]
    yield [("error", "head"), (render.accuracy(result).removeprefix("error") + " ".join(figures), "")]
    titles = ("output", "largest", "off by", "allowed", "at", "got", "expected")
    rows = [titles, *map(_error, result.errors or (overall,))]
    if len(rows) > 2:
        yield from _table(rows, left=(0, 4))
        yield [(f"{INDENT}largest: over all elements; other columns: {NEAREST}", "dim")]
    else:  # the head already shows the largest
        yield from _table([(name, *others) for name, _largest, *others in rows], left=(0, 3))
        yield [(f"{INDENT}largest: over all elements; this row: {NEAREST}", "dim")]


def _error(error: OutputError) -> tuple[str, ...]:
    name = clean(error.output or "output")
    largest, bound = fmt.error(error.max), fmt.error(error.bound)
    if error.index is None:
        return (name, largest, fmt.DASH, bound, fmt.DASH, fmt.DASH, fmt.DASH)
    off = None if error.got is None or error.expected is None else abs(error.got - error.expected)
    return (name, largest, fmt.error(off), bound, _list(error.index), *_apart(error.got, error.expected))


def tolerances(task: Task, case: Case, result: CaseResult | None) -> dict[str, Tolerance]:
    """The tolerances applied to this row, as far as its bounds identify them; else all of the case's."""
    known = task.tolerance_of(case)
    found = {
        dtype: tolerance
        for dtype, tolerance in known.items()
        for error in ((result.errors or (result.error,)) if result else ())
        if error is not None and _allows(tolerance, error)
    }
    return found or known


def bounds(dtype: str, tolerance: Tolerance) -> str:
    """A tolerance in words: `float32 atol 1e-05 rtol 1e-05 for 99% of values`."""
    parts = [f"{dtype} atol {fmt.plain(tolerance.atol)} rtol {fmt.plain(tolerance.rtol)}"]
    parts += [f"for {fmt.plain(tolerance.matched * 100)}% of values"] if tolerance.matched < 1 else []
    parts += [f"no error above {fmt.plain(tolerance.cap)}"] if tolerance.cap is not None else []
    return " ".join(parts)


def _allows(tolerance: Tolerance, error: OutputError) -> bool:
    """Whether this tolerance gives the bound at the reported element."""
    if error.bound is None or error.expected is None:
        return False
    return math.isclose(tolerance.atol + tolerance.rtol * abs(error.expected), error.bound, rel_tol=1e-6)


def _apart(got: float | None, expected: float | None) -> tuple[str, str]:
    """Both with enough digits to tell them apart."""
    for digits in (6, 9, 12):
        # JSON has no NaN: a missing value at a known index was not finite.
        one, other = ("not finite" if value is None else f"{value:.{digits}g}" for value in (got, expected))
        if one != other:
            break
    return one, other


def inputs(result: CaseResult) -> Iterator[Line]:
    """One line per tensor, the other arguments together below."""
    if not result.inputs:
        return
    tensors = [form for form in result.inputs if form.shape is not None]
    others = [f"{form.name}={_value(form.value)}" for form in result.inputs if form.shape is None]
    yield []
    yield [("inputs", "head")]
    if tensors:
        yield from _table([("name", "shape", "dtype", "layout"), *map(_tensor, tensors)], left=(0, 1, 2, 3))
    if others:
        yield [(clean(INDENT + "  ".join(others)), "")]


def _tensor(form: InputForm) -> tuple[str, ...]:
    shape = form.shape or ()
    layout = "contiguous" if is_contiguous(shape, form.strides) else f"strides {_list(form.strides or ())}"
    return clean(form.name), _list(shape), form.dtype or fmt.DASH, layout


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """As torch defines it: strides of dimensions of size 1, and of empty tensors, do not matter."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for length, stride in reversed(list(zip(shape, strides, strict=True))):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _table(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> Iterator[Line]:
    title, *lines = report.columns(rows, left)
    yield [(INDENT + title, "dim")]
    for line in lines:
        yield [(INDENT + line, "")]


def _value(value: Any) -> str:
    return fmt.plain(value) if isinstance(value, float) else str(value)


def _list(numbers: tuple[int, ...]) -> str:
    return f"[{', '.join(str(number) for number in numbers)}]"
