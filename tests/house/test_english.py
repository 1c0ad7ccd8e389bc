"""Words that the code's sentences do without: they come from another language, and they would grow back."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

WORDS = re.compile(
    r"(?<!\bthere )\bis no\b(?! longer)|\b(said of|told|beside|lies|stands|of its own"
    r"|mend|mended|mends|whoever|somebody|nobody|(?:does|did) not answer|starts no(?:ne| run)|move it away)\b",
    re.IGNORECASE,
)
READS_OLD_WORDS = {"src/kernbench/log/runs/legacy.py", "src/kernbench/log/entries/old_entries.py"}
"""Modules with the sentences of earlier versions, to recognize them."""
TEXT = {".md", ".toml", ".html", ".tcss", ".css"}
PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def files() -> list[Path]:
    folders = (ROOT / "src" / "kernbench", ROOT / "harness")
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".cu", ".cpp", *TEXT}]
    return [*found, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "kernels" / "README.md"]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and strings of Python, every line of anything else, each with its line number."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in PROSE:
            yield token.start[0], " ".join(token.string.split())


def found_in(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {found.group()!r} in {text[:120]}"
        for line, text in prose(path)
        for found in WORDS.finditer(text)
    ]


def test_no_such_word_is_in_a_sentence() -> None:
    checked = [path for path in files() if path.relative_to(ROOT).as_posix() not in READS_OLD_WORDS]
    assert len(checked) > 200
    assert [line for path in checked for line in found_in(path)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x = 1  # the file that lies here", 1),
        ('x = f"{name} is no task"', 1),
        ('x = "there is no task"', 0),
        ('x = "is no longer used"', 0),
        ("lies = told = 1", 0),
        ('"""A cache\nof its own."""', 1),
    ],
)
def test_words_are_seen_in_strings_and_comments(tmp_path: Path, text: str, count: int) -> None:
    path = tmp_path / "some.py"
    path.write_text(text + "\n")
    assert sum(1 for _, line in prose(path) for _ in WORDS.finditer(line)) == count
