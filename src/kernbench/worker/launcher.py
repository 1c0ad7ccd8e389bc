"""The script between the workbench and a program that runs user code: it ends the program's whole process tree.

Started as `python -I -S launcher.py IN OUT ERR COMMAND...`, where the first three are the descriptors that become the
program's. It keeps none of them, and it is the subreaper of this one program: a process that the program leaves
behind in another session becomes the launcher's child and is found. Its stdin is a lifeline: a byte asks for the end
of the tree, and so does the end of the workbench, however it ended. It reports on stdout, a line each: `pid N`,
`failed ERRNO`, `stopped`, `exit N`, and `left PID...` if something outlived two seconds of killing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

SECONDS = 2.0
"""For ending the tree."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    *streams, command = *map(int, sys.argv[1:4]), sys.argv[4:]
    control(PR_SET_CHILD_SUBREAPER, 1)
    signals, wake = os.pipe()
    for end in (signals, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    cgroup = new_cgroup()
    launcher, (problem, failed) = os.getpid(), os.pipe()
    program = os.fork()
    if not program:
        become(command, streams, launcher, failed)
    write(cgroup, "cgroup.procs", str(program))
    for descriptor in {*streams, failed}:
        os.close(descriptor)
    error = os.read(problem, 64)  # empty once the program has replaced the copy of the launcher
    say(f"failed {error.decode()}" if error else f"pid {program}")
    code = None
    while code is None:
        ready, _, _ = select.select([0, signals], [], [])
        if 0 in ready:
            os.read(0, 64)
            break
        os.read(signals, 4096)
        code = reap(program)
    end_tree(program, cgroup, code)


def become(command: list[str], streams: list[int], launcher: int, failed: int) -> None:
    """Turn this new process into the program, which dies with the launcher."""
    try:
        os.setsid()
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in set(streams):
            os.close(stream)
        for name in ("SIGPIPE", "SIGXFSZ", "SIGCHLD"):  # Python ignores the first two, and that would be inherited
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as problem:
        os.write(failed, str(problem.errno).encode())
    finally:
        os._exit(127)


def control(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes  # the workbench, which only asks where this file is, does without

        ctypes.CDLL(None).prctl(option, value)


def reap(program: int) -> int | None:
    """Bury the dead and return the program's exit code, negative for a signal; None while it lives."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                break
            if pid == program and os.WIFSTOPPED(status):
                say("stopped")
            elif pid == program:
                code = os.waitstatus_to_exitcode(status)
                say(f"exit {code}")
    return code


def end_tree(program: int, cgroup: str, code: int | None) -> None:
    """Kill everything below the launcher until nothing is left; each round finds what the last one orphaned."""
    until = time.monotonic() + SECONDS
    while True:
        write(cgroup, "cgroup.kill", "1")
        living = below(os.getpid()) or ([] if code is not None else [program])
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        found = reap(program)
        code = found if found is not None else code
        if not living and code is not None:
            break
        if time.monotonic() > until:
            say("left " + " ".join(map(str, living)))
            break
        time.sleep(0.002)
    if cgroup:
        with contextlib.suppress(OSError):
            os.rmdir(cgroup)


def below(root: int) -> list[int]:
    """All live processes below this one."""
    children: dict[int, list[int]] = {}
    dead = set()
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        with contextlib.suppress(OSError, ValueError):
            state, parent = read(f"/proc/{name}/stat").rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append(int(name))
            if state in "ZX":
                dead.add(int(name))
    found = list(children.get(root, []))
    for pid in found:  # it grows
        found += children.get(pid, [])
    return [pid for pid in found if pid not in dead]


def new_cgroup() -> str:
    """A control group for the program, which the system can kill as a whole; empty if we may not create one."""
    with contextlib.suppress(OSError, StopIteration, IndexError):
        own = next(line[3:] for line in read("/proc/self/cgroup").splitlines() if line.startswith("0::"))
        mounts = [line.split() for line in read("/proc/self/mountinfo").splitlines()]
        top = next(words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2")
        parent = os.path.join(top, own.lstrip("/"))
        for old in os.listdir(parent):
            name, _, pid = old.rpartition("-")
            if name == "kernbench" and not os.path.exists(f"/proc/{pid}"):  # of a launcher that was killed
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(parent, old))
        folder = os.path.join(parent, f"kernbench-{os.getpid()}")
        os.mkdir(folder)
        if os.path.exists(os.path.join(folder, "cgroup.kill")):
            return folder
        os.rmdir(folder)
    return ""


def write(cgroup: str, name: str, text: str) -> None:
    if cgroup:
        with contextlib.suppress(OSError), open(os.path.join(cgroup, name), "w", encoding="ascii") as file:
            file.write(text)


def read(path: str) -> str:
    """Without pathlib, which would take a quarter of the launcher's start."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def say(line: str) -> None:
    with contextlib.suppress(OSError):  # the workbench is gone
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
