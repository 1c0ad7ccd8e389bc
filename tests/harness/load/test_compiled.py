"""compile baselines: a code object of their own for every case."""

from __future__ import annotations

from harness.load import compiled


def test_a_copy_has_its_own_code_and_does_the_same() -> None:
    factor = 3

    def scale(x: int, *, offset: int = 1) -> int:
        return x * factor + offset

    copy = compiled._own_copy(scale)
    assert copy(2) == scale(2) == 7
    assert copy.__code__ is not scale.__code__  # type: ignore[attr-defined]


def test_what_is_no_function_is_taken_as_it_is() -> None:
    assert compiled._own_copy(len) is len
