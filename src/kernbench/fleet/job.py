"""A job for another machine: sources by their content, what to do with them, and where the results belong.

The source is the snapshot that a run here would take, with links resolved. A node keeps it in a folder named by its
hash, so it is written there once; the runs of each job go to a new folder, so that no job knows of those before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.engine import revision_baseline
from kernbench.engine.jobs import Options
from kernbench.task import snapshot
from kernbench.task.lookup import STATE_FOLDER
from kernbench.worker.deadlines import Deadlines

PLAIN = ("device", "python", "baseline", "case", "grid", "budget_ms", "condition", "quick")
"""The options that a job takes along unchanged."""
PROBLEM, TRIAL = "problem", "trial"
"""Kinds of jobs: a suite's problem, and a run of a sweep's variant."""
KEPT_S = 24 * 3600.0
"""How long a node keeps a source that no job needs."""


@dataclass(frozen=True)
class Job:
    name: str
    sha: str
    """Hash of the source, as in the log."""
    files: Mapping[str, bytes]
    home: str
    """The task's folder on the machine that the results go to."""
    kind: str = PROBLEM
    order: Mapping[str, Any] = field(default_factory=dict)
    """What a kind needs to know besides, as plain data."""
    others: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """More sources that it needs, by hash."""


def packed(item: Mapping[str, Any]) -> Job:
    """The job that an order to the driver names, with the files of its snapshots."""
    others = {sha: snapshot.read(Path(folder)) for sha, folder in item.get("others", {}).items()}
    files = snapshot.read(Path(item["source"]))
    return Job(item["name"], item["sha"], files, item["home"], item["kind"], item.get("order", {}), others)


def item_of(name: str, source: snapshot.Source, home: Path, kind: str = PROBLEM, **more: Any) -> dict[str, Any]:
    """A job in an order to the driver: plain data, with the folders of its snapshots."""
    about = {"name": name, "kind": kind, "sha": source.sha, "source": str(source.folder.resolve())}
    return {**about, "home": str(home.resolve()), **more}


def refuse_baseline(given: str | None, task: Task, state: Path) -> None:
    """Raises UserError for a baseline that no other machine has."""
    baseline = revision_baseline.parse(given, task, state) if given is not None else None
    if baseline is not None and (baseline.tree or (baseline.file and baseline.file.is_absolute())):
        raise UserError(f"--baseline {given} is only on this machine: use a file of each task, or leave out --ray")


def unpacked(job: Job, cache: Path) -> Path:
    """The job's task folder below `cache`: the one that is there already, unless something has changed it."""
    folder = cache / job.sha / Path(job.home).name
    if folder.is_dir() and snapshot.sha_of(folder, folder / STATE_FOLDER) != job.sha:
        shutil.rmtree(folder)
    snapshot.store(job.files, folder)
    os.utime(folder.parent)
    return folder


def remove_old(cache: Path) -> None:
    """Removes what no job has used for a day, also what a killed one left behind."""
    for place in cache.iterdir() if cache.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another actor was faster
            if time.time() - place.stat().st_mtime > KEPT_S:
                shutil.rmtree(place, ignore_errors=True)


def at_home(text: str, job: Job, folder: Path, state: Path, home_state: Path | None = None) -> str:
    """The same text with the paths that it would have if the job had run at home, with its runs in `home_state`."""
    for there, here in ((state, home_state or Path(job.home, STATE_FOLDER)), (folder, Path(job.home))):
        for spelled in (str, lambda path: json.dumps(str(path), ensure_ascii=False)[1:-1]):
            text = text.replace(spelled(there), spelled(here))
    return text


def settings_of(options: Options) -> dict[str, Any]:
    """Options as plain data."""
    plain = {name: getattr(options, name) for name in PLAIN}
    harness = None if options.harness is None else str(options.harness)
    return {**plain, "deadlines": asdict(options.deadlines), "harness": harness}


def options_of(settings: Mapping[str, Any]) -> Options:
    plain = {name: settings[name] for name in PLAIN}
    harness = None if settings["harness"] is None else Path(settings["harness"])
    return Options(**plain, deadlines=Deadlines(**settings["deadlines"]), harness=harness)
