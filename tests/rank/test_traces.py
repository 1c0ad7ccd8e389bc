"""Recordings read from files: what each piece of device time belongs to, and what a source cannot know."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shared.errors import UserError
from kernbench.rank import chrome_trace, nsys_report, trace_events
from kernbench.rank.recording import Recording
from tests.rank.traces import NsysDatabase, launched, operator, python, write

GPU_STEP = [
    python("run.py(3): <module>", 0, 1000),
    python("nn.Module: AdaNorm_0", 10, 300),
    python("torch/nn/modules/module.py(9): _call_impl", 11, 290),
    python("model/norms.py(7): forward", 12, 280),
    python("torch/nn/functional.py(5): layer_norm", 20, 60),
    operator("aten::layer_norm", 25, 50, [2, 96], [96]),
    operator("aten::native_layer_norm", 26, 40, [2, 96]),
    *launched("vectorized_layer_norm_kernel", 30, 1, 400, 20),
    python("model/norms.py(9): <lambda>", 100, 50),
    operator("aten::mul", 110, 20, [2, 96]),
    *launched("elementwise_kernel", 115, 2, 420, 10),
    python("/tmp/torchinductor_me/ab/cab.py(40): call", 200, 20),
    *launched("triton_poi_fused_add_0", 205, 3, 440, 5, by="cuLaunchKernel"),
    operator("aten::addmm", 500, 20, [2, 96]),
    *launched("sm90_xmma_gemm_bf16", 505, 4, 600, 100),
    *launched("graphed", 700, 5, 710, 15, by="cudaGraphLaunch"),
]


def by_function(recording: Recording) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for origin in recording.work:
        name = f"{origin.frames[0].file}:{origin.frames[0].owner or origin.frames[0].name}" if origin.frames else ""
        found.setdefault(name, []).append(origin.kernel)
    return found


def test_kernels_go_to_the_innermost_function_outside_torch(tmp_path: Path) -> None:
    recording = chrome_trace.read(write(tmp_path / "t.json", *GPU_STEP))
    assert by_function(recording) == {
        "model/norms.py:AdaNorm": ["vectorized_layer_norm_kernel", "elementwise_kernel", "triton_poi_fused_add_0"],
        "run.py:<module>": ["sm90_xmma_gemm_bf16", "graphed"],
    }
    first = next(iter(recording.work))
    assert (first.operator, recording.work[first].largest.dims) == ("aten::native_layer_norm", (2, 96))
    assert [frame.name for frame in first.frames] == ["forward", "<module>"]
    assert [origin.kernel for origin in recording.work if origin.graph] == ["graphed"]
    assert recording.on_gpu
    assert recording.unknown == []


def test_idle_time_is_what_no_kernel_covers(tmp_path: Path) -> None:
    recording = chrome_trace.read(write(tmp_path / "t.json", *GPU_STEP))
    assert (recording.device_us, recording.window_us) == (150.0, 325.0)  # 400 to 725
    assert recording.idle_us == 175.0
    twice = [*launched("a", 0, 1, 10, 10), *launched("b", 1, 2, 15, 10)]  # two streams
    recording = chrome_trace.read(write(tmp_path / "u.json", *twice))
    assert (recording.device_us, recording.window_us, recording.busy_us) == (20.0, 15.0, 15.0)


def test_on_a_cpu_operators_count_with_their_self_time(tmp_path: Path) -> None:
    step = [
        python("layers.py(2): gate", 0, 100),
        operator("aten::linear", 10, 50, [4, 8]),
        operator("aten::addmm", 20, 30, [4, 8]),
        operator("aten::mul", 70, 10, [4, 8]),
    ]
    recording = chrome_trace.read(write(tmp_path / "t.json", *step))
    assert {origin.kernel: amount.us for origin, amount in recording.work.items()} == {
        "aten::addmm": 30.0,
        "aten::linear": 20.0,
        "aten::mul": 10.0,
    }
    assert (recording.window_us, recording.idle_us) == (70.0, 10.0)
    assert recording.unknown == [chrome_trace.CPU_TIME]


def test_what_starts_together_is_nested_by_its_length(tmp_path: Path) -> None:
    step = [operator("aten::mul", 0, 4, [2, 3]), operator("aten::mul", 5, 4, [2]), python("a.py(1): f", 0, 9)]
    recording = chrome_trace.read(write(tmp_path / "t.json", *step))
    assert by_function(recording) == {"a.py:f": ["aten::mul"]}
    (amount,) = recording.work.values()
    assert (amount.us, amount.calls, amount.largest.dims) == (8.0, 2, (2, 3))


def test_a_trace_without_stacks_and_shapes_says_so(tmp_path: Path) -> None:
    step = [operator("aten::mul", 0, 10), *launched("mul_kernel", 5, 1, 20, 10), *launched("x", 0, 2, 30, 10)]
    step[-2]["args"] = {}  # its launch is not in the trace
    recording = chrome_trace.read(write(tmp_path / "t.json", *step))
    lost = "It does not say who launched 50.0% of the device time."
    assert recording.unknown == [lost, chrome_trace.NO_STACKS, chrome_trace.NO_SHAPES]


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_a_trace_is_read_in_pieces_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(trace_events, "CHUNK", chunk)
    plain = write(tmp_path / "t.json", *GPU_STEP)
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    bare = tmp_path / "bare.json"
    bare.write_text(" [" + plain.read_text().partition("[")[2].rpartition("]")[0] + "]")
    for path in (plain, packed, bare):
        assert len(list(trace_events.events(path))) == len(GPU_STEP)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"traceEvents": [{"ph": "X"}, {"ph" "X"}]}', "cannot be read at character 36"),
        (b'{"traceEvents": [{"ph": "X"},', "the file ends inside the list of events"),
        (b'{"events": []}', 'has no "traceEvents"'),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k"}]}', "without start, duration or name"),
        (b'{"traceEvents": []}', "neither kernels nor operators"),
        (gzip.compress(b'{"traceEvents": [' + b"{}, " * 5000)[:40], "Compressed file ended"),
    ],
    ids=["syntax", "torn", "other", "event", "empty", "gzip"],
)
def test_a_broken_trace_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    monkeypatch.setattr(trace_events, "CHUNK", 7)
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(UserError, match=r"t\.json") as caught:
        chrome_trace.read(tmp_path / "t.json")
    assert says in str(caught.value)


class Counting(io.StringIO):
    """How often it is read, and how much of it the reader holds then."""

    reads = held = 0
    reader: trace_events._Reader | None = None

    def read(self, size: int | None = -1, /) -> str:
        assert self.reader is not None
        self.reads, self.held = self.reads + 1, max(self.held, len(self.reader._text) - self.reader._at)
        return super().read(size)


@pytest.mark.parametrize(
    ("text", "reads", "held"),
    [
        ('{"a": "' + "x" * 100_000, 1100, 200),
        (" " * 100_000 + '{"traceEvents": [', 1100, 200),
        ('{"traceEvents": ["' + "x" * 100_000 + '"]}', 20, 100_000),
    ],
    ids=["no trace", "blanks before", "a long event"],
)
def test_no_text_is_read_again_and_again(monkeypatch: pytest.MonkeyPatch, text: str, reads: int, held: int) -> None:
    monkeypatch.setattr(trace_events, "CHUNK", 100)
    file = Counting(text)
    file.reader = trace_events._Reader(Path("t.json"), file)
    with contextlib.suppress(UserError):
        assert not list(file.reader.objects())
    assert file.reads <= reads
    assert file.held <= held


def test_a_signal_ends_the_reading_of_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    words = [sys.executable, "-m", "kernbench", "rank", "--from", "t.json"]
    with subprocess.Popen(words, cwd=tmp_path) as process, (tmp_path / "t.json").open("r+b", buffering=0):
        process.terminate()
        try:
            assert process.wait(30) == -signal.SIGTERM
        finally:
            process.kill()


def test_nsys_kernels_go_to_python_frames_or_to_ranges(tmp_path: Path) -> None:
    database = NsysDatabase(tmp_path / "r.sqlite")
    database.range("step", 0, 900)
    database.range("aten::mul, op_id = 3", 100, 200)
    database.kernel("elementwise_kernel", 1, start=300, lasting=10, at=150)
    database.kernel("norm_kernel", 2, start=320, lasting=30, at=250, chain=4)
    stack = [("cudaLaunchKernel", "libcudart.so"), ("norm", "/x/site-packages/torch/f.py"), ("ada", "model/norms.py")]
    database.stack(4, *stack, ("main", "run.py"))
    database.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=360000, end=365000, deviceId=0, streamId=7, bytes=8, copyKind=1)
    recording = nsys_report.read(database.close())
    kernel, norm, copy = recording.work
    assert (kernel.operator, kernel.span, kernel.frames) == ("aten::mul", "aten::mul", ())
    assert [(frame.file, frame.name) for frame in norm.frames] == [("model/norms.py", "ada"), ("run.py", "main")]
    assert norm.span == "step"
    assert (copy.kernel, recording.work[copy].us) == ("Memcpy", 5.0)
    assert (recording.device_us, recording.window_us, recording.idle_us) == (45.0, 65.0, 20.0)
    assert recording.unknown == [nsys_report.NO_SHAPES]


def test_ids_of_two_processes_and_whole_graphs_are_told_apart(tmp_path: Path) -> None:
    database = NsysDatabase(tmp_path / "r.sqlite")
    for process, name in ((1, "first"), (2, "second")):
        database.range(name, 0, 900, process)
        database.range("ended", 10, 20, process)
        database.kernel(f"k{process}", 1, start=300 * process, lasting=10, at=150, process=process)
    database.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=7000, deviceId=0, streamId=7, correlationId=9, globalPid=1 << 24
    )
    recording = nsys_report.read(database.close())
    assert {origin.kernel: origin.span for origin in recording.work} == {
        "k1": "first",
        "k2": "second",
        "CUDA graph": "",
    }
    assert nsys_report.WHOLE_GRAPHS in recording.unknown


def test_an_nsys_export_may_lack_tables_and_columns(tmp_path: Path) -> None:
    database = NsysDatabase(
        tmp_path / "r.sqlite",
        "CREATE TABLE StringIds (id INTEGER, value TEXT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER);",
    )
    database.add("CUPTI_ACTIVITY_KIND_KERNEL", start=0, end=1000, shortName=database.string("k"))
    recording = nsys_report.read(database.close())
    assert [(origin.kernel, amount.us) for origin, amount in recording.work.items()] == [("k", 1.0)]
    said = [nsys_report.NO_LAUNCHES, nsys_report.NO_STACKS, nsys_report.NO_RANGES, nsys_report.NO_SHAPES]
    assert recording.unknown == said


def test_a_file_that_nsys_did_not_export_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.sqlite").write_bytes(nsys_report.MAGIC + b"no database\n" * 200)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    for name, says in (("torn", "not a database"), ("empty", "has no kernels"), ("none", "unable to open")):
        with pytest.raises(UserError, match=says):
            nsys_report.read(tmp_path / f"{name}.sqlite")
    assert nsys_report.is_export(tmp_path / "torn.sqlite")
    assert not nsys_report.is_export(write(tmp_path / "t.json"))
    for name, says in (("x.nsys-rep", "nsys export --type sqlite"), ("none", "No such file")):
        with pytest.raises(UserError, match=says):
            nsys_report.is_export(tmp_path / name)
