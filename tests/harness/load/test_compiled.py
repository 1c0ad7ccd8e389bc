"""compile baselines: a code object of their own for every case."""

from __future__ import annotations

import sys

import pytest

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


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules that stand for the compiler's; not imported yet."""
    names = ["colorsys", "sndhdr_of_no_python", "wave"]
    monkeypatch.setattr(compiled, "_pieces", names.copy())
    monkeypatch.setattr(compiled, "_waiting", [])
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return names


def test_a_request_that_comes_waits_for_one_piece_and_the_rest_is_loaded_later(pieces: list[str]) -> None:
    said, answers = list[str](), iter([True, False])
    compiled.on_loaded(lambda: said.append("warm"))
    compiled.load(lambda: next(answers))
    assert ("colorsys" in sys.modules, "wave" in sys.modules, said) == (True, False, [])
    compiled.load()
    assert ("wave" in sys.modules, said) == (True, ["warm"])
    compiled.load()
    assert said == ["warm"]


def test_the_first_compile_loads_what_is_missing(pieces: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said, done = list[str](), list[str]()
    monkeypatch.setattr("torch.compile", lambda function, dynamic: done.append(function.__name__) or function)
    compiled.load_by_compiling("cpu")
    assert done == []  # nobody waits: it is loaded
    compiled.on_loaded(lambda: said.append("warm"))
    compiled.load_by_compiling("cpu")
    compiled.load_by_compiling("cpu")
    assert (done, said, "wave" in sys.modules) == (["_throwaway"], ["warm"], True)
