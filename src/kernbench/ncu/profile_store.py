"""Stores profiles under .kernbench/profiles/: the newest 50, by source, case, GPU and ncu version.

A stored profile is the other half of a before/after pair, so the baseline, the best or an iteration need not run again.
One JSON file per profile; a full one comes with its .ncu-rep, which Nsight Compute's GUI opens. A file that cannot be
read is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from harness.shared.lines import UNREADABLE
from harness.shared.regular_file import NotRegular, read_bytes
from kernbench.atomic_write import written_aside
from kernbench.diagnosis.counters import Profile
from kernbench.task.lookup import make_state

MOST_PROFILES = 50
LARGEST = 1 << 26


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
        text = json.dumps(profile.as_dict(), ensure_ascii=False, allow_nan=False)
        with written_aside(path, text.encode()) as move:
            move()
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


def _read(path: Path) -> Profile | None:
    try:
        return Profile.from_dict(json.loads(read_bytes(path, LARGEST)))
    except (OSError, NotRegular, *UNREADABLE):
        return None
