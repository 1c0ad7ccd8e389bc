"""Faults of a solution in Python: what it returns, raises, ends, forks, prints and writes."""

from __future__ import annotations

import re
import time

from tests.faults import processes
from tests.faults.row import Act, Fault, Outcome, Save
from tests.faults.workbench import Workbench

CRASHED, TIMEOUT, RAISED = "crashed", "timeout", "runtime_error"
PLACE = r"solution\.py'?:\d+|'solution\.py', 'line': \d+"


def source(name: str, done: str, text: str, statuses: str, says: str = "", **more: object) -> Save:
    return Save(name=name, group="source", done=done, texts={"solution_py": text}, statuses=statuses, says=says, **more)  # type: ignore[arg-type]


def call(body: str, before: str = "") -> str:
    """A solution that does something in each call and would then return the right answer."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import os, sys, time, torch\n{before}\ndef softmax(x):\n{lines}\n    return torch.softmax(x, dim=-1)\n"


def load(body: str) -> str:
    """The same at import."""
    return f"import os, sys, time, torch\n{body}\ndef softmax(x):\n    return torch.softmax(x, dim=-1)\n"


MISTAKES = [
    source("syntax error", "a colon missing", "def softmax(x)\n    return x\n", "build_error", PLACE, quick=True),
    source("import error", "a module that is not there", "import no_such_module\n", "build_error",
           "No module named 'no_such_module'", quick=True),
    source("no entry", "the function has another name", "def sofmax(x): return x\n", "build_error",
           "does not define 'softmax'", quick=True),
    source("entry not callable", "softmax = 3", "softmax = 3\n", "build_error", "softmax"),
    source("F13 wrong signature", "the argument has another name", "def softmax(y):\n    return y\n", RAISED, PLACE,
           quick=True),
    source("returns None", "no return", "def softmax(x): pass\n", "wrong", "None"),
    source("returns a list", "tolist()", "def softmax(x): return x.tolist()\n", "wrong", "list"),
    source("returns a generator", "yield", "def softmax(x): yield x\n", "wrong", "generator"),
    source("wrong shape", "transposed", "import torch\ndef softmax(x): return torch.softmax(x, -1).T\n", "wrong",
           "shape", quick=True),
    source("wrong dtype", "doubles", "import torch\ndef softmax(x): return torch.softmax(x.double(), -1)\n", "wrong",
           "float64"),
    source("meta tensor", "a tensor without data", "import torch\ndef softmax(x): return x.to('meta')\n", "wrong",
           "meta"),
    source("sparse tensor", "to_sparse()", "import torch\ndef softmax(x): return x.to_sparse()\n", "wrong", "strides|sparse"),
    source("NaN", "0/0 in one element", call("x = x.clone(); x[0, 0] = float('nan')"), "wrong", "nan|not written", quick=True),
    source("wrong numbers", "scaled by 1.01", "import torch\ndef softmax(x): return torch.softmax(x, -1) * 1.01\n",
           "wrong", "expected"),
    source("returns its input", "return x", "def softmax(x): return x\n", "wrong", ""),
    source("writes to its input", "x.zero_()", call("x.zero_()"), "wrong", "x", quick=True),
    source("F13 resizes its input", "x.resize_(0)", call("y = torch.softmax(x, -1); x.resize_(0); return y"), "wrong",
           "its input 'x'", never="must match"),
    source("needs a gradient", "requires_grad_", call("return torch.softmax(x, -1).requires_grad_()"), "ok wrong"),
    source("too much memory", "an allocation of 2**62 bytes", call("torch.empty(2**60)"), RAISED, PLACE, quick=True),
]  # fmt: skip

RAISES = [
    source("endless recursion", "softmax calls itself", "def softmax(x): return softmax(x)\n", RAISED,
           "RecursionError", quick=True),
    source("endless recursion at import", "a function at import calls itself", "def f(): return f()\nf()\n",
           "build_error", "RecursionError"),
    source("KeyboardInterrupt", "raised in a call", call("raise KeyboardInterrupt"), RAISED, "KeyboardInterrupt"),
    source("BaseException", "a class derived from it", call("raise B('no')", "class B(BaseException): pass"), RAISED,
           "B: no"),
    source("StopIteration", "next(iter(()))", call("next(iter(()))"), RAISED, "StopIteration"),
    source("exception group", "two exceptions at once", call("raise ExceptionGroup('g', [ValueError(1), OSError(2)])"),
           RAISED, "ExceptionGroup"),
    source("sys.exit in a call", "sys.exit(3)", call("sys.exit(3)"), RAISED, r"sys\.exit\(3\)"),
    source("sys.exit at import", "sys.exit(3)", load("sys.exit(3)"), "build_error", r"sys\.exit\(3\)", quick=True),
    source("F12 SystemExit of an object that cannot be shown", "its __repr__ raises",
           call("sys.exit(E())", "class E:\n    def __repr__(self): raise ValueError('r')"), RAISED,
           PLACE, quick=True),
    source("F12 exception whose __str__ raises", "raise E()",
           call("raise E()", "class E(Exception):\n    def __str__(self): raise ValueError('s')"), RAISED,
           r"\bE\b", quick=True),
    source("F12 lone surrogate in an exception", "ValueError('\\ud800 here')", call("raise ValueError('\\ud800 here')"),
           RAISED, "ValueError: .* here", quick=True),
    source("F8 escapes in an exception", "OSC, CSI and C1 in the message",
           call("raise ValueError('red \\x1b]0;owned\\x07 \\x1b[31m \\x9b31m end')"), RAISED, "ValueError: red .* end",
           also=lambda bench, outcome: no_escapes(bench, outcome), quick=True),
    source("F13 newline in an exception's class name", "type('A\\nB', ...)",
           call("raise type('A\\nB', (Exception,), {})('x')"), RAISED, r"A.{0,4}B: x", never="A\nB", quick=True),
    source("F13 exception of 200 MB", "ValueError('x' * 200_000_000)", call("raise ValueError('x' * 200_000_000)"),
           RAISED, "ValueError: x", never="timed out"),
    source("exception whose __str__ never ends", "while True in __str__",
           call("raise E()", "class E(Exception):\n    def __str__(self):\n        while True: pass"),
           f"{TIMEOUT} {RAISED}", ""),
]  # fmt: skip

PROLOGUE = "import ctypes, fcntl, os, signal, subprocess, sys, threading, time, torch\n"
ENDS = [
    source("os._exit in a call", "os._exit(1)", call("os._exit(1)"), CRASHED, "exited with code 1 while checking",
           quick=True, also=lambda bench, outcome: reported_soon(bench, outcome)),
    source("os._exit at import", "os._exit(0)", load("os._exit(0)"), CRASHED, "exited with code 0 while loading"),
    source("segfault", "a read at address 8", call("ctypes.string_at(8)", "import ctypes"), CRASHED,
           "segfaulted while checking", quick=True),
    source("abort", "os.abort()", call("os.abort()"), CRASHED, "aborted while checking"),
    source("SIGKILL to itself", "os.kill(os.getpid(), 9)", call("os.kill(os.getpid(), 9)"), CRASHED,
           "was killed while checking"),
    source("SIGTERM to its group", "os.killpg(0, 15)", call("os.killpg(0, 15)"), CRASHED, "SIGTERM"),
    source("SIGSTOP to itself", "os.kill(os.getpid(), SIGSTOP)", call("os.kill(os.getpid(), 19)"),
           f"{TIMEOUT} {CRASHED}", "stopped"),
    source("endless loop", "while True", call("while True: pass"), TIMEOUT,
           r"solution\.py.*timed out after 3"),
    source("endless loop at import", "while True", load("while True: pass"), TIMEOUT,
           r"solution\.py.*timed out after 6"),
    source("all signals ignored", "and then an endless loop",
           call("for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): "
                "pass\nwhile True: pass", "import signal"), TIMEOUT, "timed out after 3"),
    source("deadlock", "a lock taken twice", call("L.acquire(); L.acquire()", "import threading; L = threading.Lock()"),
           TIMEOUT, r"solution\.py.*timed out after 3"),
    source("descriptors closed in a call", "os.closerange(0, 64)", call("os.closerange(0, 64)"), f"{CRASHED} {TIMEOUT}"),
    source("descriptors closed at import", "os.closerange(0, 64)", load("os.closerange(0, 64)"),
           f"{CRASHED} {TIMEOUT}"),
    source("PDEATHSIG switched off", "prctl(1, 0), then a loop",
           call("ctypes.CDLL(None).prctl(1, 0)\nwhile True: pass", "import ctypes"), TIMEOUT, "timed out after 3"),
    source("slow import", "time.sleep(2) at import", load("time.sleep(2)"), "ok"),
    source("import of 30 s", "time.sleep(30) at import", load("time.sleep(30)"), TIMEOUT, "timed out after 6"),
]  # fmt: skip

FAMILY = [
    source("F7 fork in a call", "os.fork() once",
           call("global F\nif not F:\n    F = True; os.fork()", "F = False"), "ok", r"(?i)fork",
           also=lambda bench, outcome: each_row_once(bench, outcome)),
    source("F7 fork at import", "os.fork() at import", load("os.fork()"), "ok build_error", r"(?i)fork",
           also=lambda bench, outcome: each_row_once(bench, outcome), quick=True),
    source("F2 20 children that sleep", "forked at import; then the worker exits",
           call("os._exit(1)", "for _ in range(20):\n    if not os.fork(): time.sleep(60); os._exit(0)"), CRASHED,
           "exited with code 1", within=5.0),
    source("child that execs", "subprocess.run(['true']) at import",
           load("import subprocess; subprocess.run(['true'], check=True)"), "ok", "", never="(?i)fork"),
    source("multiprocessing", "a pool of one process at import",
           load("import multiprocessing as m\np = m.get_context('fork').Process(target=int); p.start(); p.join()"),
           "ok", "", never="(?i)fork"),
    source("50 zombies", "children that exit and are never waited for",
           load("for _ in range(50):\n    if not os.fork(): os._exit(0)"), "ok", ""),
    source("F2 process in another session, then a loop", "sleep 60 in a new session; while True",
           call("while True: pass", "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"),
           TIMEOUT, "timed out after 3", within=8.0),
    source("F2 process in another session, then os._exit", "sleep 60 in a new session; os._exit(1)",
           call("os._exit(1)", "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"),
           CRASHED, "exited with code 1 while checking", within=5.0,
           also=lambda bench, outcome: reported_soon(bench, outcome), quick=True),
    source("F2 daemon that holds every pipe", "fork, setsid, fork, sleep 60; then a segfault",
           call("ctypes.string_at(8)", "import ctypes\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
                "    time.sleep(60); os._exit(0)\n"), CRASHED, "segfaulted", within=5.0),
    source("300 threads", "threads that sleep",
           load("import threading\nfor _ in range(300): threading.Thread(target=time.sleep, args=(30,), daemon=True)"
                ".start()"), "ok", "thread"),
]  # fmt: skip

OUTPUT = [
    source("escapes printed", "OSC 0, OSC 52, CSI", call("print('\\x1b]0;owned\\x07\\x1b]52;c;eA==\\x07\\x1b[2J')"), "ok",
           quick=True),
    source("lone surrogate printed", "print('\\ud800')", load("print('\\ud800')"), "ok build_error", ""),
    source("bytes that are not UTF-8 printed", "os.write(1, b'\\xff\\xfe')", call("os.write(1, b'\\xff\\xfe\\n')"), "ok",
           quick=True),
    source("F10 2 GB on stdout", "os.write(1, ...) in the first call",
           call("global F\nif not F:\n    F = True\n    for _ in range(2000): os.write(1, B)",
                "F = False; B = (b'words ' * 20 + b'\\n') * 8264"), "ok timeout", "", within=60.0,
           also=lambda bench, outcome: bounded(bench, outcome)),
    source("F10 300 MB on stderr in one line", "os.write(2, b'x' * ...)",
           call("global F\nif not F:\n    F = True\n    for _ in range(300): os.write(2, B)",
                "F = False; B = b'x' * 1000000"), "ok timeout", "", within=60.0,
           also=lambda bench, outcome: bounded(bench, outcome)),
    source("reads stdin", "sys.stdin.read()", call("sys.stdin.read()"), "ok", quick=True),
    source("opens /dev/tty", "open('/dev/tty')", call("open('/dev/tty')"), RAISED, "No such device", quick=True),
    source("wire: garbage on every descriptor", "os.write to 3..40",
           load("for n in range(3, 41):\n    try: os.write(n, b'\\x00garbage {\"event\": 3}\\n')\n    except OSError: pass"),
           "crashed", "wrote to its event pipe"),
    source("wire: 200,000 brackets on every pipe", "a line that exceeds the recursion limit",
           load("for n in range(3, 41):\n    try: os.write(n, b'[' * 60000 + b'\\n')\n    except OSError: pass"), "crashed",
           "wrote to its event pipe"),
    source("wire: lines of the wrong kinds", "ready, case, step and finding with lists and numbers",
           load("import json\nfor n in range(3, 41):\n    for e in ('ready', 'case', 'step', 'finding', 'failed'):\n"
                "        line = json.dumps({'event': e, 'run': [1], 'environment': [1], 'result': 3, 'step': []})\n"
                "        try: os.write(n, line.encode() + b'\\n')\n        except OSError: pass"), "crashed",
           "wrote to its event pipe"),
    source("F13 json.dumps patched", "json.dumps = None",
           load("import json; json.dumps = lambda *a, **k: 1/0"), "ok build_error crashed", "", never="timed out", within=8.0),
    source("F13 os.write patched", "os.write raises", load("os.write = lambda *a: 1/0"), "ok build_error crashed", "",
           never="timed out", within=8.0),
    source("clock replaced", "time.perf_counter returns 0", load("time.perf_counter = lambda: 0.0"), "ok",
           "clock replaced"),
]  # fmt: skip

TEXTS = [
    source("empty source", "nothing but the number of the save", "", "build_error", "does not define 'softmax'",
           quick=True),
    source("BOM", "a byte order mark first", "\ufeffimport torch\ndef softmax(x): return torch.softmax(x, -1)\n", "ok",
           quick=True),
    source("CRLF", "line ends of Windows", "import torch\r\ndef softmax(x):\r\n    return torch.softmax(x, -1)\r\n", "ok",
           quick=True),
    source("source that is not UTF-8", "b'\\xff' in a comment", "# \udcff\nimport torch\n", "build_error", "solution.py",
           quick=True),
    source("F13 NUL byte", "b'\\0' in the source", "import torch\nx = '\0'\n", "build_error", r"solution\.py",
           quick=True),
    source("deep parentheses", "300 of them", "x = " + "(" * 300 + ")" * 300 + "\n", "build_error", PLACE, quick=True),
    source("F13 deep unary operators", "30,000 minus signs", "x = " + "-" * 30000 + "1\n", "build_error",
           r"solution\.py", quick=True),
]  # fmt: skip

WRITES = [
    source("F6 writes a code file into its folder", "generated.py with the time, at every import",
           load("open('FOLDER/generated.py', 'w').write('STAMP = %r' % time.time())"), "ok", "",
           also=lambda bench, outcome: few_starts(bench, outcome, "generated.py"), quick=True),
    source("F6 appends to itself", "a line in its own solution.py, at every import",
           load("open('FOLDER/solution.py', 'a').write('\\nT = %r' % time.time())"), "ok", "",
           also=lambda bench, outcome: few_starts(bench, outcome, "solution.py")),
    source("writes a data file into its folder", "debug.txt, in every call",
           call("open('FOLDER/debug.txt', 'w').write(str(time.time()))"), "ok", quick=True),
    source("F1 holds the lock of runs.jsonl", "flock(LOCK_EX) at import, never let go",
           load("import fcntl; F = open('FOLDER/.kernbench/runs.jsonl'); fcntl.flock(F, fcntl.LOCK_EX)"), "ok", "",
           quick=True),
    source("F1 holds the lock of ITERATIONS.md", "flock(LOCK_EX) at import, never let go",
           load("import fcntl; F = open('FOLDER/ITERATIONS.md'); fcntl.flock(F, fcntl.LOCK_EX)"), "ok",
           also=lambda bench, outcome: names_the_holder(bench, outcome), quick=True),
]  # fmt: skip


def no_escapes(bench: Workbench, outcome: Outcome) -> None:
    found = re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", (bench.folder / "ITERATIONS.md").read_bytes())
    outcome.check(not found, f"ITERATIONS.md has {found[0] if found else b''!r}")


def reported_soon(bench: Workbench, outcome: Outcome) -> None:
    """Within 0.2 s by the book; the same again for loading, checking and a busy machine."""
    last = max(place for place, (_at, event) in enumerate(bench.lines) if event["event"] == "start")
    ended = next(at for at, event in bench.lines[last:] if event["event"] == "finished")
    taken = ended - bench.lines[last][0]
    outcome.saw = f"{taken:.2f} s after the start of the run: {outcome.saw}"
    outcome.check(taken < 1.0, f"reported {taken:.2f} s after the start of the run")


def each_row_once(bench: Workbench, outcome: Outcome) -> None:
    last = max(place for place, (_at, event) in enumerate(bench.lines) if event["event"] == "start")
    landed = [(event["id"], event["checked"]) for _at, event in bench.lines[last:] if event["event"] == "case"]
    outcome.check(len(landed) == len(set(landed)), f"rows landed twice: {landed}")


def few_starts(bench: Workbench, outcome: Outcome, name: str) -> None:
    """At most the save and two runs in a row; then it is said which file is ignored."""
    begun = len(bench.lines)
    time.sleep(3.0)  # no condition tells that nothing more comes
    starts = sum(event["event"] == "start" for _at, event in bench.lines[begun:])
    outcome.check(starts <= 2, f"{starts} more runs in 3 s")
    outcome.check(any(name in line for line in bench.said), f"no word about {name}")


def names_the_holder(bench: Workbench, outcome: Outcome) -> None:
    """The entry waits, and the user learns for which process."""
    said = bench.until_said(r"ITERATIONS\.md is locked by", 5, max(len(bench.said) - 3, 0))
    outcome.check(re.search(r"process \d+ \(\w+\)", said), f"does not name the process: {said}")
    outcome.saw = said


def bounded(bench: Workbench, outcome: Outcome) -> None:
    most = processes.memory(bench.pid, "VmHWM")
    outcome.saw = f"at most {most:.0f} MB: {outcome.saw}"
    outcome.check(most < 120, f"the workbench grew to {most:.0f} MB")


def deletes_itself(bench: Workbench) -> str:
    text = load(f"os.remove('{bench.folder}/solution.py')")
    return bench.until_said(r"solution\.py", 12, bench.save(solution_py=text)[1])


LEAVES = [
    Act(name="deletes itself", group="source", done="os.remove of solution.py", do=deletes_itself,
        says=r"solution\.py", quick=True),
]  # fmt: skip
PYTHON: list[Fault] = [*LEAVES, *MISTAKES, *RAISES, *ENDS, *FAMILY, *OUTPUT, *TEXTS, *WRITES]
