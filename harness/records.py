"""The vocabulary of both halves: frozen dataclasses and the JSON lines they travel in.

Tasks and requests go down to the worker, events come up from it, results go on to the journal, the screen and
`run --json`. Everything is plain data: `encode` makes one line, `decode` reads a dict back and ignores keys it does not
know. Absent is None; NaN and infinities never reach a line. Standard library only.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

PROTOCOL = 1
"""Version of the lines between workbench and worker."""
SCHEMA = 1
"""Version of the lines of `run --json` and runs.jsonl."""

Status = Literal["ok", "wrong", "build_error", "runtime_error", "timeout", "crashed", "skipped", "interpreted"]
VerdictWord = Literal["faster", "same", "slower", "unclear"]
ClockName = Literal["device", "events", "wall"]
CaseKind = Literal["case", "smoke", "check"]
Step = Literal["load", "build", "baseline", "inputs", "check", "time", "recheck"]


class UserError(Exception):
    """What went wrong, where, and what to do, in one sentence: shown to the user as it is, never with a traceback."""


FAILURES: frozenset[str] = frozenset({"wrong", "build_error", "runtime_error", "timeout", "crashed"})
"""Statuses of a case that was tried and did not come out right."""


@dataclass(frozen=True)
class Where:
    """A place in the user's own files."""

    file: str
    """Relative to the task's folder where it lies inside it, else absolute."""
    line: int | None = None
    text: str | None = None
    """The line itself, stripped."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Tolerance:
    atol: float
    rtol: float


@dataclass(frozen=True)
class Case:
    id: str
    label: str
    """Short name for narrow screens; the id where the task gives none."""
    kind: CaseKind = "case"
    headline: bool = False
    models: tuple[str, ...] = ()
    known: dict[str, Any] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    """A plain table that only reference.py understands."""

    @property
    def variant(self) -> str:
        return str(self.axes.get("variant", ""))


@dataclass(frozen=True)
class Task:
    name: str
    entry: str
    folder: str
    """Absolute path of the folder the user edits."""
    summary: str
    baseline: str
    """eager, compile, or the name of a file beside task.toml."""
    device: Literal["cuda", "cpu"]
    threads: int
    """CPU threads for both sides; stated beside the times."""
    mutates: tuple[str, ...]
    layout: Literal["reference", "any"]
    tolerance: dict[str, Tolerance]
    """By the output's dtype."""
    cases: tuple[Case, ...]
    hash: str
    """Of task.toml, cases.json, reference.py and the baseline: another hash is another series."""
    rowwise: tuple[str, ...] = ()
    """Inputs whose rows are independent of one another: truth may be worked out a few rows at a time."""

    def case(self, case_id: str) -> Case:
        return next(case for case in self.cases if case.id == case_id)

    @property
    def timed(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.kind == "case")


@dataclass(frozen=True)
class Finding:
    """A sanity gate that something tripped; most trip by accident, so `help` says what to look at."""

    name: str
    help: str
    red: bool = False
    """A source with a red finding never becomes best."""


@dataclass(frozen=True)
class Ratio:
    """How many times faster than the other side, with its 95 % interval."""

    speedup: float
    low: float
    high: float
    verdict: VerdictWord


@dataclass(frozen=True)
class WallTime:
    """Host time of one call including synchronisation, from a pass of its own."""

    baseline_us: float | None
    solution_us: float | None
    speedup: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class OutputError:
    """The worst element over all outputs, measured against truth."""

    max: float | None
    """Largest absolute error; None when the output is not finite there or has the wrong shape."""
    baseline_max: float | None
    bound: float | None
    """What the tolerance allows at the element that comes nearest to breaking it."""
    output: str | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None


@dataclass(frozen=True)
class InputForm:
    """One argument of a call: a tensor's form, or the value of what is no tensor."""

    name: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    dtype: str | None = None
    value: Any = None


@dataclass(frozen=True)
class KernelTime:
    """One kernel, copy or fill of a call."""

    name: str
    stream: int
    us: float


TIMES = ("solution_us", "best_us", "speedup", "low", "high", "verdict", "vs_best", "wall", "light")


@dataclass(frozen=True)
class CaseResult:
    """What is known of one case in one run. Only a case that is right may carry times (checked when built)."""

    id: str
    status: Status
    clock: ClockName | None = None
    baseline_us: float | None = None
    solution_us: float | None = None
    best_us: float | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: VerdictWord | None = None
    vs_best: Ratio | None = None
    wall: WallTime | None = None
    light: float | None = None
    """Fraction of the speed of light, 0 to 1."""
    error: OutputError | None = None
    errors: tuple[OutputError, ...] = ()
    """The worst element of every output, where there are several."""
    inputs: tuple[InputForm, ...] = ()
    """What the call was given; of timed cases."""
    findings: tuple[Finding, ...] = ()
    kernels: int | None = None
    """Kernels that one call launches."""
    ledger: tuple[KernelTime, ...] | None = None
    """Those kernels in the order of launch, with their mean time."""
    span_us: float | None = None
    """From the first start to the last end on the device; what exceeds the busy time is gaps between kernels."""
    blocks: int | None = None
    dropped: int | None = None
    dropped_for: str | None = None
    """Why blocks were dropped, such as `software thermal`."""
    known: dict[str, Any] | None = None
    detail: str | None = None
    """One sentence: why it failed or was skipped, why there is no baseline time."""
    where: Where | None = None
    traceback: str = ""
    """Of what the solution raised, or of the crash; where it is kept, the user's own frames alone, and bounded."""
    checked: int = 0
    """1 after the quick checks, 2 after the slow ones too."""
    floor: float | None = None
    """A/A floor used for the verdict, as a fraction."""
    samples: dict[str, tuple[float, ...]] | None = None
    """Microseconds per block and side: baseline, best, solution."""

    def __post_init__(self) -> None:
        if self.status != "ok":
            present = [name for name in TIMES if getattr(self, name) is not None]
            if present:
                raise ValueError(f"case {self.id} is {self.status} and may not carry {', '.join(present)}")

    @property
    def failed(self) -> bool:
        return self.status in FAILURES

    @property
    def red(self) -> bool:
        return self.failed or any(finding.red for finding in self.findings)

    @property
    def ratio(self) -> Ratio | None:
        if self.speedup is None or self.low is None or self.high is None or self.verdict is None:
            return None
        return Ratio(self.speedup, self.low, self.high, self.verdict)

    def untimed(
        self,
        status: Status,
        detail: str,
        *findings: Finding,
        error: OutputError | None = None,
        errors: tuple[OutputError, ...] = (),
    ) -> CaseResult:
        """The same case after a later check took its time away."""
        return CaseResult(
            id=self.id,
            status=status,
            detail=detail,
            known=self.known,
            error=error or self.error,
            errors=errors if error else self.errors,
            inputs=self.inputs,
            findings=self.findings + findings,
            checked=self.checked,
        )


@dataclass(frozen=True)
class Environment:
    """Where a run happened: said once by the worker when it starts, kept with every run."""

    device: str = "cpu"
    """cpu or cuda:N, as torch names it."""
    uuid: str | None = None
    """Of the GPU, as NVML spells it."""
    sm_mhz: int | None = None
    """SM clock when the run began."""
    bandwidth: float | None = None
    """Bytes per second of a large copy on this GPU."""
    device_name: str = ""
    interpreted: bool = False
    """Triton runs interpreted: results are checked, not timed."""
    threads: int | None = None
    condition: str = ""
    """Words that stand beside every geomean, such as `rotated over 64 MiB, 1 thread`."""
    python: str = ""
    torch: str | None = None
    triton: str | None = None
    driver: str | None = None
    clocks: str = ""
    """As read while timing, such as `SM 1980 MHz, memory 3201 MHz`; empty where nothing could be read."""
    host: str = ""


@dataclass(frozen=True)
class RunRequest:
    """One run, as the worker gets it."""

    run: str
    task: Task
    source: str
    """Folder of the candidate's snapshot."""
    best: str | None = None
    """Folder of the best source's snapshot, when there is one to compare with."""
    baseline: str = "eager"
    """eager, compile, best, or a file: may differ from the task's own choice."""
    cases: tuple[str, ...] = ()
    """Ids in the order in which they are to be answered; `check` cases come after the others."""
    seed: int = 0
    """The fresh seed of this run; the fixed one is 0."""
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    """State of the L2 before every timed call on a GPU."""
    floors: dict[str, float] = field(default_factory=dict)
    """A/A floor by case id, where one is known."""
    controls: bool = False
    """Try the task against itself first (once per task hash)."""
    build: str = ""
    """Folder where compiled images may be kept."""


_T = TypeVar("_T")


def finite(value: Any) -> Any:
    """The same data with every NaN and infinity replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def to_dict(record: Any) -> dict[str, Any]:
    """A record as plain JSON data."""
    result: dict[str, Any] = finite(dataclasses.asdict(record))
    return result


def encode(event: str, record: Any = None, **extra: Any) -> str:
    """One JSON line, without its newline."""
    data = {"event": event, **(to_dict(record) if record is not None else {}), **finite(extra)}
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(cls: type[_T], data: dict[str, Any]) -> _T:
    """A record from JSON data; unknown keys are ignored, missing ones take their default."""
    plan = _plan(typing.cast(Any, cls))
    known = {name: value for name, value in data.items() if name in plan.names}
    for name, convert in plan.converters:
        value = known.get(name)
        if value is not None:
            known[name] = convert(value)
    if plan.checked or not plan.required <= known.keys():
        return cls(**known)
    record = object.__new__(cls)  # a frozen __init__ sets field by field, which takes ten times as long
    record.__dict__.update(plan.defaults)
    for name, make in plan.factories:
        if name not in known:
            known[name] = make()
    record.__dict__.update(known)
    return record


class _Plan(typing.NamedTuple):
    """How a class is read, worked out once: a log of 10,000 runs is decoded on every start."""

    names: frozenset[str]
    required: frozenset[str]
    converters: tuple[tuple[str, Callable[[Any], Any]], ...]
    defaults: dict[str, Any]
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    checked: bool
    """The class looks at itself when it is built."""


@functools.cache
def _plan(cls: type) -> _Plan:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(typing.cast(Any, cls))
    converters = ((item.name, _converter(hints[item.name])) for item in fields)
    plain = {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}
    made = [(item.name, item.default_factory) for item in fields if item.default_factory is not dataclasses.MISSING]
    names = frozenset(item.name for item in fields)
    return _Plan(
        names=names,
        required=names - plain.keys() - {name for name, _make in made},
        converters=tuple((name, convert) for name, convert in converters if convert is not None),
        defaults=plain,
        factories=tuple(made),
        checked=hasattr(cls, "__post_init__"),
    )


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this type from JSON data; None where JSON's own will do. Values are never None."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _converter(inner[0]) if len(inner) == 1 else None
    if origin is tuple:
        convert = _converter(typing.get_args(hint)[0])
        return tuple if convert is None else lambda value: tuple(_apply(convert, part) for part in value)
    if origin is dict:
        item = _converter(typing.get_args(hint)[1])
        return None if item is None else lambda value: {key: _apply(item, part) for key, part in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: value if isinstance(value, hint) else decode(hint, value)
    return _as_float if hint is float else None


def _apply(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value
