"""doctor turns everything it meets, broken Pythons included, into lines with a fix."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from kernbench.cli import cli
from kernbench.doctor import installation
from kernbench.doctor.installation import Check, Nvml
from kernbench.ncu import nsight


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


@pytest.fixture
def fake_python(tmp_path: Path) -> Path:
    """An executable that answers the probe with whatever the test writes into it."""
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    return path


ALWAYS = ["GPU", "driver", "NVML", "torch", "triton", "C++ compiler", "CUDA headers", "ncu", "compute-sanitizer"]


def test_every_check_is_there_and_what_is_missing_has_a_fix(tmp_path: Path, fake_python: Path) -> None:
    found = installation.checks(tmp_path, str(fake_python))
    assert set(by_name(found)) >= {*ALWAYS, "write access", "git"}
    assert all(check.fix for check in found if not check.ok)
    assert all("\n" not in check.says + check.fix for check in found)


def test_the_torch_of_this_python_is_seen_without_importing_it() -> None:
    look = "import sys; from kernbench.doctor.installation import checks, report; print(report(checks()))"
    code = f"{look}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert re.search(r"(?m)^ok +torch +\d", done.stdout)
    assert re.search(r"(?m)^ok +private names +all \d+ found in torch and triton", done.stdout)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "exit code 3"),
        ("echo oops >&2; exit 1", "oops"),
        ("echo not json", "exit code 0"),
        ("kill -SEGV $$", "exit code -11"),
    ],
)
def test_a_python_that_breaks_is_a_line(tmp_path: Path, fake_python: Path, script: str, says: str) -> None:
    fake_python.write_text(f"#!/bin/sh\n{script}\n")
    check = by_name(installation.checks(tmp_path, str(fake_python)))["torch"]
    assert check.ok is False
    assert says in check.says
    assert "--python" in check.fix


def test_a_python_that_hangs_is_a_line(fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "PROBE_SECONDS", 0.2)
    fake_python.write_text("#!/bin/sh\nexec sleep 60\n")
    assert "did not finish" in installation.probe(str(fake_python))["problem"]


def test_a_python_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    assert "cannot start" in installation.probe(str(tmp_path / "nowhere"))["problem"]


def test_a_gpu_and_a_cuda_build_are_named(tmp_path: Path, fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"python": "3.12.1", "torch": "2.11.0", "cuda": "13.0", "gpus": ["NVIDIA H200"], "triton": "3.6.0"}
    fake_python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    monkeypatch.setattr(installation, "_nvml", lambda: Nvml(problem="NVML Shared Library Not Found"))
    found = by_name(installation.checks(tmp_path, str(fake_python)))
    assert found["GPU"].says == "NVIDIA H200"
    assert found["torch"].says == "2.11.0 (CUDA 13.0), Python 3.12.1"
    assert not found["NVML"].ok


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a profile finds it, although PATH does not name it."""
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho Version 2025.3.1.0\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    return path


@pytest.mark.parametrize("may_count", [True, False])
def test_ncu_is_judged_as_a_profile_would(ncu: Path, monkeypatch: pytest.MonkeyPatch, may_count: bool) -> None:
    """By what the process may do, not by who runs it."""
    monkeypatch.setattr(nsight, "permitted", lambda: may_count)
    check = installation._ncu()
    assert check.ok is may_count
    assert check.says.startswith(str(ncu))
    assert ("2025.3.1" in check.says) is may_count
    assert may_count or "NVreg_RestrictProfilingToAdminUsers=0" in check.fix


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exec /bin/sleep 60", "did not finish within 0.2 s"),
        ("echo '\x1b]0;owned'", "does not print a version"),
        ("echo libnvperf is missing >&2; exit 127", "libnvperf is missing"),
    ],
)
def test_an_ncu_that_gives_no_version_is_not_ok(
    ncu: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(installation, "NCU_SECONDS", 0.2 if "sleep" in script else 60.0)
    ncu.write_text(f"#!/bin/sh\n{script}\n")
    check = installation._ncu()
    assert check.ok is False
    assert str(ncu) in check.says
    assert says in check.says
    assert "first on PATH" in check.fix


@pytest.mark.parametrize(
    ("answer", "chosen", "fix"),
    [
        ({"cuda": None, "gpus": []}, None, "install a CUDA build"),
        ({"cuda": "13.0", "gpus": []}, None, "new enough for torch and that its services are running."),
        ({"cuda": "13.0", "gpus": []}, "7", "unset CUDA_VISIBLE_DEVICES"),
        ({"cuda": "13.0", "gpus_problem": "CUDA error 802: system not yet initialized"}, None, "services are running"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_told_of(
    tmp_path: Path,
    fake_python: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, object],
    chosen: str | None,
    fix: str,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    text = json.dumps({"python": "3.12.1", "torch": "2.11.0", "triton": "3.6.0", **answer})
    fake_python.write_text(f"#!/bin/sh\necho '{text}'\n")
    monkeypatch.setattr(installation, "_nvml", lambda: Nvml(("NVIDIA H200",), 1, "580.1"))
    found = by_name(installation.checks(tmp_path, str(fake_python)))
    assert found["torch"].ok is None
    assert fix in found["torch"].fix
    assert str(answer.get("gpus_problem", "none listed")) in found["torch"].says
    monkeypatch.setattr(installation, "_nvml", lambda: Nvml(problem="NVML Shared Library Not Found"))
    assert by_name(installation.checks(tmp_path, str(fake_python)))["torch"].ok


@pytest.mark.parametrize(
    ("private", "ok", "says", "fix"),
    [
        ({"missing": {}, "untried": ""}, True, "all 43 found in torch and triton", ""),
        (
            {"missing": {}, "untried": "torch 2.6.0 and triton 3.2.0"},
            True,
            "all 43 found in torch and triton; untested with torch 2.6.0 and triton 3.2.0",
            "",
        ),
        (
            {"missing": {"torch.a._b": "x is off", "torch.a._c": "x is off", "triton.d": "y"}, "untried": "torch 3.0"},
            None,
            "3 of 43 not found: torch.a._b, torch.a._c, triton.d; untested with torch 3.0",
            "Without them: x is off; y.",
        ),
    ],
)
def test_private_names_that_fell_back_are_told_with_what_is_off(
    tmp_path: Path, fake_python: Path, private: dict[str, object], ok: bool | None, says: str, fix: str
) -> None:
    answer = {"python": "3.12.1", "torch": "2.6.0", "cuda": None, "gpus": [], "private": {"count": 43, **private}}
    fake_python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    check = by_name(installation.checks(tmp_path, str(fake_python)))["private names"]
    assert (check.ok, check.says, check.fix) == (ok, says, fix)


def test_a_private_name_that_is_absent_in_the_workers_python_is_found_out(tmp_path: Path) -> None:
    """By a Python in which one is taken away, and from which kernbench cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['kernbench'] = None\nimport torch\ndel torch.cuda._sleep\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (check,) = installation._private(installation.probe(str(python)))
    assert check.ok is None
    assert re.match(r"1 of \d+ not found: torch\.cuda\._sleep\b", check.says)
    assert check.fix.startswith("Without them: event pairs include the launch")


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"machine": 1_240_000_000, "gpu": 560_000_000}, "takes 1.2 GB of memory and 0.6 GB of the GPU's; a second"),
        ({"machine": 310_000_000}, "takes 0.3 GB of memory; a second one starts while half of the memory is free"),
    ],
)
def test_what_a_spare_costs_is_told(tmp_path: Path, fake_python: Path, sizes: dict[str, int], says: str) -> None:
    answer = {"python": "3.12.1", "torch": "2.6.0", "cuda": None, "gpus": [], "spare": sizes}
    fake_python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    check = by_name(installation.checks(tmp_path, str(fake_python)))["spare worker"]
    assert check.ok
    assert check.says.startswith(says)


def test_a_torch_that_the_harness_cannot_be_imported_with_is_a_line() -> None:
    (check,) = installation._private({"torch": "2.11.0", "private_problem": "No module named 'torch.overrides'"})
    assert check.ok is False
    assert check.says == "cannot import the harness in the worker's Python: No module named 'torch.overrides'"


class FakeNvml(ModuleType):
    """Some GPUs, not all of which may be opened."""

    NVMLError = RuntimeError

    def __init__(self, count: int, *opened: int) -> None:
        super().__init__("pynvml")
        self.count, self.opened = count, opened

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index not in self.opened:
            raise RuntimeError("Insufficient Permissions")
        return index


OTHERS = "Every other GPU is monitored; choose one with `--device`."
ASK = "Ask for access to a GPU's /dev/nvidia* files."


@pytest.mark.parametrize(
    ("count", "opened", "gpu", "nvml"),
    [
        (2, (1,), (True, "NVIDIA H200", ""), ("GPU 0: Insufficient Permissions", OTHERS)),
        (
            2,
            (),
            (None, "none of the 2 GPUs can be opened", ASK),
            ("GPU 0: Insufficient Permissions, GPU 1: Insufficient Permissions", ASK),
        ),
        (1, (), (None, "the GPU cannot be opened", ASK), ("GPU 0: Insufficient Permissions", ASK)),
    ],
)
def test_gpus_that_may_not_be_opened(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    opened: tuple[int, ...],
    gpu: tuple[object, ...],
    nvml: tuple[str, str],
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(count, *opened))
    seen = installation._nvml()
    found = by_name(installation._graphics({}, seen))
    assert (found["GPU"].ok, found["GPU"].says, found["GPU"].fix) == gpu
    assert (found["NVML"].ok, found["NVML"].says, found["NVML"].fix) == (None, *nvml)
    assert found["driver"].says == "580.1"
    assert seen.count == count


def test_a_torch_that_fails_at_its_gpus_is_still_a_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "from types import SimpleNamespace\n"
        "def fail(number):\n    raise RuntimeError('CUDA error 802: system not yet initialized\\nmore')\n"
        "__version__, version = '2.11.0', SimpleNamespace(cuda='13.0')\n"
        "cuda = SimpleNamespace(device_count=lambda: 1, get_device_name=fail)\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "task").mkdir()
    for name in ("torch", "json", "importlib"):  # a task's files are not imported by looking at the machine
        (tmp_path / "task" / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path / "task")
    answer = installation.probe(str(python))
    assert (answer["torch"], answer["gpus_problem"]) == ("2.11.0", "CUDA error 802: system not yet initialized")


def test_nothing_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(installation, "TOOLKIT", tmp_path)
    found = by_name(installation.checks(tmp_path, sys.executable))
    assert {found[name].ok for name in ("C++ compiler", "CUDA headers", "ncu", "compute-sanitizer")} <= {None, True}
    assert found["C++ compiler"].ok is None
    assert found["ncu"].ok is None


def test_the_report_is_aligned_and_shows_a_fix_only_where_one_is_needed() -> None:
    found = [Check("torch", True, "2.13.0", "unused"), Check("C++ compiler", None, "none", "Install one.")]
    assert installation.report(found).splitlines() == [
        "ok      torch         2.13.0",
        "-       C++ compiler  none",
        "                      -> Install one.",
    ]


def test_the_command_prints_one_json_line_per_check(fake_python: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--json", "--python", str(fake_python)])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert {check["name"] for check in found} >= set(ALWAYS)
    assert all(set(check) == {"name", "ok", "says", "fix"} for check in found)
