"""Perf dumps of SGLang: its own format is read, ours is the same, and a file that is none is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernbench.transfer import perf_dump
from kernbench.transfer.perf_dump import PerfDump, PerfDumpError

SGLANG: dict[str, Any] = {
    "timestamp": "2026-08-23T10:00:00+00:00",
    "request_id": "3f0c",
    "commit_hash": "cce0a124",
    "tag": "benchmark_dump",
    "total_duration_ms": 1250,
    "steps": [
        {"name": "TextEncodingStage", "duration_ms": 50.0},
        {"name": "BeforeDenoisingStage", "duration_ms": 10.0},
        {"name": "DenoisingStage", "duration_ms": 1000.0},
        {"name": "DecodingStage", "duration_ms": 190.0},
    ],
    "denoise_steps_ms": [{"step": 0, "duration_ms": 40.0}, {"step": 1, "duration_ms": 38.5}],
    "memory_checkpoints": {
        "after_DenoisingStage": {"allocated_mb": 10.0, "reserved_mb": 12.0, "peak_reserved_mb": 30.5},
        "after_DecodingStage": {"peak_reserved_mb": 31.0, "peak_allocated_mb": None},
    },
    "meta": {"model": "flux"},
    "a_key_of_tomorrow": [1],
}


def written(folder: Path, data: Any) -> Path:
    path = folder / "dump.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_dump_of_sglang_is_read(tmp_path: Path) -> None:
    dump = perf_dump.read(written(tmp_path, SGLANG))
    assert (dump.total_ms, dump.steps_ms, dump.commit) == (1250.0, (40.0, 38.5), "cce0a124")
    assert list(dump.stages)[-2:] == ["DenoisingStage", "DecodingStage"]
    assert (dump.denoise_ms, dump.peak_mb) == (1000.0, 31.0)


def test_without_a_denoising_stage_the_steps_count(tmp_path: Path) -> None:
    dump = perf_dump.read(written(tmp_path, {**SGLANG, "steps": SGLANG["steps"][:2]}))
    assert dump.denoise_ms == 78.5


def test_a_dump_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    dump = PerfDump(
        81.0, {perf_dump.DENOISING: 81.0}, (40.5, 40.5), {"after_x": {"peak_reserved_mb": 3.0}}, "now", "r", "c"
    )
    perf_dump.write(tmp_path / "d.json", dump)
    assert perf_dump.read(tmp_path / "d.json") == dump
    assert json.loads((tmp_path / "d.json").read_text()).keys() == SGLANG.keys() - {"a_key_of_tomorrow"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "is not JSON; a perf dump is what"),
        ([], r"dump.json: \[\] is not a table"),
        ({**SGLANG, "total_duration_ms": None}, "total_duration_ms: None is not a number of 0 or more"),
        ({**SGLANG, "total_duration_ms": float("nan")}, "total_duration_ms: nan is not a number"),
        ({**SGLANG, "steps": [{"duration_ms": 1.0}]}, r"steps\[0\].name: None is not text"),
        ({**SGLANG, "denoise_steps_ms": [3.0]}, r"denoise_steps_ms\[0\]: 3.0 is not a table"),
        ({**SGLANG, "memory_checkpoints": {"a": {"b": "c"}}}, "memory_checkpoints.a.b: 'c' is not a number"),
    ],
)
def test_a_file_that_is_no_dump_is_named_with_its_key(tmp_path: Path, data: Any, said: str) -> None:
    with pytest.raises(PerfDumpError, match=said):
        perf_dump.read(written(tmp_path, data))


def test_a_dump_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PerfDumpError, match=r"cannot read .*none.json: No such file"):
        perf_dump.read(tmp_path / "none.json")
