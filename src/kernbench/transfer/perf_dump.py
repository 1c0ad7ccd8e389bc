"""Perf dumps of SGLang: what `sglang generate --perf-dump-path FILE` writes and its `compare_perf.py` reads.

A dump is one run of a model. Its `steps` are the pipeline's stages; one denoising step each is in `denoise_steps_ms`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from harness.shared.regular_file import read_bytes
from harness.shared.taskfile.values import shown
from kernbench.atomic_write import written_aside

DENOISING = "DenoisingStage"
LARGEST = 1 << 24
_DENOISING = (DENOISING, "RefinementStage")
_BEFORE = "BeforeDenoisingStage"


class PerfDumpError(UserError):
    """Not a perf dump; one sentence with file and key."""


@dataclass(frozen=True)
class PerfDump:
    total_ms: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each, in the order of the run; a stage that ran twice has the sum."""
    steps_ms: tuple[float, ...] = ()
    """Of the denoising, one by one."""
    memory_mb: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By checkpoint, such as after_DenoisingStage: `allocated_mb`, `peak_reserved_mb` and so on."""
    at: str = ""
    request: str = ""
    commit: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def denoise_ms(self) -> float:
        """As SGLang's own benchmark counts it: the denoising stages or, without any, the single steps."""
        found = [ms for name, ms in self.stages.items() if name.endswith(_DENOISING) and not name.endswith(_BEFORE)]
        return sum(found) if found else sum(self.steps_ms)

    @property
    def peak_mb(self) -> float | None:
        """The largest memory reserved at any checkpoint."""
        found = [point["peak_reserved_mb"] for point in self.memory_mb.values() if "peak_reserved_mb" in point]
        return max(found, default=None)


def read(path: Path) -> PerfDump:
    try:
        data = json.loads(read_bytes(path, LARGEST))
    except OSError as problem:
        raise PerfDumpError(f"cannot read {path}: {problem.strerror}") from None
    except (ValueError, RecursionError):
        raise PerfDumpError(
            f"{path} is not JSON; a perf dump is what `sglang generate --perf-dump-path` writes"
        ) from None
    return _Reader(path).dump(data)


def write(path: Path, dump: PerfDump) -> None:
    with written_aside(path, text(dump).encode()) as move:
        move()


def text(dump: PerfDump) -> str:
    """The dump as its file has it."""
    data = {
        "timestamp": dump.at,
        "request_id": dump.request,
        "commit_hash": dump.commit or "N/A",
        "tag": "benchmark_dump",
        "total_duration_ms": dump.total_ms,
        "steps": [{"name": name, "duration_ms": ms} for name, ms in dump.stages.items()],
        "denoise_steps_ms": [{"step": step, "duration_ms": ms} for step, ms in enumerate(dump.steps_ms)],
        "memory_checkpoints": {name: dict(point) for name, point in dump.memory_mb.items()},
        "meta": dict(dump.meta),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


class _Reader:
    """Another program wrote the file: every value that is used is checked, every other is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def dump(self, data: Any) -> PerfDump:
        whole = self._table("", data)
        stages: dict[str, float] = {}
        for place, item in enumerate(self._items(whole, "steps")):
            name = item.get("name")
            if not isinstance(name, str):
                raise self._wrong(f"steps[{place}].name", name, "text")
            stages[name] = stages.get(name, 0.0) + self._number(f"steps[{place}].duration_ms", item.get("duration_ms"))
        steps = [
            self._number(f"denoise_steps_ms[{place}].duration_ms", item.get("duration_ms"))
            for place, item in enumerate(self._items(whole, "denoise_steps_ms"))
        ]
        return PerfDump(
            total_ms=self._number("total_duration_ms", whole.get("total_duration_ms")),
            stages=stages,
            steps_ms=tuple(steps),
            memory_mb=self._memory(whole.get("memory_checkpoints") or {}),
            at=str(whole.get("timestamp") or ""),
            request=str(whole.get("request_id") or ""),
            commit=str(whole.get("commit_hash") or ""),
            meta=self._table("meta", whole.get("meta") or {}),
        )

    def _memory(self, value: Any) -> dict[str, dict[str, float]]:
        found = {}
        for name, point in self._table("memory_checkpoints", value).items():
            key = f"memory_checkpoints.{name}"
            numbers = self._table(key, point).items()
            found[name] = {kind: self._number(f"{key}.{kind}", mb) for kind, mb in numbers if mb is not None}
        return found

    def _items(self, whole: dict[str, Any], key: str) -> list[dict[str, Any]]:
        value = whole.get(key) or []
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return [self._table(f"{key}[{place}]", item) for place, item in enumerate(value)]

    def _table(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table")
        return value

    def _number(self, key: str, value: Any) -> float:
        """Zero or more: a duration, or memory."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise self._wrong(key, value, "a number of 0 or more")
        return float(value)

    def _wrong(self, key: str, value: Any, wanted: str) -> PerfDumpError:
        place = f"{self._path}: {key}" if key else f"{self._path}"
        return PerfDumpError(f"{place}: {shown(value)} is not {wanted}; a perf dump of SGLang has one there")
