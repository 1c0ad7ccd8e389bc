"""What a source leaves in the process of its worker: the honest kernel saved next is right, and neither faster nor
slower; the screen says what happened."""

from __future__ import annotations

from typing import Any

from tests.faults.python_sources import call, load
from tests.faults.row import Fault, Outcome, Save
from tests.faults.workbench import GOOD, Workbench

BACK = "restored .*, which the source had changed"
CHANGED = "(?:changed process: |the source changed ).*{}"
OURS = "import harness.check.compare as c, harness.shared.task as t, harness.timing.blocks as b\n"


def is_even(bench: Workbench, outcome: Outcome) -> None:
    """The honest kernel is the baseline, so a speedup whose interval leaves 1 out is a leak."""
    uneven: list[str] = []
    for _ in range(2):  # a busy machine may disturb one; what leaks is there again
        answer = bench.answer(bench.save(solution_py=GOOD), 20)
        outcome.check(answer.statuses == {"ok"}, f"the honest save is {sorted(answer.statuses)}: {answer.words}")
        uneven = [
            f"{row['verdict']}: {row['low']:.2f} to {row['high']:.2f}" for row in answer.rows.values() if _differs(row)
        ]
        if not uneven:
            return
    outcome.check(not uneven, f"the honest save is {uneven}")


def _differs(row: dict[str, Any]) -> bool:
    return row.get("verdict") in ("faster", "slower") and not row["low"] <= 1.0 <= row["high"]


def leak(name: str, text: str, says: str, statuses: str = "ok", never: str = "", **more: object) -> Save:
    texts = {"solution_py": text}
    return Save(
        name=f"F3 {name}", group="leaks", done="left behind in the worker", texts=texts, statuses=statuses, says=says,
        also=is_even, never=f"itself failed|{never}" if never else "itself failed", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def restored(name: str, body: str, statuses: str = "ok", says: str = BACK, **more: object) -> Save:
    """A setting that is restored; `says` is empty if an earlier row was already told about it."""
    return leak(name, load(body), says, statuses, "changed process", **more)


def replaced(name: str, body: str, named: str, statuses: str = "ok wrong runtime_error", **more: object) -> Save:
    """A change that costs the worker."""
    return leak(name, load(body), CHANGED.format(named), statuses, **more)


SLOW = "def slower(f):\n    def g(*a, **k):\n        time.sleep(0.0003)\n        return f(*a, **k)\n    return g\n"
LEAKS: list[Fault] = [
    restored("default dtype", "torch.set_default_dtype(torch.float64)", "ok wrong", quick=True),
    restored("default device", "torch.set_default_device('cpu')"),
    restored("grad mode", "torch.set_grad_enabled(False)", quick=True),
    restored("anomaly mode", "torch.autograd.set_detect_anomaly(True)"),
    restored("deterministic algorithms", "torch.use_deterministic_algorithms(True)"),
    restored("matmul precision", "torch.set_float32_matmul_precision('medium')"),
    restored("a backend flag", "torch.backends.mkldnn.enabled = False"),
    restored("Dynamo's settings", "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True"),
    restored("Inductor's settings", "import torch._inductor.config\ntorch._inductor.config.max_autotune = True", says=""),
    restored("working directory", "os.chdir('/')", quick=True),
    restored("a working directory that is gone", "import tempfile\np = tempfile.mkdtemp(); os.chdir(p); os.rmdir(p)", says=""),
    restored("umask", "os.umask(0o777)"),
    restored("gc off", "import gc; gc.disable()"),
    restored("gc thresholds", "import gc; gc.set_threshold(7)", says=""),
    restored("gc debugging", "import gc; gc.set_debug(gc.DEBUG_UNCOLLECTABLE)", says=""),
    restored("a trace function", "sys.settrace(lambda *a: None)"),
    restored("a profile function", "sys.setprofile(lambda *a: None)"),
    restored("excepthook", "sys.excepthook = lambda *a: None"),
    restored("sys.stdout", "import io; sys.stdout = io.StringIO()"),
    restored("no stderr", "sys.stderr = None", says=""),
    restored("warning filters", "import warnings; warnings.simplefilter('error')"),
    restored("sys.path", "sys.path.insert(0, '/nonexistent')"),
    restored("sys.path emptied", "sys.path.clear()", says=""),
    restored("an environment variable", "os.environ['TRITON_DEBUG'] = '1'", quick=True),
    restored("an environment without PATH", "os.environ.clear()", says=""),
    restored("recursion limit", "sys.setrecursionlimit(200)"),
    restored("switch interval", "sys.setswitchinterval(1.0)"),
    replaced("limit of open files", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
             "a resource limit", "ok runtime_error build_error bad_task crashed"),
    replaced("limit of processor time", "import resource; resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))",
             "a resource limit"),
    replaced("nice value", "os.nice(5)", "the nice value"),
    replaced("a signal handler", "import signal; signal.signal(signal.SIGUSR1, lambda *a: None)", "a signal handler"),
    replaced("a timer", "import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 9999)", "an interval timer"),
    replaced("stdin closed", "os.close(0)", "file descriptor 0"),
    replaced("the worker's pipe behind another", "p = [f for f in range(3, 9) if os.path.exists(f'/proc/self/fd/{f}')"
             " and 'pipe' in os.readlink(f'/proc/self/fd/{f}') and os.O_WRONLY & __import__('fcntl').fcntl(f, 3)][0]\n"
             "t = os.dup(p)\nr, w = os.pipe()\nos.dup2(w, p)\nimport threading\n"
             "def go():\n    while True: os.write(t, os.read(r, 1 << 20))\n"
             "threading.Thread(target=go, daemon=True).start()", "the pipe to the workbench"),
    replaced("the lock of the worker's pipe", "import threading\nf = sys._getframe()\nwhile f:\n"
             "    c = f.f_locals.get('channel')\n    f = f.f_back\n"
             "    if type(c).__name__ == 'Channel': c._lock = threading.Lock()", "the pipe to the workbench"),
    replaced("a handler of faults in C", "import ctypes, signal\n"
             "handle = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)\n"
             "ctypes.CDLL(None).signal(signal.SIGFPE, handle)", "a signal handler"),
    replaced("a lock of threading", "import threading; threading._active_limbo_lock = threading.RLock()",
             r"threading\._active_limbo_lock"),
    replaced("an import hook", "class F:\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, F())",
             "sys.meta_path"),
    replaced("a builtin", "import builtins; builtins.len = lambda x, f=len: f(x)", r"builtins\.len"),
    replaced("a forgotten debugging patch",
             "old = torch.softmax\ndef shown(*a, **k):\n    print(a[0].shape)\n    return old(*a, **k)\ntorch.softmax = shown",
             r"torch\.softmax", quick=True),
    replaced("a slower torch.softmax", SLOW + "torch.softmax = slower(torch.softmax)", r"torch\.softmax"),
    replaced("torch.softmax gone", "del torch.softmax", r"torch\.softmax", "runtime_error bad_task build_error crashed"),
    replaced("a function of torch.nn.functional", SLOW + "import torch.nn.functional as F\nF.softmax = slower(F.softmax)",
             r"torch\.nn\.functional\.softmax"),
    replaced("a method of Tensor", SLOW + "torch.Tensor.softmax = slower(torch.Tensor.softmax)", r"Tensor\.softmax"),
    restored("flush-denormal", "torch.set_flush_denormal(True)"),
    replaced("a torch function mode",
             "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n"
             "    def __torch_function__(self, f, t, a=(), k=None): return f(*a, **(k or {}))\nM().__enter__()",
             "a torch function or dispatch mode"),
    replaced("an aten operator",
             "import warnings\nlib = torch.library.Library('aten', 'IMPL')\n"
             "lib.impl('acos', lambda x: torch.zeros_like(x), 'CPU')", "an aten operator"),
    replaced("Triton's load", "import triton.language as tl\ntl.load = None", r"triton\.language\.load"),
    replaced("the comparison", OURS + "c.compare = lambda *a, **k: None", r"harness\.check\.compare\.compare",
             "ok wrong runtime_error bad_task build_error crashed"),
    replaced("the comparison's code", OURS + "c.compare.__code__ = (lambda *a, **k: None).__code__",
             r"harness\.check\.compare\.compare", "ok wrong runtime_error bad_task build_error crashed"),
    replaced("the timing", OURS + "b.Sides = None", r"harness\.timing\.blocks"),
    replaced("json.dumps", "import json; json.dumps = lambda *a, **k: '{}'", r"json\.dumps"),
    replaced("os.write", "w = os.write\nos.write = lambda *a: w(*a)", r"os\.write"),
    leak("the reference's code",
         call("import sys\nfor n, m in list(sys.modules.items()):\n"
              "    if n.startswith('_kb_reference') and hasattr(m, 'softmax'): m.softmax = lambda x: x"),
         "opponent changed: .*reference", "ok wrong runtime_error"),
    leak("the reference's name of torch",
         call("import sys\n" + SLOW + "import types\nslow = types.SimpleNamespace(softmax=slower(torch.softmax))\n"
              "for n, m in list(sys.modules.items()):\n"
              "    if n.startswith('_kb_reference') and hasattr(m, 'softmax'): m.torch = slow"),
         "after the source changed reference.torch", "build_error"),
    *(leak(f"the reference's {name}, as the harness holds it",
           call("import gc\nfrom harness.inputs.reference import Reference\n"
                f"for r in [o for o in gc.get_objects() if type(o) is Reference]: r.{name} = {other}"),
           rf"opponent changed: .*reference\.{name.strip('_')}", "ok wrong runtime_error", quick=name == "entry")
      for name, other in (("entry", "lambda x: x"), ("_make", "lambda *a, **k: {'x': torch.zeros(8, 32)}"))),
    leak("inputs that it writes to unless it is watched",
         call("from torch.utils._python_dispatch import _get_current_dispatch_mode as m\nif m() is None: x.mul_(2)"),
         "", "ok wrong"),
]  # fmt: skip
