"""Source code in colors, and what changed inside a line."""

from __future__ import annotations

from kernbench.tui.text import code_text, diff_text

PYTHON = [
    "import triton  # why",
    "",
    "@triton.jit",
    "def kernel(x):",
    '    """Two',
    '    lines."""',
    "    return x * 16",
]


def test_tokens_have_their_color_and_no_character_is_lost() -> None:
    found = code_text.colored("solution.py", PYTHON)
    assert ["".join(text for text, _ in line) for line in found] == PYTHON
    styles = {text.strip(): style for line in found for text, style in line}
    assert (styles["import"], styles["# why"], styles["16"], styles["@triton"]) == (
        "keyword",
        "comment",
        "number",
        "keyword",
    )
    assert {style for text, style in found[5] if text.strip()} == {"string"}
    assert code_text.colored("table.csv", ["1, 2"]) == [[("1, 2", "")]]
    assert code_text.colored("a.cu", []) == []
    assert code_text.colored("a.cu", ["int x; // c"])[0][-1] == ("// c", "comment")


def test_the_parts_of_a_line_that_changed_are_marked() -> None:
    assert code_text.changed_parts("BLOCK = 4 * n", "BLOCK = 8 * n") == (
        [("BLOCK = ", "removed"), ("4", "removed-part"), (" * n", "removed")],
        [("BLOCK = ", "added"), ("8", "added-part"), (" * n", "added")],
    )
    assert code_text.changed_parts("x = 1", "while True: pass")[0] == [("x = 1", "removed")]


def test_long_lines_are_cut_at_the_edge() -> None:
    assert code_text.wrapped([("abc", "string"), ("def", "")], 4) == [[("abc", "string"), ("d", "")], [("ef", "")]]
    assert code_text.wrapped([], 4) == [[]]
    assert code_text.wrapped([("漢字漢", "")], 4) == [[("漢字", "")], [("漢", "")]]


def test_a_diff_has_every_line_once() -> None:
    old, new = {"a.py": "x = 1\ny = 2\nz = 3\n"}, {"a.py": "x = 1\ny = 4\nw = 5\nz = 3\n"}
    unified = ["".join(text for text, _ in line) for line in diff_text.lines(old, new, 60, columns=False)]
    assert unified == ["a.py", "@@ line 1 @@", "  x = 1", "- y = 2", "+ y = 4", "+ w = 5", "  z = 3"]
    two = ["".join(text for text, _ in line) for line in diff_text.lines(old, new, 43, columns=True)]
    assert two[2:] == [
        "   1 x = 1           |    1 x = 1",
        "   2 y = 2           |    2 y = 4",
        "                     |    3 w = 5",
        "   3 z = 3           |    4 z = 3",
    ]
