"""Speaks the worker's protocol and does what solution.py says in plain assignments, which are read and never run:

TIME_US = 50.0        what a call takes (the baseline takes 100, or what its file says if that has an absolute path)
SPREAD = 0.2          how far the interval reaches to either side, as a fraction
SPREAD_MS = 500.0     a budget from which on it does not
DO = "crash"          crash, exit, hang, hang_load, compile (runs $FAKE_COMPILER), flood, wrong, raise, cuda, syntax,
                      slow (20 ms or $FAKE_SLOW s a row), say (writes SAY as an event),
                      dump (writes debug.txt into the task's folder), raw (sends the bytes of lines.hex as they are),
                      generate (writes generated.py there and reports that), spawn (writes generated.py by a process,
                      which is all that it reports), build (the same with build.so, for a moment),
                      append (to solution.py), cheat (append to reference.py),
                      unsteady (wrong in the first process that runs it; another waits while the task has a .wait),
                      patch (reports that it replaced torch.softmax), find (finds that replaced, but in its first run)
ON = "b"              the case on which it does so; every case if left out
CONFIRM_US = 80.0     what a call takes when the source is confirmed; TIME_US if left out
CONFIRM_DO = "wrong"  what a confirmation does: one of the above, or find (reports a finding that disqualifies), wait
                      (while the task has a .wait), crash_once (in the first process that confirms)
SAYS = "\\u001b"      what it prints, and the words of syntax and raise; written as in JSON

lies.json, next to solution.py, lists false events and when to send them: first, load, row (before the first) or end.
"""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time

ENVIRONMENT = {
    "device": os.environ.get("FAKE_DEVICE", "cpu"),
    "device_name": "Fake 9000",
    "condition": "no clock",
    "python": "3",
    "torch": "none",
    "threads": 1,
}


class Worker:
    def __init__(self):
        self.out = os.dup(1)
        os.dup2(2, 1)
        self.sent, self.runs, self.read_at = 0, 0, time.perf_counter()
        self.requests, self.opened = queue.Queue(), threading.Event()
        self.cancelled = set()
        self.free = threading.Event()
        self.free.set()

    def emit(self, event, **data):
        self.sent += 1
        timed = {"at_ms": (time.perf_counter() - self.read_at) * 1000} if "run" in data else {}
        numbered = {"event": event, **timed, **data, "pid": os.getpid(), "seq": self.sent}
        os.write(self.out, (json.dumps(numbered) + "\n").encode())

    def read(self):
        for line in sys.stdin:
            request = json.loads(line)
            if request["request"] == "cancel":
                self.cancelled.add(request["run"])
                self.free.set()
            elif request["request"] in ("hold", "release"):
                self.free.clear() if request["request"] == "hold" else self.free.set()
            elif request["request"] == "open":
                self.opened.set()
            else:
                self.requests.put((request, time.perf_counter()))
        os._exit(0)

    def serve(self, waits):
        self.emit("hello", protocol=1)
        if os.environ.get("FAKE_UNUSABLE") or os.path.exists(os.environ.get("FAKE_FULL", "")):
            self.emit("unusable", code="no_device", message="there is no device cuda:7 here; torch sees none")
            sys.exit(3)
        threading.Thread(target=self.read, daemon=True).start()
        time.sleep(float(os.environ.get("FAKE_START", "0")))
        if waits:
            self.opened.wait()
        self.emit("ready", environment=ENVIRONMENT)
        until = os.environ.get("FAKE_WARM_UP")  # a file, or a word
        if until == "dies":
            os._exit(1)
        while until and not os.path.exists(until):
            time.sleep(0.01)
        self.emit("warm", gpu_free=float(os.environ.get("FAKE_GPU_FREE", "1")))
        while True:
            request, self.read_at = self.requests.get()
            if request["request"] in ("run", "confirm"):
                self.run(request)
            else:
                self.floor(request)

    def floor(self, request):
        self.emit("floor", run=request["run"], case=request["cases"][0], floor=0.002)
        self.emit("finished", run=request["run"])

    def run(self, request):
        run, cases = request["run"], request["cases"]
        l2 = request["condition"] if ENVIRONMENT["device"].startswith("cuda") else ""
        timed = {"l2": l2, "condition": f"{l2} L2"} if l2 else {}
        self.lie(request, "first")
        self.emit("started", run=run, environment={**ENVIRONMENT, **timed})
        self.emit("step", run=run, step="load", case=None, index=0, count=len(cases))
        self.lie(request, "load")
        text = self.text(request["source"])
        is_confirming = request["request"] == "confirm"
        todo, where = self.word(text, "CONFIRM_DO" if is_confirming else "DO"), self.word(text, "ON")
        if is_confirming:
            self.begin_confirmation(request, todo)
        if todo == "hang_load":
            time.sleep(60)
        if todo == "compile":
            subprocess.run([os.environ["FAKE_COMPILER"]])
        if todo == "say":  # as if another process wrote to the pipe
            os.write(self.out, (self.word(text, "SAY") + "\n").encode())
            time.sleep(60)
        if todo == "crash_load":
            os.kill(os.getpid(), signal.SIGSEGV)
        self.says = json.loads(f'"{self.word(text, "SAYS") or ""}"')
        if self.says:
            os.write(1, f"{self.says}\n".encode())
        if todo == "syntax":
            place = {"file": "solution.py", "line": 3, "text": f"def broken(:{self.says}"}
            message = self.says or "invalid syntax"
            self.emit("failed", run=run, status="build_error", message=message, where=place, traceback="...")
            return
        self.runs += 1
        if todo == "patch" or (todo == "find" and self.runs > 1):
            names = {"patch": {"replaced": ["torch.softmax"]}, "find": {"left": ["torch.softmax"]}}[todo]
            self.emit("changed", run=run, **{"restored": [], "replaced": [], "left": [], "packages": [], **names})
            code = {"patch": "process_changed", "find": "changed_before"}[todo]
            finding = {"name": "changed process", "help": "torch.softmax", "red": True, "code": code}
            self.emit("finding", run=run, finding=finding)
        if todo in ("generate", "append", "spawn", "build", "cheat"):
            self.generate(run, request["task"]["folder"], todo)
        if os.environ.get("FAKE_BUILDER") and not is_confirming:
            self.emit("loaded", run=run, compiler={"target": ["fake", 1, 32]})
        if request["controls"]:
            if todo == "degenerate":
                finding = {"name": "degenerate problem", "help": "zeros pass", "red": False, "code": "degenerate"}
                self.emit("finding", run=run, finding=finding)
            self.emit("controls", run=run, passed=todo != "degenerate")
        own = self.time(text, "CONFIRM_US" if is_confirming else "TIME_US")
        best = request["best"] and self.time(self.text(request["best"]))
        for index, case in enumerate(cases):
            if run in self.cancelled:
                self.emit("cancelled", run=run)
                return
            self.emit("step", run=run, step="check", case=case, index=index, count=len(cases))
            if index == 0:
                self.lie(request, "row")
            result = self.measure(request, case, own, best, todo if where in (None, case) else None)
            for checked in (1, 2) if result["status"] == "ok" else (1,):
                self.emit("case", run=run, result={**result, "checked": checked})
            if not self.free.is_set():
                self.emit("held", run=run)
                self.free.wait()
            if result["status"] == "runtime_error" and todo == "cuda":
                os._exit(70)
        self.emit("finished", run=run)
        self.lie(request, "end")

    def begin_confirmation(self, request, todo):
        if todo == "find":
            finding = {
                "name": "changed process",
                "help": "the source changed torch.softmax",
                "red": True,
                "code": "process_changed",
            }
            self.emit("finding", run=request["run"], finding=finding)
        wait = os.path.join(request["task"]["folder"], ".wait")
        while todo == "wait" and os.path.exists(wait) and request["run"] not in self.cancelled:
            time.sleep(0.01)
        if todo == "crash_once" and self.is_first(request):
            os.kill(os.getpid(), signal.SIGSEGV)

    def lie(self, request, when):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(request["source"], "lies.json")) as file:
            for line in json.load(file).get(when, ()):
                self.emit(**{"run": request["run"], **line})

    def generate(self, run, folder, todo):
        name = {"append": "solution.py", "cheat": "reference.py", "build": "build.so"}.get(todo, "generated.py")
        files, task_files = [] if todo in ("spawn", "build") else [name], [name] if todo == "cheat" else []
        self.emit("wrote", run=run, files=files, task_files=task_files, unseen=todo in ("spawn", "build"))
        with open(os.path.join(folder, name), "a") as file:
            file.write(f"STAMP = {time.time_ns()}\n")
        go = os.path.join(folder, ".go")
        for _ in range(3000 if todo == "spawn" else 30):  # so that the change is seen while the kernel runs
            if run not in self.cancelled and not os.path.exists(go):
                time.sleep(0.01)

    def is_first(self, request):
        """Whether no other process has run an unsteady source of the task before."""
        first, wait = (os.path.join(request["task"]["folder"], name) for name in (".first", ".wait"))
        with contextlib.suppress(FileExistsError), open(first, "x") as file:
            file.write(str(os.getpid()))
        with open(first) as file:
            is_first = file.read() == str(os.getpid())
        while not is_first and os.path.exists(wait) and request["run"] not in self.cancelled:
            time.sleep(0.01)
        return is_first

    def measure(self, request, case, own, best, todo):
        if todo == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif todo == "exit":
            os._exit(0)
        elif todo == "hang":
            time.sleep(60)
        elif todo == "flood":
            for _ in range(int(os.environ.get("FAKE_FLOOD", "200"))):  # 310 kB each
                os.write(1, b"flood of words from the kernel\n" * 10000)
        elif todo == "slow":
            time.sleep(float(os.environ.get("FAKE_SLOW", "0.02")))
        elif todo == "dump":
            with open(os.path.join(request["task"]["folder"], "debug.txt"), "w") as file:
                file.write(str(time.time_ns()))
            time.sleep(0.02)
        elif todo == "raw":
            with open(os.path.join(request["source"], "lines.hex")) as file:
                os.write(self.out, bytes.fromhex(file.read()))
        elif todo == "wrong" or (todo == "unsteady" and self.is_first(request)):
            return {"id": case, "status": "wrong", "detail": "out differs at [0]: got 1, expected 2"}
        elif todo in ("raise", "cuda"):
            return {
                "id": case,
                "status": "runtime_error",
                "detail": self.says or "ValueError: no",
                "where": {"file": "solution.py", "line": 2},
            }
        if next(item for item in request["task"]["cases"] if item["id"] == case)["kind"] != "case":
            return {"id": case, "status": "ok"}
        base, spread = self.base(request), self.spread(request)
        samples = {"baseline": [base] * 8, "solution": [own] * 8, **({"best": [best] * 8} if best else {})}
        time.sleep(sum(map(sum, samples.values())) / 1e6)
        return {
            "id": case,
            "status": "ok",
            "clock": "wall",
            "baseline_us": base,
            "solution_us": own,
            "best_us": best,
            **ratio(base / own, spread),
            "vs_best": against_best(best / own) if best else None,
            "blocks": 8,
            "dropped": 0,
            "samples": samples,
        }

    def base(self, request):
        if not os.path.isabs(request["baseline"]):
            return 100.0
        with open(request["baseline"]) as file:
            return self.time(file.read())

    def spread(self, request):
        text = self.text(request["source"])
        spread, until = (re.search(rf"^{name} = ([0-9.]+)", text, re.MULTILINE) for name in ("SPREAD", "SPREAD_MS"))
        is_wide = spread and (not until or request["budget_ms"] < float(until[1]))
        return float(spread[1]) if is_wide else 0.001

    def text(self, folder):
        with open(os.path.join(folder, "solution.py")) as file:
            return file.read()

    def word(self, text, name):
        found = re.search(rf'^{name} = "(.*)"', text, re.MULTILINE)
        return found and found[1]

    def time(self, text, name="TIME_US"):
        found = re.search(rf"^{name} = ([0-9.]+)", text, re.MULTILINE)
        return float(found[1]) if found else 100.0 if name == "TIME_US" else self.time(text)


def ratio(value, spread=0.001):
    low, high = value * (1 - spread), value * (1 + spread)
    word = "faster" if value > 1.01 and low > 1 else "slower" if value < 0.99 and high < 1 else "unclear"
    word = "same" if 0.99 <= value <= 1.01 and spread < 0.01 else word
    return {"speedup": value, "low": low, "high": high, "verdict": word}


def against_best(value):
    """$FAKE_NOISE is how far the interval reaches to either side, as a fraction: the machine's, not the source's."""
    noise = float(os.environ.get("FAKE_NOISE", "0"))
    if not noise:
        return ratio(value)
    return {"speedup": value, "low": value * (1 - noise), "high": value * (1 + noise), "verdict": "unclear"}


def main(device, waits=""):
    Worker().serve(waits)
