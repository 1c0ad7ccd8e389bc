"""Kernels tried in processes by themselves: whether Triton interprets is settled when it is first imported.

Without a GPU each process is forked from one that has imported torch and Triton: two seconds less for each.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT

FORKS = """
import atexit, json, os, sys, traceback
import torch, torch._dynamo, triton, triton.language

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
else:
    sys.exit()
output = os.open(asked["output"], os.O_WRONLY)
os.dup2(output, 1)
os.dup2(output, 2)
sys.path[:0] = asked["path"]
try:
    exec(compile(asked["code"], "<string>", "exec"))
    code = 0
except BaseException:
    traceback.print_exc()
    code = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # to take torch apart would cost a second
"""
LONGEST = 4000


def run(code: str, task: Path, interpreted: bool = True) -> None:
    """Runs to its end, with the task's files to import."""
    if interpreted:
        _run_forked(code, task)
        return
    settings = {**os.environ, "PYTHONPATH": f"{task}{os.pathsep}{ROOT}"}
    settings.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-LONGEST:]


def _run_forked(code: str, task: Path) -> None:
    forks = _forks()
    assert forks.stdin is not None
    assert forks.stdout is not None
    with tempfile.NamedTemporaryFile("r") as output:
        try:
            forks.stdin.write(json.dumps({"code": code, "path": [str(task), str(ROOT)], "output": output.name}) + "\n")
            forks.stdin.flush()
            answer = forks.stdout.readline()
        except BaseException:  # such as a timeout: whatever still runs there is not waited for
            _end(forks)
            raise
        assert answer == "0\n", output.read()[-LONGEST:] or f"exit code {answer}"


@functools.cache
def _forks() -> subprocess.Popen[str]:
    settings = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", FORKS]
    process = subprocess.Popen(command, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    _forks.cache_clear()
    process.kill()
    process.communicate()
