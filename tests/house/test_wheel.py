"""The built wheel, installed into an empty environment, does everything outside the checkout too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

GUIDE = sorted((ROOT / "src" / "kernbench" / "guide").glob("*.md"))
pytestmark = [pytest.mark.timeout(400)]


def execute(*command: str | Path, cwd: Path, codes: tuple[int, ...] = (0,)) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in codes, f"{command[:3]} left with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    execute(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin of an environment that has the wheel, and sees this one's packages for the dependencies only.

    The folders are named in a .pth file: the .pth files inside them, an editable kernbench among them, are not read.
    """
    venv = tmp_path_factory.mktemp("empty") / "venv"
    execute(sys.executable, "-m", "venv", "--without-pip", venv, cwd=ROOT)
    python = venv / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    execute(sys.executable, *install, cwd=ROOT)
    site = execute(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=venv).strip()
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    Path(site, "dependencies.pth").write_text("\n".join(packages) + "\n")
    return venv / "bin"


def test_it_holds_the_packages_and_the_shipped_tasks_and_nobodys_runs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kernbench", "harness"}
    for task in ("softmax_host", "rms_norm"):
        assert f"kernbench/tasks/{task}/task.toml" in names
    assert "kernbench/tasks/softmax_host/solution.cpp" in names
    assert "kernbench/templates/host/solution.cpp" in names
    assert "kernbench/export/page.html" in names
    assert [page for page in GUIDE if f"kernbench/guide/{page.name}" not in names] == []
    assert not [name for name in names if ".kernbench" in name or "__pycache__" in name or "ruff.toml" in name]


def test_both_packages_come_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    code = "import harness, kernbench; print(harness.__file__, kernbench.__file__, sep='\\n')"
    files = execute(programs / "python", "-c", code, cwd=tmp_path).split()
    assert all(Path(file).is_relative_to(programs.parent) for file in files)


def test_version_and_doctor(programs: Path, tmp_path: Path) -> None:
    assert execute(programs / "kernbench", "--version", cwd=tmp_path).startswith("kernbench ")
    assert "torch" in execute(programs / "kernbench", "doctor", cwd=tmp_path, codes=(0, 1))


@pytest.mark.skipif(not GUIDE, reason="no guide")
def test_the_guide_is_read(programs: Path, tmp_path: Path) -> None:
    listed = execute(programs / "kernbench", "guide", cwd=tmp_path)
    assert [page.stem for page in GUIDE if page.stem not in listed] == []
    assert execute(programs / "kernbench", "guide", GUIDE[0].stem, cwd=tmp_path) == GUIDE[0].read_text()


RIGHT = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
import torch
for name in sys.argv[1:]:
    sys.path.insert(0, os.path.abspath(name))
    import reference, solution
    entry = getattr(solution, name)
    for rows, cols in ((1, 1), (4, 128), (3, 1025)):
        case = {"rows": rows, "cols": cols, "dtype": "float32"}
        inputs = reference.make_inputs(case, 7, "cpu", spread=2.0, offset=0.5)
        torch.testing.assert_close(entry(**inputs).double(), reference.truth(**inputs), atol=1e-5, rtol=1e-5)
    del sys.path[0], sys.modules["reference"], sys.modules["solution"]
    print(name, "is right", flush=True)
from kernbench.kernels import norm_infer, softmax_host
rows = torch.randn(3, 64)
torch.testing.assert_close(softmax_host(rows), rows.softmax(-1))
torch.testing.assert_close(norm_infer(rows, None, None, 0.0, "rmsnorm"), torch.rms_norm(rows, (64,), eps=0.0))
print("shipped kernels are right", flush=True)
os._exit(0)
"""


@pytest.mark.long
def test_new_tasks_are_right_at_once_and_shipped_kernels_can_be_imported(programs: Path, tmp_path: Path) -> None:
    forms = {"in_triton": [], "in_cuda": ["--cuda"], "on_the_host": ["--host"]}
    for name, form in forms.items():
        execute(programs / "kernbench", "new", name, *form, cwd=tmp_path)
    said = execute(programs / "python", "-c", RIGHT, *forms, cwd=tmp_path)
    assert said.splitlines() == [*(f"{name} is right" for name in forms), "shipped kernels are right"]


@pytest.mark.long
def test_a_shipped_task_is_refused_in_place_and_runs_as_a_copy(programs: Path, tmp_path: Path) -> None:
    execute(programs / "kernbench", "run", "softmax_host", cwd=tmp_path, codes=(2,))
    execute(programs / "kernbench", "new", "demo", "--from", "softmax_host", cwd=tmp_path)
    lines = execute(programs / "kernbench", "run", "demo", "--json", cwd=tmp_path, codes=(0, 1)).splitlines()
    events = [json.loads(line) for line in lines]
    cases = {event["id"]: event for event in events if event["event"] == "case"}
    assert events[0]["event"] == "start"
    assert events[0]["schema"] == 1
    assert [event["event"] for event in events[-2:]] == ["finished", "confirmed"]
    assert {case["status"] for case in cases.values()} == {"ok"}
    assert cases["softmax_19x3072"]["solution_us"] > 0
    assert (tmp_path / "demo" / ".kernbench" / "runs.jsonl").is_file()
