"""What runs an agent's programs: bwrap with a read-only system and no network, a command of the user's, or nothing."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from harness.shared.errors import UserError
from kernbench.task import lookup
from kernbench.worker.process import harness_folder

BWRAP = "bwrap"
TEMPORARY = Path("/tmp")
DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/dxg")
"""GPUs."""
RESOLVER = "/run/systemd/resolve"
"""All else in /run is hidden: a socket there, such as Docker's, would be a way out."""
CACHES = {"XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "cache/triton", "TORCHINDUCTOR_CACHE_DIR": "cache/inductor"}


@dataclass(frozen=True)
class Bounds:
    """What a program may do."""

    folder: Path
    """Where it starts."""
    scratch: Path
    """Its /tmp and caches."""
    writable: Sequence[Path]
    readable: Sequence[Path] = ()
    """Even if a writable folder has them in it, or /tmp."""
    network: bool = False


@dataclass(frozen=True)
class Sandbox:
    command: tuple[str, ...] = ()
    """Empty: none."""

    @classmethod
    def parse(cls, text: str | None) -> Sandbox:
        """`bwrap`, or the start of a command line, to which the program's own is appended."""
        if text is None:
            return cls()
        try:
            words = tuple(shlex.split(text))
        except ValueError as problem:
            raise UserError(f"--sandbox {text}: {problem}") from None
        if not words or shutil.which(words[0]) is None:
            missing = "bwrap is not installed (`apt install bubblewrap`)" if words == (BWRAP,) else f"no {text!r} here"
            raise UserError(f"--sandbox: {missing}; install it, or give a command that starts a container")
        return cls(words)

    def wrapped(self, words: Sequence[str], bounds: Bounds) -> list[str]:
        """The command line that starts these words in the sandbox."""
        if self.command != (BWRAP,):
            return [*self.command, *words]
        scratch = bounds.scratch
        for name in CACHES.values():
            (scratch / name).mkdir(parents=True, exist_ok=True)
        found = [BWRAP, "--die-with-parent", "--unshare-all", *(["--share-net"] if bounds.network else [])]
        found += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        found += ["--ro-bind-try", RESOLVER, RESOLVER] if bounds.network else []
        found += ["--bind", str(scratch), str(TEMPORARY)]
        for device in (path for pattern in DEVICES for path in glob(pattern)):
            found += ["--dev-bind", device, device]
        for place in _hidden(bounds):
            found += ["--ro-bind", str(place), str(place)]
        for place in bounds.writable:
            found += ["--bind", str(place), str(place)]
        for place in bounds.readable:
            found += ["--ro-bind", str(place), str(place)]
        for name, place_in in CACHES.items():
            found += ["--setenv", name, str(TEMPORARY / place_in)]
        return [*found, "--unsetenv", "TMPDIR", "--chdir", str(bounds.folder), "--", *words]


NO_SANDBOX = Sandbox()


def _hidden(bounds: Bounds) -> list[Path]:
    """What the program needs and its own /tmp would hide."""
    repository = lookup.repository_root(bounds.folder) or bounds.folder
    own = (lookup.PACKAGE.parents[1], harness_folder())
    needed = [Path(sys.prefix), Path(sys.base_prefix), *own, repository.resolve()]
    inside = [place for place in needed if place.is_relative_to(TEMPORARY)]
    return list(dict.fromkeys(inside))
