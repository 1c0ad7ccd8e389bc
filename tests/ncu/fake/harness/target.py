"""Speaks the target's lines without torch; what it does is the id of the case it is asked for."""

import json
import os
import select
import signal
import subprocess
import sys
import time

REFUSALS = {
    "ordinal": "AcceleratorError: CUDA error: invalid device ordinal",
    "full": "AcceleratorError: CUDA error: out of memory",
    "new": "RuntimeError: something new",
}
GPU = {"name": "Fake 9000", "capability": [9, 0], "registers": 65536, "shared_bytes": 233472, "threads": 2048}


def _worker_of(workbench):
    """Whether the workbench has a worker: then a GPU in exclusive-process mode is taken."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline") as words, open(f"/proc/{entry}/stat") as fields:
                parent = int(fields.read().rsplit(")", 1)[1].split()[1])
                if parent == workbench and "worker" in words.read().split("\0"):
                    return True
        except OSError:
            continue
    return False


def main(requests, events, device, mode):
    source = os.open(requests, os.O_RDONLY | os.O_NONBLOCK)
    out = os.open(events, os.O_WRONLY)

    def emit(event, **data):
        os.write(out, (json.dumps({"event": event, **data}) + "\n").encode())

    alone = os.environ.get("FAKE_TARGET", "")
    if alone == "busy" or (alone.isdigit() and _worker_of(int(alone))):
        emit("unusable", message="RuntimeError: all CUDA-capable devices are busy or unavailable", code="device")
        sys.exit(3)
    if alone == "slow":
        time.sleep(600)
    if alone in REFUSALS:
        emit(
            "unusable",
            message=f"{REFUSALS[alone]}\nand more",
            code="device",
        )
        sys.exit(3)
    emit("ready", pid=os.getpid(), gpu=GPU)
    line = b""
    while not line.endswith(b"\n"):
        select.select([source], [], [])
        chunk = os.read(source, 65536)
        if not chunk:
            os._exit(0)
        line += chunk
    request = json.loads(line)
    case, name = request["case"], request["sides"][0]["name"]
    emit("step", step="load", side=name)
    print('"0","1","printed by the kernel"')
    if case == "hang":
        subprocess.Popen(["sleep", "600"])
        emit("step", step="profile", side=None)
        time.sleep(600)
    if case == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "raise":
        where = {"file": "solution.py", "line": 7, "text": "boom()"}
        emit("failed", side=name, message="NameError: boom", where=where, traceback="...")
        os._exit(0)
    kernels = [{"name": "_rms", "registers": 40, "spills": 0, "shared_bytes": 2048, "warps": 8, "stages": 3}]
    for side in request["sides"]:
        emit("facts", side=side["name"], kernels=kernels, needed_bytes=1000000)
    emit("step", step="profile", side=None)
    emit("done")
    os._exit(0)
