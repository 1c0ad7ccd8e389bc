"""Sources that mean the same, and those that only look so."""

from __future__ import annotations

import pytest

from harness.shared import used_files

CODE = """#include <math.h>
#define TWO(x) \\
    ((x) * 2)
extern "C" void f(float* x) {
    const char* s = "// no comment, /* nor this */";
    x[0] = 1'000 * 'a';  // a comment, it's one
    /* one
       more */
    x[1] = L'"' + TWO(3);
}
"""


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("// a comment, it's one", ""),
        CODE.replace("    /* one\n       more */\n", ""),
        CODE.replace("x[0] = 1", "x[0]   =\t1"),
        CODE.replace("\n}", "\n\n\n}  // the end\n"),
        "/* licence */\n" + CODE,
    ],
)
def test_comments_and_layout_of_c_do_not_count(other: str) -> None:
    assert other != CODE
    assert used_files.code_of("solution.cu", other.encode()) == used_files.code_of("solution.cu", CODE.encode())
    assert used_files.code_of("notes.cfg", other.encode()) != used_files.code_of("notes.cfg", CODE.encode())


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("no comment", "no  comment"),
        CODE.replace("nor this", "nor that"),
        CODE.replace("1'000", "1'001"),
        CODE.replace("'a'", "'b'"),
        CODE.replace("TWO(3)", "TWO(4)"),
        CODE.replace("L'\"'", "L'\\''"),
        CODE.replace("#define TWO(x) \\\n    ((x) * 2)", "#define TWO(x)\n    ((x) * 2)"),
        CODE.replace("x[0] =", "x [0] ="),  # not worth being clever about
    ],
)
def test_everything_else_of_c_counts(other: str) -> None:
    assert other != CODE
    assert used_files.code_of("solution.cpp", other.encode()) != used_files.code_of("solution.cpp", CODE.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1'0; s = \"it's // y\";", "x = 1'0; s = \"it's // z\";"),
        ('s = R"(// a)";', 's = R"(// b)";'),
        ('s = R"x(" // a)x";', 's = R"x(" // b)x";'),
        ('c = u8\'"\'; s = "//b"; x = 1;', 'c = u8\'"\'; s = "//c"; x = 2;'),
        ('case\'"\': s = "a  b";', 'case\'"\': s = "a b";'),
        ('s = R"(a\n    b\n\nc)";', 's = R"(a\nb\nc)";'),
        ('s = "a\\\n  b";', 's = "a\\\nb";'),
        ("#include <a//b.h>", "#include <a//c.h>"),
        ("// foo \\ \na = 1;", "// foo \na = 1;"),
        ("#define BODY x \\\n\nvoid f() {}", "#define BODY x \\\nvoid f() {}"),
        ("#define BODY x \\\n// c\nvoid f() {}", "#define BODY x \\\nvoid f() {}"),
        ("#define BODY x \\\r\n\r\nvoid f() {}", "#define BODY x \\\r\nvoid f() {}"),
        ("#define A \\ // off\nx *= 2;", "#define A \\\nx *= 2;"),
        ("#define B(y) \\  /* note */\n  y", "#define B(y) \\\n  y"),
        ('puts("a\\\r\n // four");', 'puts("a\\\r\n // eight");'),
        ('puts("a\\ \n // four");', 'puts("a\\ \n // eight");'),
        ("a = b /c; d = e/ f;", "a = b /c; d = e/ g;"),
        ("// a \\\nx = 1;\ny = 1;", "// a \\\nx = 1;\ny = 2;"),
    ],
)
def test_what_looks_like_a_comment_inside_a_literal_counts(one: str, other: str) -> None:
    assert used_files.code_of("a.cu", one.encode()) != used_files.code_of("a.cu", other.encode())


def test_a_comment_that_goes_on_is_one() -> None:
    one, other = (f"// a \\\nx = {number};\ny = 1;" for number in (1, 2))
    assert used_files.code_of("a.cu", one.encode()) == used_files.code_of("a.cu", other.encode())


def test_python_counts_by_its_syntax_and_what_is_no_python_as_it_is() -> None:
    assert used_files.code_of("a.py", b"x = 1  # one\n") == used_files.code_of("a.py", b"\nx = (1)\n")
    assert used_files.code_of("a.py", b"x = 1\n") != used_files.code_of("a.py", b"x = 2\n")
    assert used_files.code_of("a.py", b"x = \n") == b"x = \n"
    assert used_files.code_of("a.cu", b'unfinished "string\n/* and comment') != used_files.code_of(
        "a.cu", b'unfinished "string\n/* and'
    )


@pytest.mark.parametrize("code", ["x = " + "-" * 7000 + "1", "x = " + "1, " * 80_000])
def test_what_is_too_deep_or_too_long_to_be_understood_counts_as_it_is(code: str) -> None:
    assert used_files.code_of("solution.py", code.encode()) == code.encode()
