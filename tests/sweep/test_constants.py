"""Where a constant is set: one place, by one rule, or an error that names file and line."""

from __future__ import annotations

import pytest

from kernbench.sweep import constants
from kernbench.sweep.constants import ConstantError

PYTHON = '''"""TILE = 1 is only in the text."""
import triton

TILE = 4096
"""A number."""
WARPS: int = 4  # TILE = 3
A, B = 1, (2, 3)


def rms(x, BLOCK: int = 128, *, stages=2):
    TILE = 5
    local = 7
    kernel[(1,)](x, num_warps=min(WARPS, 8), other=TILE)
'''
CPP = """// LANES = 3
#define UNROLL 4  // so far
#define SUM(a) ((a) + UNROLL)
namespace {
constexpr int LANES = 2 * 8;
}
enum { ROWS = 3, COLS = 5 };
template <int BLOCK = 128, typename T = float>
void f(const char *text = "LANES = 9") {
    for (int step = 0; step < LANES; ++step) {}
    int depth = g(1, 2);
    if (LANES == 4) {}
}
"""


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("TILE", "4096", 4),
        ("WARPS", "4", 6),
        ("A", "1", 7),
        ("B", "(2, 3)", 7),
        ("BLOCK", "128", 10),
        ("stages", "2", 10),
        ("local", "7", 12),
        ("num_warps", "min(WARPS, 8)", 13),
    ],
)
def test_in_python(name: str, value: str, line: int) -> None:
    place = constants.find(name, {"solution.py": PYTHON.encode()})
    assert (place.text, str(place)) == (value, f"solution.py:{line}")
    changed = constants.replaced({"solution.py": PYTHON.encode()}, [(place, "99")])["solution.py"].decode()
    before, after = PYTHON.split("\n"), changed.split("\n")
    differing = [number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]]
    assert differing == [line]
    assert constants.find(name, {"solution.py": changed.encode()}).text == "99"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("UNROLL", "4", 2),
        ("LANES", "2 * 8", 5),
        ("ROWS", "3", 7),
        ("COLS", "5", 7),
        ("BLOCK", "128", 8),
        ("T", "float", 8),
        ("step", "0", 10),
        ("depth", "g(1, 2)", 11),
    ],
)
def test_in_cpp(name: str, value: str, line: int) -> None:
    place = constants.find(name, {"solution.cpp": CPP.encode()})
    assert (place.text, str(place)) == (value, f"solution.cpp:{line}")


def test_in_the_strings_of_a_python_file() -> None:
    text = 'src = r"""\n#define BLOCK 64\n"""\nlib = load("k.cu", flags=["-DWARPS=8", "-O3"])\nname = f"-DX=1"\n'
    files = {"solution.py": text.encode()}
    places = [constants.find(name, files) for name in ("BLOCK", "WARPS")]
    assert [(place.text, place.line) for place in places] == [("64", 2), ("8", 4)]
    changed = constants.replaced(files, [(places[0], "256"), (places[1], "16")])["solution.py"].decode()
    assert "#define BLOCK 256\n" in changed
    assert '"-DWARPS=16"' in changed


def test_letters_of_several_bytes_before_it_change_nothing() -> None:
    text = "def f(x):\n    é = 'ü'; size = 4; return g(x, width='ß', warps=2)\n"
    for name, value in (("size", "4"), ("warps", "2")):
        assert constants.find(name, {"solution.py": text.encode()}).text == value


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("X", {"solution.py": b"X = 1\nX = 2\n"}, "X is set at solution.py:1 and solution.py:2"),
        ("X", {"a.py": b"X = 1\n", "b.cpp": b"#define X 2\n"}, "X is set at a.py:1 and b.cpp:1"),
        ("w", {"solution.py": b"f(w=1)\nf(w=2)\n"}, "w is set at solution.py:1 and solution.py:2"),
        ("X", {"solution.py": b"\nprint(X)\n"}, r"nothing sets X \(solution.py:2 only uses it\); write `X = ...`"),
        ("X", {"solution.py": b"Y = 1\n"}, r"nothing sets X \(the solution's files are solution.py\)"),
        ("X", {"solution.py": b"X = (\n"}, "solution.py:1 only uses it"),
    ],
)
def test_none_or_several_are_refused(name: str, files: dict[str, bytes], said: str) -> None:
    with pytest.raises(ConstantError, match=said):
        constants.find(name, files)


def test_two_constants_with_one_value_are_refused() -> None:
    files = {"solution.py": b"A = B = 64\nC = 1\n"}
    places = {name: constants.find(name, files) for name in "ABC"}
    assert (
        constants.replaced(files, [(places["A"], "128"), (places["C"], "2")])["solution.py"] == b"A = B = 128\nC = 2\n"
    )
    with pytest.raises(ConstantError, match=r"same value at solution\.py:1"):
        constants.replaced(files, [(places["A"], "128"), (places["B"], "32")])


def test_listing_parses_each_file_once() -> None:
    before = constants._parsed.cache_info().misses
    text = "".join(f"PARSED_{number} = {number}\nx = PARSED_{number} + 1\n" for number in range(20))
    found = constants.listed({"solution.py": text.encode()})
    assert (len(found), constants._parsed.cache_info().misses - before) == (20, 1)


def test_the_constants_with_numbers_are_listed() -> None:
    python = b"""TILE: int = 2048
NAME = "text"
TWICE = 1
TWICE = 2
SHAPE = (1, 2)
RATE = 1e-3  # NOT_THIS = 4
def run(x, stages=3):
    kernel[grid](x, num_warps=4)
"""
    cpp = b"#define UNROLL 4\nconstexpr int LANES = 0x10u;\n// OLD = 3\n"
    found = constants.listed({"solution.py": python, "solution.cpp": cpp, "notes.md": b"TILE = 3"})
    assert {name: (place.text, str(place)) for name, place in found.items()} == {
        "UNROLL": ("4", "solution.cpp:1"),
        "LANES": ("0x10u", "solution.cpp:2"),
        "TILE": ("2048", "solution.py:1"),
        "RATE": ("1e-3", "solution.py:6"),
        "stages": ("3", "solution.py:7"),
        "num_warps": ("4", "solution.py:8"),
    }
    assert list(found)[:3] == ["UNROLL", "LANES", "TILE"]  # by file and line, file level first


LOOPS = """
static const int LANES = 8;
#define UNROLL 4
float norm(const float *x, long n, int depth = 2) {
    float sum = 0.0, carry = 0.0;
    int taken = 0, left = 4, shift = 1, mask = 3;
    add(&taken, x[shift & mask]);
    for (long row = 0; row < n; ++row) {
        for (int k = 0; k < LANES; k += 2) sum += x[row] * this->shift++;
        left -- ;
        carry <<= 1;
    }
    return sum == 0 && mask <= depth;
}
"""
PYTHON_LOOPS = """
WIDTH = 64
LANES = 8
rest = 3
total = 0.0
for start in range(WIDTH):
    total += start
def run(x, stages=3):
    row = 0
    while row < 4:
        row = row + 1
    start = 1
    limit = 5
    if (rest := 2) == limit:
        kernel[grid](x, num_warps=4, EPS=1e-6)
"""


def test_loop_variables_and_accumulators_are_not_listed() -> None:
    constant = ["LANES", "UNROLL", "depth", "mask", "shift"]
    assert sorted(constants.listed({"solution.cu": LOOPS.encode()})) == constant
    assert sorted(constants.listed({"solution.py": f'source = r"""{LOOPS}"""\n'.encode()})) == constant
    found = constants.listed({"solution.py": PYTHON_LOOPS.encode()})
    assert sorted(found) == ["EPS", "LANES", "WIDTH", "limit", "num_warps", "stages"]
    both = constants.listed({"solution.py": PYTHON_LOOPS.encode(), "solution.cu": b"void f() { limit++; }\n"})
    assert sorted(found.keys() - both) == ["limit"]
    assert constants.find("row", {"solution.cu": LOOPS.encode()}).line == 8  # asked for by name
