"""Numbers have one spelling: harness/shared/format.py. A format spec for one anywhere else is found here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import ROOT

HOME = "harness/shared/format.py"
NUMBER = re.compile(r"(\.?\d*|\{.*\})[efgEFGn%]$")
IN_A_STRING = re.compile(r"\{\w*:[^{}]*[efgEFGn%]\}|%[-+ #0-9.]*[efg](?![a-z])")
"""A gap of `str.format`, or of `%`."""
VALUES = {
    "harness/check/compare.py",
    "harness/check/verdicts.py",
    "src/kernbench/tui/text/row_checks.py",
}
"""Elements of tensors, with the digits that tell them apart."""
COORDINATES = {"src/kernbench/export/charts.py"}
ROUNDED = {"src/kernbench/log/entries/trailer.py"}
"""Numbers for programs, as JSON."""


def sources() -> list[Path]:
    found = [*(ROOT / "src/kernbench").rglob("*.py"), *(ROOT / "harness").rglob("*.py")]
    return sorted(path for path in found if "templates" not in path.parts)


def strays(text: str) -> list[tuple[str, str]]:
    """Each number with a format spec: the spec, and the literal text right after it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            for part, after in zip(node.values, [*node.values[1:], None], strict=True):
                if isinstance(part, ast.FormattedValue) and part.format_spec is not None:
                    spec = ast.unparse(part.format_spec)[2:-1]
                    if NUMBER.search(spec) and "%Y" not in spec:
                        found.append((spec, after.value if isinstance(after, ast.Constant) else ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [(gap, "") for gap in IN_A_STRING.findall(node.value)]
    return found


def test_numbers_are_formatted_in_one_place() -> None:
    wrong = []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if name == HOME:
            continue
        for spec, after in strays(path.read_text(encoding="utf-8")):
            unit = re.match(r"x\b| ?(%|us\b|ms\b|s\b)", str(after))
            if unit or name not in VALUES | COORDINATES | ROUNDED:
                wrong.append(f"{name}: {{:{spec}}}{after}")
    assert not wrong


@pytest.mark.parametrize(
    "text",
    ['f"{a:.3f}x"', 'f"{a * 100:.0f} %"', 'f"{a:>7.2f}"', 'f"{a:+.1f}%"', 'f"{a:g} s"', '"{us:.2f} us"', '"%.1f s"'],
)
def test_a_stray_format_is_found(text: str) -> None:
    assert strays(text)


@pytest.mark.parametrize("text", ['f"{name:<20}"', 'f"{code:08x}"', 'f"{now:%Y-%m-%d}"', '"{count} of 100 %"'])
def test_other_formats_are_left_alone(text: str) -> None:
    assert not strays(text)
