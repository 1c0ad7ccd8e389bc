"""One step of a model, as it is and with tasks' entries in it: what the worker is asked to time, and what it measured.

A site is a Python callable of the model, `MODULE:NAME`, that an entry can replace. A rewrite is a callable that does
the same through the sites, where the model's own code has no call to replace. A side is a way to run the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.shared.results import Ratio


@dataclass(frozen=True)
class Site:
    call: str
    task: str
    adapter: str
    """Gets the task's entry and returns what takes the site's place."""
    compiled: bool = True
    """False leaves the model's own code to torch.compile, which fuses it as well and with its neighbors."""


@dataclass(frozen=True)
class Rewrite:
    call: str
    by: str


@dataclass(frozen=True)
class Limits:
    """The worst output that is kept; None for no limit."""

    relative_l2: float | None = None
    psnr_db: float | None = None
    fp32_ratio: float | None = None
    """Error against the wide weights, over that of the step as it is."""
    drift_l2: float | None = None
    """Relative L2 of the last of several steps in a row."""


@dataclass(frozen=True)
class ModelFile:
    """A model.toml, with the config chosen: a program that builds the model, or a command that runs it."""

    name: str
    folder: str
    title: str
    program: str
    """Empty for a command."""
    dtype: str
    config_name: str
    config: dict[str, Any]
    sites: tuple[Site, ...]
    rewrites: tuple[Rewrite, ...] = ()
    operators: dict[str, str] = field(default_factory=dict)
    """Tasks whose op.py spells its entry differently, each with a function of op.py's module that returns the entry."""
    limits: Limits = field(default_factory=Limits)
    needs: tuple[str, ...] = ()
    """Packages that it cannot do without."""
    forbid: tuple[str, ...] = ()
    """Words in the log which say that the model did not run as it should."""
    wants: tuple[str, ...] = ()
    """Environment variables that the user has to set; only `doctor` looks for them."""
    hash: str = ""
    command: tuple[str, ...] = ()
    """Its words, with {dump} for the file that it writes its times to."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the command."""
    limit_s: float = 1800.0
    """Longest run of the command."""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site.task for site in self.sites))


@dataclass(frozen=True)
class Patch:
    """The source of a task whose entry goes into the model."""

    task: str
    entry: str
    folder: str
    """Of the snapshot."""
    user_folder: str
    file: str = "solution.py"
    build: str = ""
    source: str = ""
    """Hash of the snapshot."""
    what: str = ""
    """best, now or reference."""
    micro: float | None = None
    """Speedup of this source in its task's own rows, if the log has it."""


@dataclass(frozen=True)
class StepRequest:
    run: str
    model: ModelFile
    patches: tuple[Patch, ...]
    sides: tuple[str, ...]
    rounds: int
    seed: int = 0
    steps: int = 0
    """Steps in a row over which the drift is taken; 0 for none."""
    images: str = ""
    """Folder for the images of a decoder; empty for none."""


@dataclass(frozen=True)
class SideTime:
    name: str
    ms: float | None = None
    """Median wall time of a step."""
    samples: tuple[float, ...] = ()
    sm_mhz: float | None = None
    watts: float | None = None
    peak_mb: float | None = None
    """GPU memory: the most that a step had allocated at once, with the weights; what a command reserved."""
    problem: str = ""
    """Why it has no time."""
    total_ms: float | None = None
    """Median of a command's whole runs."""


@dataclass(frozen=True)
class SideRatio:
    """How much faster one side is than another."""

    side: str
    over: str
    speedup: float
    low: float
    high: float
    verdict: str

    @property
    def ratio(self) -> Ratio:
        return Ratio(self.speedup, self.low, self.high, self.verdict)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TaskShare:
    """What a task's sites take of the step as it is."""

    task: str
    calls: int
    share: float
    gain: float | None = None
    """Time of the model's own calls over that of the entry's, in the step."""
    exact: bool | None = None
    """Whether the step's output stays the same bit for bit with this task alone."""


@dataclass(frozen=True)
class OutputGap:
    """How far a side's output is from the original's, and both from the same weights in a wider dtype."""

    side: str
    max_abs: float | None = None
    relative_l2: float | None = None
    psnr_db: float | None = None
    """None if the outputs are equal."""
    bit_exact: bool = False
    is_finite: bool = True
    wide_l2: float | None = None
    original_wide_l2: float | None = None


@dataclass(frozen=True)
class StepResult:
    run: str
    times: tuple[SideTime, ...] = ()
    ratios: tuple[SideRatio, ...] = ()
    floor: float | None = None
    """A/A floor of the step as it is, as a fraction."""
    margin: float | None = None
    shares: tuple[TaskShare, ...] = ()
    gaps: tuple[OutputGap, ...] = ()
    wide: str = ""
    """The wider dtype."""
    not_wired: str = ""
    """Which site or entry never ran."""
    notes: tuple[str, ...] = ()
    drift: tuple[OutputGap, ...] = ()
    """Of each step, if every step goes on from the output of the one before."""
    images: tuple[str, ...] = ()
    """Names of the files."""
