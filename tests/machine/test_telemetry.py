"""What NVML and /proc say, and what is made of it: a fake NVML refuses what a real one may refuse."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from types import SimpleNamespace

import pytest

from kernbench.commands.run import idle_device
from kernbench.machine import telemetry
from kernbench.machine.telemetry import GpuProcess, MachineReader, Sample, Telemetry
from kernbench.tui.text.gpu_text import Meters
from tests.tui.scene import HOST, NO_GPU, h200

UUIDS = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]


class FakeNvml:
    """Two GPUs; the second refuses power, clocks and processes."""

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return UUIDS[handle]

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=40, memory=7)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=2 * 1024**3, total=140 * 1024**3)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise RuntimeError("Not Supported")
        return 123_456

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        """The only name that an old driver knows."""
        return 0x1 | 0x4 | 0x40

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        if handle:
            raise RuntimeError("No Permission")
        return [SimpleNamespace(pid=1, usedGpuMemory=1024**3)]


def text(meters: Meters, width: int = 60) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in meters.lines(width)]


def test_a_field_that_is_refused_is_none() -> None:
    first, second = MachineReader({}, FakeNvml()).read().gpus
    assert (first.uuid, first.name, first.busy, first.bus) == ("GPU-aaaa", "NVIDIA H200", 40, 7)
    assert (first.power_w, first.limit_w, first.sm_mhz) == (123.456, None, None)
    assert first.limits == ("power cap", "hardware thermal limit")
    assert [(item.pid, item.memory) for item in first.processes] == [(1, 1024**3)]
    assert (second.power_w, second.processes) == (None, None)
    meters = Meters(ascii_only=False)
    meters.device = "cuda:1"
    meters.take(Sample(HOST, (first, second)))
    lines = text(meters)
    assert lines[0] == "NVIDIA H200  cuda:1"
    assert [line[:9] for line in lines if "40%" in line and line[:1] in " *"] == ["  0   40%", "* 1   40%"]
    assert {"power   -", "SM      -", "temp    -", "procs   -"} <= set(lines)


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        (None, UUIDS),
        ("", []),
        ("2,0", ["GPU-cccc", "GPU-aaaa"]),
        ("GPU-b", ["GPU-bbbb"]),
        ("1,7,0", ["GPU-bbbb"]),
        ("-1", []),
        ("GPU-", []),
        ("0,0", []),
    ],
)
def test_cuda_visible_devices(chosen: str | None, seen: list[str]) -> None:
    assert telemetry.visible(UUIDS, chosen) == seen


def test_the_reader_lists_gpus_as_cuda_does() -> None:
    (only,) = MachineReader({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, FakeNvml()).read().gpus
    assert (only.index, only.uuid) == (0, "GPU-bbbb")
    assert MachineReader({"CUDA_VISIBLE_DEVICES": ""}, FakeNvml()).read().why == "CUDA_VISIBLE_DEVICES hides every GPU"


class OneLost(FakeNvml):
    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 0:
            raise RuntimeError("GPU is lost")
        return index


class NoneOpen(FakeNvml):
    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        raise RuntimeError("Insufficient Permissions")


class NoDriver(FakeNvml):
    def nvmlInit(self) -> None:
        import pynvml

        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_a_machine_without_the_driver_is_told_in_words_of_ours() -> None:
    assert MachineReader({}, NoDriver()).read().why == "no NVIDIA driver here"


def test_a_gpu_that_nvml_may_not_open_does_not_hide_the_others() -> None:
    sample = MachineReader({}, OneLost()).read()
    assert ([gpu.uuid for gpu in sample.gpus], sample.why) == (["GPU-bbbb"], "")
    assert MachineReader({}, NoneOpen()).read().why == "NVML is not allowed to open any of the 2 GPUs"
    assert telemetry._why_none(1, 0, "") == "NVML is not allowed to open the GPU"


class Mixed(FakeNvml):
    def nvmlDeviceGetName(self, handle: int) -> str:
        return ("NVIDIA T400", "NVIDIA A100")[handle]


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["NVIDIA T400", "NVIDIA A100"]),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["NVIDIA T400"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, ["NVIDIA A100"]),
    ],
)
def test_cudas_numbers_of_several_kinds_of_cards_hide_none(environ: dict[str, str], seen: list[str]) -> None:
    assert [gpu.name for gpu in MachineReader(environ, Mixed()).read().gpus] == seen


def test_the_idlest_is_not_chosen_among_cards_that_may_be_hidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    reader = MachineReader({"CUDA_VISIBLE_DEVICES": "0"}, Mixed())
    monkeypatch.setattr(telemetry, "MachineReader", lambda: reader)
    with pytest.raises(SystemExit) as end:
        idle_device()
    assert end.value.code == 3
    assert capsys.readouterr().err == (
        "kernbench: --device idle: cannot match NVML's GPUs to CUDA's (their order may differ);"
        " set CUDA_VISIBLE_DEVICES to GPU UUIDs\n"
    )
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    reader = MachineReader({"CUDA_VISIBLE_DEVICES": "0"}, FakeNvml())
    assert idle_device() == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    reader = MachineReader({"CUDA_VISIBLE_DEVICES": ""}, FakeNvml())
    with pytest.raises(SystemExit):
        idle_device()
    none = "no GPU to choose from (CUDA_VISIBLE_DEVICES hides every GPU)"
    assert capsys.readouterr().err == f"kernbench: --device idle: {none}\n"


def test_a_gpu_in_use_that_is_not_shown_is_not_taken_for_another() -> None:
    meters = Meters(ascii_only=False)
    meters.device, meters.uuid = "cuda:0", "MIG-1"
    meters.take(Sample(HOST, (h200(limits=("hardware thermal limit",)),)))
    assert text(meters)[0] == "cuda:0: NVML does not list it"
    assert meters.warning() == ""
    meters.take(MachineReader({"CUDA_VISIBLE_DEVICES": "MIG-1"}, FakeNvml()).read())
    assert text(meters)[0] == "cuda:0: NVML does not report on MIG slices"
    meters.uuid = "GPU-bbbb"
    meters.take(MachineReader({}, Mixed()).read())
    assert text(meters)[0] == "NVIDIA A100  cuda:0"


def test_of_many_gpus_the_one_in_use_comes_first() -> None:
    meters = Meters(ascii_only=False)
    meters.device, meters.uuid = "cuda:3", "GPU-3"
    meters.take(Sample(HOST, tuple(h200(index=index, uuid=f"GPU-{index}") for index in range(8))))
    assert [line for line in text(meters)[:10] if line.startswith(("procs", "limit"))] == [
        "limit   none",
        "procs   1 ours",
    ]


def test_the_gpu_in_use_is_found_by_uuid_before_number() -> None:
    gpus = [h200(), h200(index=1, uuid="GPU-other")]
    assert telemetry.in_use(gpus, "cuda:0").index == 0
    assert telemetry.in_use(gpus, "cuda:0", "other").index == 1
    assert telemetry.in_use(gpus, "cuda:0", "GPU-gone") is None
    assert telemetry.in_use(gpus, "cpu") is None


def test_the_idlest_gpu() -> None:
    taken = h200(processes=(GpuProcess(1),), busy=0)
    gpus = [taken, h200(index=1, processes=(), busy=50), h200(index=2, processes=(), busy=3)]
    assert telemetry.idle(gpus).index == 2
    assert telemetry.idle([]) is None


def test_strangers_are_named_only_where_ours_is_listed() -> None:
    ours, other = GpuProcess(4242, "python", ours=True), GpuProcess(7, "m[bf16]", 8 * 1024**3)
    meters = Meters(ascii_only=False)
    meters.device = "cuda:0"
    meters.take(Sample(HOST, (h200(processes=(ours, other)),)))
    assert "procs   ! 1 not ours: m[bf16] 7 8.0G" in text(meters)
    assert meters.warning() == "the GPU is shared with 1 process"
    meters.take(Sample(HOST, (h200(processes=(other,)),)))
    assert meters.warning() == ""
    meters.take(Sample(HOST, (h200(processes=(ours,), limits=("hardware thermal limit",)),)))
    assert meters.warning() == "the GPU is throttled: hardware thermal limit"


class Listing(FakeNvml):
    def __init__(self, *pids: int) -> None:
        self.pids = pids

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=1024**3) for pid in self.pids]


def _ours(reader: MachineReader) -> list[bool]:
    return [process.ours for process in reader.read().gpus[0].processes]


def test_all_below_this_program_is_ours_and_stays_so_when_its_parent_goes() -> None:
    """As ncu and what runs under it: the driver lists the grandchild, and for a moment longer than ncu lives."""
    under = subprocess.Popen(["sh", "-c", "sleep 60 >&- & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    grandchild = int(under.stdout.readline())
    try:
        reader = MachineReader({}, Listing(os.getpid(), grandchild, 1, os.getppid(), 2**22 + 1))
        assert _ours(reader) == [True, True, False, False, False]
        under.kill()
        under.wait()
        assert _ours(reader) == [True, True, False, False, False]
        assert _ours(MachineReader({}, Listing(grandchild))) == [False]
    finally:
        os.kill(grandchild, signal.SIGKILL)
        under.communicate()


def test_a_gpu_is_not_called_unused_before_the_worker_has_said() -> None:
    meters = Meters(ascii_only=False)
    meters.take(Sample(HOST, (h200(),)))
    said = []
    for device in (None, "cuda:0", "cpu"):
        meters.device = device
        said.append(text(meters)[0])
    assert said == ["NVIDIA H200", "NVIDIA H200  cuda:0", "NVIDIA H200  not used by this task"]


@pytest.mark.parametrize("width", [37, 60, 100])
def test_meters_are_bars_with_history(width: int) -> None:
    meters = Meters(ascii_only=False)
    for second in range(60):
        meters.take(Sample(HOST, (h200(second),)))
    lines = {line.split()[0]: line for line in text(meters, width)}
    assert max(map(len, lines.values())) <= width
    assert lines["busy"][8:14] == "▇" * 6
    assert lines["memory"][8:13] in ("▇▁▁▁▁", "▇▇▁▁▁")  # 12 of 140 GiB
    past = {name: line.split()[-1] for name, line in lines.items()}
    assert past["power"][-6:] == "▄▅▅▆▆▇"  # it grows, five seconds a cell
    assert past["limit"][-3:] == "▁▆▇"  # throttled in the last ten seconds
    assert {style for line in meters.lines(width) for _, style in line} <= {"", "strong", "dim", "accent", "warn"}


def test_a_meter_in_a_narrow_pane_has_no_bar() -> None:
    meters = Meters(ascii_only=False)
    meters.take(Sample(HOST, (h200(),)))
    assert text(meters, 30)[4] == "SM      345/1980 MHz"


def test_without_a_gpu_the_pane_says_why() -> None:
    meters = Meters(ascii_only=True)
    assert text(meters) == ["reading the meters"]
    for _ in range(5):
        meters.take(NO_GPU)
    lines = text(meters)
    assert lines[0] == "no GPU: no NVIDIA driver here"
    assert lines[1].split() == ["cpu", "#...........", "12%", "of", "2", "_"]
    assert lines[1].isascii()


def test_a_reader_that_fails_is_a_sentence_and_the_thread_stops() -> None:
    class Broken:
        def read(self) -> Sample:
            raise OSError("the card fell off the bus")

    heard: list[Sample] = []
    told = threading.Event()

    def tell(sample: Sample) -> None:
        heard.append(sample)
        told.set()

    thread = Telemetry(Broken(), tell, seconds=0.001)
    thread.start()
    assert told.wait(5)
    thread.stop()
    thread._thread.join(5)
    assert not thread._thread.is_alive()
    assert heard[0].why == "telemetry failed: the card fell off the bus"


def test_this_machine_can_be_read() -> None:
    sample = MachineReader().read()
    assert sample.host.cores >= 1
    assert sample.host.memory_total > sample.host.memory_used > 0
    assert sample.gpus or sample.why
