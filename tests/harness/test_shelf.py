"""What the shelf keeps of inputs and truths when there is not room for all."""

from __future__ import annotations

from types import SimpleNamespace

from harness.shelf import Shelf


def shelved(room: int, **sizes: int) -> Shelf:
    shelf = Shelf()
    shelf._room = room
    shelf._materials = {name: SimpleNamespace(nbytes=size) for name, size in sizes.items()}  # type: ignore[misc]
    return shelf


def test_what_fits_stays() -> None:
    shelf = shelved(100, first=60, second=40)
    shelf.trim()
    assert [*shelf._materials] == ["first", "second"]


def test_the_first_and_longest_stays_where_a_smaller_one_is_enough() -> None:
    """The next run's first row asks for it."""
    shelf = shelved(100, first=60, second=30, third=20, fourth=5)
    shelf.trim()
    assert [*shelf._materials] == ["first", "second", "fourth"]


def test_where_none_is_enough_the_largest_goes_first() -> None:
    shelf = shelved(20, first=60, second=50, third=15)
    shelf.trim()
    assert [*shelf._materials] == ["third"]


def test_everything_is_let_go_when_a_case_needs_it() -> None:
    shelf = shelved(100, first=60, second=40)
    shelf.trim(everything=True)
    assert not shelf._materials
