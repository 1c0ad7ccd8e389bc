"""Checks every line of a worker against what it was asked: a source can reach the worker's event pipe.

`asked` notes a request and `check` raises `Refused` for a line that cannot be an answer to it: an unknown event, one
out of order, a case that was not asked for, a time that has not passed, a row that contradicts itself. Every rule
follows from harness/run and harness/timing, and both processes read the same monotonic clock: neither load nor a
suspend makes an honest line look false.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from harness.shared import stats
from harness.shared.errors import Where
from harness.shared.findings import DEFINITIONS
from harness.shared.lines import UNREADABLE, decode_checked
from harness.shared.results import TIMES, CaseResult, Finding, Ratio
from harness.shared.run_request import Environment, Step
from harness.shared.taskfile.values import one_line

GARBLED = "another process or the source itself wrote to its event pipe"
GREETINGS = {"": ("hello",), "hello": ("ready", "unusable"), "ready": ("warm",), "warm": (), "unusable": ()}
"""The lines of a start, each with those that may come next."""
ANY_TIME = frozenset({"wrote", "failed"})
"""Also before the start and after the end of a run: a thread of the kernel writes a file, cleaning up fails."""
COMMON = ANY_TIME | {"step", "finished", "cancelled"}
EVENTS = {
    "run": COMMON | {"started", "loaded", "controls", "finding", "built", "case", "held", "changed"},
    "confirm": COMMON | {"started", "finding", "case", "held", "changed"},
    "floor": COMMON | {"floor"},
    "prepare": COMMON,
}
STEPS = frozenset(get_args(Step))
MEASURED = (*TIMES, "clock", "baseline_us", "kernels", "ledger", "span_us", "blocks", "dropped", "floor", "samples")
"""Fields of a timed row only."""
SIDES = {"baseline": "baseline_us", "best": "best_us", "solution": "solution_us"}
SLACK_MS, SLACK = 1.0, 1.01
"""For rounded times, and for a GPU's clock, which is not quite the host's."""
ROUNDING = 1.1
"""Samples are rounded to 0.1 ns, which is much for the shortest."""


class Refused(ValueError):
    """The worker would not send this line; the message completes `was stopped: ...`."""


class WireCheck:
    """One worker: its start, and the run it was last asked for."""

    def __init__(self, pid: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._pid, self._lines, self._greeting, self._now = pid, 0, "", now
        self._asked: Counter[tuple[str, str]] = Counter()
        self._runs: set[str] = set()
        self._answer: Answer | None = None

    def asked(self, request: dict[str, Any]) -> None:
        """Call before the request is sent."""
        kind, run = str(request.get("request")), str(request.get("run"))
        self._asked[kind, run] += 1
        if kind in EVENTS:
            self._runs.add(run)
            self._answer = Answer(request, self._asked, self._now)

    @property
    def is_idle(self) -> bool:
        """Whether the worker owes no answer."""
        return self._answer is None or self._answer.has_ended

    def check(self, message: dict[str, Any]) -> None:
        self._lines += 1
        if (message["pid"], message["seq"]) != (self._pid, self._lines):
            raise Refused(GARBLED)
        kind = message["event"]
        if kind in GREETINGS:
            if kind not in GREETINGS[self._greeting]:
                raise Refused(f"it reported its start out of order ({_shown(kind)})")
            self._greeting = kind
            return
        if not any(kind in known for known in EVENTS.values()):
            raise Refused(f"it sent an unknown event ({_shown(kind)})")
        if message["run"] not in self._runs:
            raise Refused(f"it answered a run that was not asked for ({_shown(message['run'])})")
        if self._answer is not None and message["run"] == self._answer.run:  # else late lines of an earlier run
            try:
                self._answer.check(kind, message)
            except Refused:
                raise
            except UNREADABLE:
                raise Refused(f"it sent a malformed line ({_shown(kind)})") from None


class Answer:
    """What one request may still be answered by."""

    def __init__(self, request: dict[str, Any], asked: Counter[tuple[str, str]], now: Callable[[], float]) -> None:
        self.run, self._kind = str(request["run"]), request["request"]
        self._request, self._asked, self._now, self._sent_at = request, asked, now, now()
        self._cases: list[str] = list(request["cases"])
        self._kinds = {case["id"]: case["kind"] for case in request.get("task", {}).get("cases", ())}
        self._at_ms = 0.0
        self._seen: Counter[str] = Counter()
        self._rows: dict[str, CaseResult] = {}
        self._floors: list[str] = []

    @property
    def has_ended(self) -> bool:
        return any(self._seen[end] for end in ("finished", "failed", "cancelled"))

    def check(self, kind: str, message: dict[str, Any]) -> None:
        if kind not in EVENTS[self._kind]:
            raise Refused(f"it sent an event of another request ({kind})")
        self._check_time(message["at_ms"])
        if kind not in ANY_TIME:
            if self.has_ended:
                raise Refused(f"it sent an event after the end of the run ({kind})")
            if self._kind in ("run", "confirm") and bool(self._seen["started"]) == (kind == "started"):
                raise Refused(f"it sent an event {'twice' if kind == 'started' else 'before the start'} ({kind})")
        self._seen[kind] += 1
        read: Callable[[dict[str, Any]], None] | None = getattr(self, f"_read_{kind}", None)
        if read is not None:
            read(message)

    def _check_time(self, at_ms: Any) -> None:
        if not (type(at_ms) in (int, float) and at_ms >= self._at_ms):
            raise Refused("its times ran backwards")
        if at_ms > (self._now() - self._sent_at) * 1000 + SLACK_MS:
            raise Refused("it reported a time that has not passed yet")
        self._at_ms = at_ms

    def _read_started(self, message: dict[str, Any]) -> None:
        decode_checked(Environment, message["environment"])

    def _read_finding(self, message: dict[str, Any]) -> None:
        _check_finding(decode_checked(Finding, message["finding"]))

    def _read_changed(self, message: dict[str, Any]) -> None:
        named = [*message["restored"], *message["replaced"], *message["left"]]
        for name, package in message["packages"]:
            named += [name, package]
        if not all(type(name) is str for name in named):
            raise TypeError("not a list of names")

    def _read_loaded(self, message: dict[str, Any]) -> None:
        if message["compiler"] is not None and type(message["compiler"]) is not dict:
            raise TypeError("not a compiler's settings")

    def _read_controls(self, message: dict[str, Any]) -> None:
        if not self._request.get("controls") or self._seen["controls"] > 1:
            raise Refused("it reported controls that were not asked for")

    def _read_wrote(self, message: dict[str, Any]) -> None:
        names = [*message["files"], *message["task_files"]]
        if not all(type(name) is str for name in names) or type(message["unseen"]) is not bool:
            raise TypeError("not a list of files")

    def _read_failed(self, message: dict[str, Any]) -> None:
        if message["status"] not in ("build_error", "bad_task") or type(message["message"]) is not str:
            raise ValueError("not a failure")
        if message["where"] is not None:
            decode_checked(Where, message["where"])

    def _read_cancelled(self, message: dict[str, Any]) -> None:
        if not self._asked["cancel", self.run] and self._kind != "prepare":  # which ends when a run comes
            raise Refused("it cancelled a run by itself")

    def _read_held(self, message: dict[str, Any]) -> None:
        if self._seen["held"] > self._asked["hold", self.run]:  # no deadline applies to a paused run
            raise Refused("it paused without being asked to")

    def _read_step(self, message: dict[str, Any]) -> None:
        case, index, count = message["case"], message["index"], message["count"]
        if message["step"] not in STEPS or count != len(self._cases) or not 0 <= index <= count:
            raise ValueError("not a step")
        controls = self._kinds if self._request.get("controls") and not self._seen["controls"] else ()
        if case is not None and case not in self._cases and case not in controls:
            raise Refused(f"it reported a step of a case that was not asked for ({_shown(case)})")

    def _read_built(self, message: dict[str, Any]) -> None:
        if message["case"] not in self._cases:
            raise Refused(f"it built a case that was not asked for ({_shown(message['case'])})")

    def _read_floor(self, message: dict[str, Any]) -> None:
        case, floor = message["case"], message["floor"]
        if case not in self._cases or case in self._floors:
            raise Refused(f"it reported a floor that was not asked for ({_shown(case)})")
        if floor is not None and not (type(floor) in (int, float) and 0 <= floor < math.inf):
            raise ValueError("not a floor")
        self._floors.append(case)

    def _read_finished(self, message: dict[str, Any]) -> None:
        if self._kind == "prepare":
            return
        missing = [case for case in self._cases if case not in self._rows and case not in self._floors]
        if missing:
            raise Refused(f"it reported the end of the run before the row of {missing[0]}")
        for row in self._rows.values():
            if row.status in ("ok", "interpreted") and row.checked < 2 and not self._request.get("quick"):
                raise Refused(f"it reported the end of the run before the last check of {row.id}")

    def _read_case(self, message: dict[str, Any]) -> None:
        name = message["result"]["id"]
        if name not in self._cases:
            raise Refused(f"it reported a row that was not asked for ({_shown(name)})")
        row, before = decode_checked(CaseResult, message["result"]), self._rows.get(name)
        if before is None and name != next(case for case in self._cases if case not in self._rows):
            raise Refused(f"it reported the row of {name} out of order")
        for finding in row.findings:
            _check_finding(finding)
        if before is not None and not _may_follow(before, row):
            raise Refused(f"it changed the row of {name} after it was done")
        if row.exact is not None and not 0 <= row.exact <= 1:
            raise Refused(f"it reported an impossible share of equal values for {name}")
        timed = self._kinds.get(name) == "case" and row.status == "ok"
        if not timed and (row.others or any(getattr(row, field) is not None for field in MEASURED)):
            raise Refused(f"it reported times for {name}, which was not timed")
        if timed:
            self._check_times(row)
        self._rows[name] = row
        if sum(map(_spent_ms, self._rows.values())) > self._at_ms * SLACK + SLACK_MS:
            raise Refused(f"it reported more time for {name} than has passed")

    def _check_times(self, row: CaseResult) -> None:
        samples = row.samples or {}
        times = {side: getattr(row, field) for side, field in SIDES.items() if getattr(row, field) is not None}
        if "solution" not in times or row.clock is None or samples.keys() - {"with_best"} != times.keys():
            raise Refused(f"it reported a row of {row.id} without all of its times")
        counts = set(map(len, samples.values()))
        if counts != {row.blocks} or min(counts) < stats.FEWEST_BLOCKS:
            raise Refused(f"it reported {row.id} with too few or too many samples")
        if any(min(values) <= 0 for values in samples.values()) or not all(
            min(samples[side]) - 0.001 <= us <= max(samples[side]) + 0.001 for side, us in times.items()
        ):
            raise Refused(f"it reported a time of {row.id} that its samples contradict")
        if (row.ratio is None) != (row.baseline_us is None) or (row.vs_best and not self._request.get("best")):
            raise Refused(f"it reported a speedup of {row.id} that nothing was measured for")
        names = [side.name for side in row.others]
        if len(set(names)) < len(names) or not set(names) <= set(self._request.get("task", {}).get("compare", ())):
            raise Refused(f"it reported a side of {row.id} that the task does not name")
        if not all(side.us > 0 and _is_ordered(side.ratio) for side in row.others):
            raise Refused(f"it reported an impossible speedup of {row.id}")
        margin = stats.margin(min(times.values()), self._request.get("floors", {}).get(row.id))
        possible = all(_is_possible(ratio, margin) for ratio in (row.ratio, row.vs_best) if ratio is not None)
        if not possible or not _is_in_range(row, samples):
            raise Refused(f"it reported an impossible speedup of {row.id}")


def _may_follow(before: CaseResult, row: CaseResult) -> bool:
    """A row lands again with the baseline that was still compiling, and after its slow checks, which keep its times."""
    if before.failed or before.checked == 2:
        return False
    if row.failed or row.status == "skipped" or (row.checked < 2 and before.reason == "baseline_compiling"):
        return True
    kept = row.findings[: len(before.findings)]
    same = replace(row, checked=before.checked, findings=kept, others=())  # which are timed last
    return row.checked == 2 and same == before


def _is_ordered(ratio: Ratio) -> bool:
    return 0 < ratio.low <= ratio.speedup * SLACK and ratio.speedup <= ratio.high * SLACK


def _is_possible(ratio: Ratio, margin: float) -> bool:
    return _is_ordered(ratio) and ratio.verdict == stats.verdict(ratio.speedup, ratio.low, ratio.high, margin)


def _is_in_range(row: CaseResult, samples: dict[str, tuple[float, ...]]) -> bool:
    """On a CPU the speedup is a mean of the blocks' ratios; on a GPU it is one of the calls', which the row lacks."""
    if row.speedup is None or row.clock != "wall":
        return True
    base, own = samples["baseline"], samples["solution"]
    return min(base) / max(own) / ROUNDING <= row.speedup <= max(base) / min(own) * ROUNDING


def _spent_ms(row: CaseResult) -> float:
    """The least time that a row's samples took. Calls that do not wait for their kernels may overlap on a GPU."""
    if not row.samples or any(finding.code == "other_stream" for finding in row.findings):
        return 0.0
    sums = [math.fsum(values) for values in row.samples.values()]
    return (max(sums) if row.clock == "device" else math.fsum(sums)) / 1000


def _shown(name: Any) -> str:
    """A name from the line; it may be anything."""
    return one_line(str(name)[:40])


def _check_finding(finding: Finding) -> None:
    """What disqualifies is decided here, not in the process of the source."""
    known = DEFINITIONS.get(finding.code) if finding.code else None
    if known is not None and finding.disqualifying != known.disqualifying:
        raise Refused(f"it reported a finding with another meaning ({_shown(finding.name)})")
