"""Faults of a solution in C++ and of one in Triton under its interpreter."""

from __future__ import annotations

import os

from tests.faults import processes
from tests.faults.python_sources import each_row_once, no_escapes
from tests.faults.row import Act, Fault, Save
from tests.faults.workbench import Workbench

WRAPPER = """
import torch
from harness import host

_lib = host.load("solution.cpp")

def softmax(x):
    x = x.contiguous()
    out = torch.softmax(x, dim=-1)
    _lib.touch(out, out.numel())
    return out
"""
HEAD = (
    "#include <stdint.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <signal.h>\n#include <string.h>\n"
    "#include <stdio.h>\n"
)
KERNEL = HEAD + 'extern "C" void touch(float *out, int64_t n) { BODY }\n'


def cpp(name: str, done: str, text: str, statuses: str, says: str = "", **more: object) -> Save:
    text = text if "touch" in text or not text else HEAD + text
    texts = {"solution_cpp": text, "solution_py": WRAPPER}
    return Save(name=f"C++: {name}", group="source", done=done, texts=texts, statuses=statuses, says=says, **more)  # type: ignore[arg-type]


def body(text: str) -> str:
    return KERNEL.replace("BODY", text)


CPP: list[Fault] = [
    cpp("syntax error", "a semicolon missing", body("int a = 1 return;"), "build_error", r"solution\.cpp:\d+"),
    cpp("missing symbol", "another name than the one called", "void other(float *) {}\n", "build_error runtime_error",
        "touch"),
    cpp("missing include", "#include <no_such.h>", "#include <no_such.h>\n" + body(""), "build_error", r"no_such\.h"),
    cpp("link error", "a function that nothing defines", "void far();\n" + body("far();"), "build_error runtime_error",
        "far"),
    cpp("F8 #error with escapes", "#error ESC]0;owned BEL", "#error red \x1b]0;owned\x07 end\n" + body(""),
        "build_error", "red", also=no_escapes),
    cpp("segfault", "a write at address 8", body("*(volatile int *)8 = 1;"), "crashed", "segfaulted"),
    cpp("abort", "abort()", body("abort();"), "crashed", "aborted"),
    cpp("exception", "throw 3", body("throw 3;"), "crashed", "aborted"),
    cpp("stack overflow", "recursion without end",
        "static int deep(volatile int *p) { volatile int a[999]; a[0] = *p; return deep(a) + a[1]; }\n"
        + body("volatile int z = 0; deep(&z);"), "crashed", "segfaulted"),
    cpp("endless loop", "for (;;)", body("volatile int i = 0; for (;;) i = i + 1;"), "timeout",
        r"solution\.cpp.*timed out after 3"),
    cpp("endless loop with every signal blocked", "sigprocmask, then for (;;)",
        body("sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, 0); volatile int i = 0; for (;;) i = i + 1;"),
        "timeout", "timed out after 3"),
    cpp("_exit", "_exit(0)", body("_exit(0);"), "crashed", "exited with code 0"),
    cpp("trap", "__builtin_trap()", body("__builtin_trap();"), "crashed", "SIGILL|SIGTRAP"),
    cpp("heap corruption", "1 MB past the end of its output", body("memset(out, 255, n * 4 + (1 << 20));"),
        "crashed wrong", ""),
    cpp("constructor that exits", "_exit(1) while the library is loaded",
        "extern \"C\" void _exit(int);\n__attribute__((constructor)) static void go() { _exit(1); }\n" + body(""), "crashed", "exited with code 1"),
    cpp("constructor that never ends", "for (;;) while the library is loaded",
        "__attribute__((constructor)) static void go() { volatile int i = 0; for (;;) i = i + 1; }\n" + body(""),
        "timeout", "timed out after 6"),
    cpp("F7 fork in a call", "fork() once", body("static int f = 0; if (!f) { f = 1; if (fork()) {} }"), "ok",
        "(?i)fork|process", also=each_row_once),
    cpp("template bomb", "an instantiation of endless depth",
        "template <int N> struct A { static const int v = A<N + 1>::v + A<N + 2>::v; };\n"
        + body("out[0] = A<0>::v;"), "build_error timeout", ""),
    cpp("empty file", "nothing", "", "build_error runtime_error", "touch"),
    cpp("NUL bytes", "NULs in the source", body("\0\0"), "build_error ok", ""),
]  # fmt: skip


def never_compiled(bench: Workbench) -> str:
    """A deadline waits for a compiler that is at work; the next save does not."""
    compile_forever(bench)
    return "the good save follows while the compiler is at work"


def compile_forever(bench: Workbench) -> None:
    """A header that is a fifo: the compiler waits for it, and takes neither a core nor memory."""
    header = bench.folder.parent / "never.h"
    header.unlink(missing_ok=True)
    os.mkfifo(header)
    bench.save(solution_cpp=f'#include "{header}"\n', solution_py=WRAPPER)
    at_work = processes.until(lambda: any("cc1plus" in processes.name(pid) for pid in processes.marked(bench.mark)), 20)
    assert at_work, "no compiler ran"
    (bench.folder / "solution.cpp").unlink()


CPP.append(
    Act(
        name="C++: a compiler that never ends",
        group="source",
        done="#include of a fifo, then a good save",
        do=never_compiled,
    )
)
TRITON_HEAD = "import torch, triton\nimport triton.language as tl\n"
RUN = """
def softmax(x):
    out = torch.softmax(x, dim=-1)
    kernel[(GRID,)](out, out.numel(), N=N)
    return out
"""


def triton(
    name: str, done: str, lines: str, statuses: str, says: str, grid: str = "1", n: str = "16", **more: object
) -> Save:
    kernel = "@triton.jit\ndef kernel(p, n, N: tl.constexpr):\n" + "\n".join(
        f"    {line}" for line in lines.split("\n")
    )
    text = TRITON_HEAD + f"N = {n}\n" + kernel + RUN.replace("GRID", grid)
    return Save(name=f"Triton: {name}", group="source", done=done, texts={"solution_py": text}, statuses=statuses,
                says=says, **more)  # type: ignore[arg-type]  # fmt: skip


TRITON: list[Fault] = [
    triton("undefined name", "a typo in the kernel", "tl.store(p, zork)", "runtime_error", "zork"),
    triton("wild load", "a load 10**12 elements away", "tl.load(p + 1000000000000)", "crashed", "segfaulted"),
    triton("wild store", "a store 10**12 elements away", "tl.store(p + 1000000000000, 1.0)", "crashed", "segfaulted"),
    triton("static_assert", "that fails", "tl.static_assert(N == 3, 'N is three')", "runtime_error", "N is three|assert"),
    triton("no power of two", "tl.arange(0, 17)", "tl.arange(0, N)", "runtime_error", "power", n="17"),
    triton("reshape", "16 elements to 3x5", "tl.reshape(tl.arange(0, N), (3, 5))", "runtime_error", "reshape|size|shape"),
    triton("endless while", "while True in a program", "i = 0\nwhile i < 1:\n    tl.load(p)", "timeout",
           "timed out after 3"),
    triton("negative grid", "a grid of -1", "tl.store(p, 1.0)", "ok runtime_error wrong", "", grid="-1"),
    triton("grid of 2**31", "too many programs", "tl.load(p)", "timeout runtime_error", "", grid="2**31"),
    triton("wrong arguments", "a keyword that the kernel lacks", "tl.load(p)", "runtime_error", "Q|unexpected|missing",
           grid="1,)](Q=3) or kernel[(1"),
]  # fmt: skip
