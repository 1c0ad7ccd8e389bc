"""Stores profiles under .kernbench/profiles/: the newest 50, by source, case, GPU and ncu version.

A stored profile is the other half of a before/after pair, so the baseline, the best or an iteration need not run again.
One JSON file per profile; a full one comes with its .ncu-rep, which Nsight Compute's GUI opens. A file that cannot be
read is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernbench.diagnosis.counters import Profile
from kernbench.task.lookup import make_state

MOST_PROFILES = 50


class Profiles:
    def __init__(self, state: Path, kept: int = MOST_PROFILES) -> None:
        self.folder = state / "profiles"
        self._kept = kept

    def keep(self, profile: Profile, report: Path | None = None) -> Profile:
        """Write it atomically and delete the oldest; returns it with the path of its report."""
        make_state(self.folder.parent)
        self.folder.mkdir(exist_ok=True)
        path = self._path(profile)
        if report is not None:
            place = path.with_suffix(".ncu-rep")
            shutil.move(report, place)
            profile = replace(profile, report=str(place))
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, prefix=".new-", delete=False, encoding="utf-8"
        ) as scratch:
            json.dump(profile.as_dict(), scratch, ensure_ascii=False, allow_nan=False)
        os.replace(scratch.name, path)
        self._forget()
        return profile

    def find(self, source: str, case: str, gpu: str, ncu: str, full: bool = False) -> Profile | None:
        """The newest profile of this source and case from the same GPU and ncu; a full one also serves as a summary."""
        wanted = [
            Profile(source=source, case=case, gpu=gpu, ncu=ncu, full=kind)
            for kind in ((True,) if full else (False, True))
        ]
        found = [profile for key in wanted if (profile := _read(self._path(key))) is not None]
        return max(found, key=lambda profile: profile.at, default=None)

    def newest(self) -> list[Profile]:
        """All profiles, newest first."""
        return [profile for path in self._files() if (profile := _read(path)) is not None]

    def pair(self, before: str, after: str, case: str | None = None) -> tuple[Profile, Profile] | None:
        """Profiles of two sources (hashes, or a baseline's name) on the same case, GPU and ncu; the newest such."""
        taken = self.newest()
        for new in taken:
            if _is(new, after) and new.kernels and case in (None, new.case):
                for old in taken:
                    same = (old.case, old.gpu, old.ncu) == (new.case, new.gpu, new.ncu)
                    if same and old.kernels and _is(old, before):
                        return old, new
        return None

    def _path(self, profile: Profile) -> Path:
        key = json.dumps([profile.source, profile.case, profile.gpu, profile.ncu, profile.full])
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"

    def _files(self) -> list[Path]:
        def age(path: Path) -> float:
            try:
                return path.stat().st_mtime_ns
            except OSError:
                return 0.0

        return sorted(self.folder.glob("*.json"), key=age, reverse=True)

    def _forget(self) -> None:
        for path in self._files()[self._kept :]:
            for each in (path, path.with_suffix(".ncu-rep")):
                with contextlib.suppress(OSError):
                    each.unlink()


def evidence_line(before: Profile, after: Profile) -> str:
    """`registers 40 -> 32, occupancy 62 -> 87 %, DRAM 2.9 -> 3.8 TB/s (ncu, qwen 4096x3072)`: three at most."""
    old, new = before.main, after.main
    if old is None or new is None:
        return ""
    pairs = [
        ("spills", before.total("spilled"), after.total("spilled"), "", 0, 1.0),
        ("registers", old.registers, new.registers, "", 0, 1.0),
        ("occupancy", old.occupancy_pct, new.occupancy_pct, " %", 0, 1.0),
        ("DRAM", old.bandwidth, new.bandwidth, " TB/s", 1, 1e-12),
        ("bytes", before.total("bytes_moved"), after.total("bytes_moved"), " MB", 0, 1e-6),
        ("instructions", before.total("instructions"), after.total("instructions"), " M", 1, 1e-6),
        ("kernels", float(len(before.kernels)), float(len(after.kernels)), "", 0, 1.0),
        ("duration", before.duration_us, after.duration_us, " us", 1, 1.0),
    ]
    moved = list(_moved(pairs))
    text = ", ".join(moved[:3]) if moved else "no counter moved"
    return f"{text} (ncu, {after.label or after.case})"


def _moved(pairs: Iterable[tuple[str, float | None, float | None, str, int, float]]) -> Iterable[str]:
    for name, old, new, unit, digits, scale in pairs:
        if old is None or new is None or abs(new - old) <= 0.03 * max(abs(old), abs(new)):
            continue
        before, after = f"{old * scale:.{digits}f}", f"{new * scale:.{digits}f}"
        if before != after:
            yield f"{name} {before} -> {after}{unit}"


def _is(profile: Profile, wanted: str) -> bool:
    return (
        profile.side == wanted or profile.source == wanted or (len(wanted) >= 8 and profile.source.startswith(wanted))
    )


def _read(path: Path) -> Profile | None:
    try:
        return Profile.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
