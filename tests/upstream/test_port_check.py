"""`port --check` names the tests that a port breaks and puts the file back; `--verify` sees a win that was lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernbench.cli import cli
from kernbench.upstream import port_check
from kernbench.upstream.port import Port, PortError
from tests.log.logs import add_to_source
from tests.sessions import TASK, gone, write

FAKE = Path(__file__).resolve().parents[1] / "fake" / "harness"
LIKE_PYTEST = """
import pathlib
text = pathlib.Path("norm.py").read_text()
broken = ["tests/test_norm.py::test_old[a b]"] * OLD + ["tests/test_norm.py::test_new"] * ("TIME_US" in text)
for name in broken:
    print(f"FAILED {name} - AssertionError: no")
print(f"{len(broken)} failed")
raise SystemExit(bool(broken))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task with a best, made by the fake worker: 50 us."""
    place = tmp_path_factory.mktemp("made") / "toy"
    place.mkdir()
    (place / "task.toml").write_text(TASK)
    (place / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    write(place, "TIME_US = 50.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNBENCH_HARNESS", str(FAKE))
        result = CliRunner().invoke(cli, ["run", str(place), "-m", "first"])
    assert result.exit_code == 0, result.output
    return place


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNBENCH_HARNESS", str(FAKE))
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(made, tmp_path / "toy")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "other" / "norm.py"
    path.parent.mkdir()
    path.write_text("old = 1\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def port(folder: Path, target: Path) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(cli, ["port", str(folder), "--to", str(target), *words])


def like_pytest(target: Path, old: int) -> str:
    (target.parent / "like_pytest.py").write_text(LIKE_PYTEST.replace("OLD", str(old)))
    return f"{sys.executable} like_pytest.py"


def test_a_test_that_breaks_is_named_and_the_file_put_back(port: Callable[..., Result], target: Path) -> None:
    result = port("--force", "--check", like_pytest(target, old=1))
    assert result.exit_code == 1
    said = "put back, because 1 test broke: tests/test_norm.py::test_new (exit code 1)"
    assert said in result.stderr
    assert "test_old" not in result.stderr
    assert target.read_text() == "old = 1\n"
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_test_that_failed_before_does_not_stand_in_the_way(port: Callable[..., Result], target: Path) -> None:
    command = like_pytest(target, old=1).replace("like_pytest", "unchanged")
    (target.parent / "unchanged.py").write_text(LIKE_PYTEST.replace("OLD", "1").replace("TIME_US", "never"))
    result = port("--force", "--check", command)
    assert result.exit_code == 0
    assert "no test broke; 1 test failed before, too" in result.stderr
    assert "TIME_US = 50.0" in target.read_text()


def test_tests_that_do_not_run_before_port_nothing(port: Callable[..., Result], target: Path) -> None:
    result = port("--force", "--check", "echo no such file; exit 4")
    assert isinstance(result.exception, PortError)
    assert "exits with 4: no such file" in str(result.exception)
    assert target.read_text() == "old = 1\n"


def test_of_another_program_the_exit_code_counts(port: Callable[..., Result], target: Path) -> None:
    result = port("--force", "--check", "grep -q old norm.py")
    assert "put back, because the tests exit with 1, before the port with 0" in result.stderr
    assert target.read_text() == "old = 1\n"


def test_a_new_file_that_breaks_something_is_removed_again(port: Callable[..., Result], target: Path) -> None:
    target.unlink()
    assert port("--force", "--check", "! test -e norm.py").exit_code == 1
    assert not target.exists()


def test_a_module_that_cannot_be_imported_any_more_is_put_back(
    port: Callable[..., Result], folder: Path, target: Path
) -> None:
    """As part of its package, with its mode."""
    (target.parent / "__init__.py").write_text("")
    (target.parent / "near.py").write_text("here = 1\n")
    target.write_text("from . import near\n\n\ndef toy(): ...\n")
    for name, text in (("solution.py", b"import portable\n\n\ndef toy(): ...\n"), ("portable.py", b"")):
        (source,) = (folder / ".kernbench" / "sources").iterdir()
        add_to_source(folder / ".kernbench", source.name, name, text)
    result = port("--force")
    assert result.exit_code == 1
    why = "put back, because its import exits with 1, before the port with 0: ModuleNotFoundError: No module named"
    assert f"kernbench: {why} 'portable'" in result.stderr
    assert "wrote" not in result.stderr
    assert target.read_text().startswith("from . import near\n")
    assert target.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in target.parent.iterdir()) == ["__init__.py", "near.py", "norm.py"]
    target.unlink()
    assert port("--force").exit_code == 1  # in its own folder the source can be imported
    assert not target.exists()
    target.write_text("import sgl_kernel_of_another_machine\n")
    result = port("--force")
    assert result.exit_code == 0
    reason = "ModuleNotFoundError: No module named 'sgl_kernel_of_another_machine'"
    assert f"kernbench: its import checks nothing: without the port it fails, too: {reason}" in result.stderr
    assert "import portable" in target.read_text()


def test_names_that_other_code_may_import_are_not_lost(port: Callable[..., Result], target: Path) -> None:
    target.write_text(
        "import os\nfrom sys import path\n\n_inner = 1\nfused = print\ntry:\n    import json\n"
        "except ImportError:\n    json = None\nif os:\n    def toy(): ...\nclass Gate: ...\n"
    )
    before = target.read_bytes()
    result = port()
    assert result.exit_code == 1
    why = "norm.py would lose Gate and fused, which other code may import; use --force to drop them"
    assert f"kernbench: not written: {why}" in result.stderr
    assert target.read_bytes() == before
    assert port("--force").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(port: Callable[..., Result], target: Path) -> None:
    os.chown(target, 1234, 1235)
    assert port("--force", "--check", "grep -q old norm.py").exit_code == 1
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 1235)
    assert port("--force").exit_code == 0
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 1235)


def test_an_error_that_a_program_prints_breaks_nothing(port: Callable[..., Result], target: Path) -> None:
    assert port("--force", "--check", "grep -q old norm.py || echo ERROR 12:03:11 retry").exit_code == 0
    assert "TIME_US = 50.0" in target.read_text()


def test_tests_that_cannot_be_collected_port_nothing(port: Callable[..., Result], target: Path) -> None:
    result = port("--force", "--check", "echo ERROR test_x.py; exit 2")
    assert "exits with 2: ERROR test_x.py" in str(result.exception)
    assert target.read_text() == "old = 1\n"


def test_what_is_edited_while_the_first_tests_run_stays(port: Callable[..., Result], target: Path) -> None:
    result = port("--force", "--check", "echo mine > norm.py")
    assert "was changed while the tests ran" in str(result.exception)
    assert target.read_text() == "mine\n"


def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("new = 1\n")
    plan = Port(tmp_path / "new.py", "1/new.py", tmp_path / "target.py", tmp_path)
    command = "grep -q old target.py || { echo mine > target.py; exit 1; }"
    (tmp_path / "target.py").write_text("old = 2\n")
    outcome = port_check.write_checked(plan, command, lambda said: None)
    found = re.fullmatch(
        r".*target\.py was changed .*, and stays as it is; its old contents are in (\S+), though .*", outcome
    )
    assert found, outcome
    assert Path(found[1]).read_text() == "old = 2\n"
    Path(found[1]).unlink()
    assert (tmp_path / "target.py").read_text() == "mine\n"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_check_puts_the_file_back_and_ends_the_tests(tmp_path: Path, ending: int) -> None:
    (tmp_path / "new.py").write_text("new\n")
    (tmp_path / "target.py").write_text("old\n")
    code = (
        "import pathlib; from kernbench.upstream import port_check; from kernbench.upstream.port import Port\n"
        "here = pathlib.Path.cwd()\n"
        "plan = Port(here / 'new.py', '1/new.py', here / 'target.py', here)\n"
        "tests = 'grep -q old target.py || { sleep 0.5; echo $$ > pid; exec sleep 60; }'\n"
        "port_check.write_checked(plan, tests, print)\n"  # which by then reads what the tests print
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(ending)
        assert "KeyboardInterrupt" in child.communicate(timeout=60)[1]
    finally:
        child.kill()
        child.wait()
    assert (tmp_path / "target.py").read_text() == "old\n"
    assert gone(int(pid.read_text()), 30)


@pytest.mark.parametrize(
    ("theirs", "code", "said"),
    [
        ("TIME_US = 50.0  # reformatted", 0, "norm.py has kept its speed: 1.00x"),
        ("TIME_US = 80.0", 1, "norm.py has lost speed: 0.62x"),
        ('DO = "wrong"', 1, "norm.py does not do what 1/solution.py does: see above"),
    ],
)
def test_a_win_that_a_rebase_lost_is_seen(
    port: Callable[..., Result], folder: Path, target: Path, theirs: str, code: int, said: str
) -> None:
    before = (folder / ".kernbench" / "runs.jsonl").read_text()
    target.write_text(f"def toy(): ...\n{theirs}\n")
    result = port("--verify")
    assert result.exit_code == code, result.output
    assert said in result.stdout
    added = (folder / ".kernbench" / "runs.jsonl").read_text().removeprefix(before)
    line = json.loads(added)
    assert (line["event"], line["target"]) == ("verified", "norm.py")
    assert set(line["rows"]) >= {"a", "b", "c"}
    assert target.read_text() == f"def toy(): ...\n{theirs}\n"


def test_a_file_that_is_still_the_same_needs_no_timing(port: Callable[..., Result], target: Path) -> None:
    assert port("--force").exit_code == 0
    result = port("--verify")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "is the same as 1/solution.py, byte for byte" in result.stderr


def test_verify_goes_alone(port: Callable[..., Result]) -> None:
    assert "--verify writes nothing" in port("--verify", "--dry-run").stderr
