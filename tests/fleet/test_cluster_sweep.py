"""`sweep --ray` on a real cluster of several nodes on this machine: over the fake harness, and once for real."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import FAKE, ROOT
from tests.fleet.cluster import Cluster
from tests.sessions import write

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]
LANES = """        double parts[LANES] = {};
        int64_t i = 0;
        for (; i + LANES <= cols; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) parts[lane] += to[i + lane];
        for (; i < cols; ++i) parts[0] += to[i];
        double sum = 0.0;
        for (int lane = 0; lane < LANES; ++lane) sum += parts[lane];
"""


def start(folder: Path, cluster: Cluster, *words: str, **settings: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernbench", "sweep", "--json", "--no-confirm", *words]
    environment = {**cluster.environment, **settings}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, cluster: Cluster, *words: str, **settings: str) -> tuple[dict[str, Any], str]:
    with start(folder, cluster, *words, **settings) as process:
        out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    last: dict[str, Any] = json.loads(out.splitlines()[-1])
    return last, said


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(3, FAKE_SLOW="0.3")
    yield found
    found.close()


def test_a_node_killed_in_the_middle_costs_no_variant(folder: Path, cluster: Cluster) -> None:
    write(folder, 'TIME_US = 50.0\nDO = "slow"')
    values = [f"{us}.0" for us in range(20, 60, 2) if us != 50]
    words = ("--set", f"TIME_US={','.join(values)}", "--set", 'DO="slow"', "--ray", cluster.address)
    lines: list[dict[str, Any]] = []
    with start(folder, cluster, *words, KERNBENCH_HARNESS=str(FAKE)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            lines.append(json.loads(line))
            if len(lines) == 5:
                cluster.tell("kill 0")
        said = process.stderr.read()
    assert process.returncode == 0, said
    screened = Counter(line["variant"] for line in lines[:-1] if line["stage"].startswith("round 1"))
    assert screened == {f'TIME_US={us} DO="slow"': 1 for us in values}
    assert (lines[-1]["winner"], lines[-1]["complete"]) == ('TIME_US=20.0 DO="slow"', True)
    assert {item["status"] for item in lines[-1]["variants"]} == {"ok"}
    assert "lost a slot on" in said
    assert (folder / "ITERATIONS.md").read_text().count("\n## ") == 1


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_softmax_host_has_the_statuses_of_a_sweep_here(tmp_path: Path, cluster: Cluster) -> None:
    copy = tmp_path / "softmax_host"
    ignored = shutil.ignore_patterns(".kernbench", "ITERATIONS.md")
    shutil.copytree(ROOT / "kernels" / "softmax_host", copy, ignore=ignored)
    text = (copy / "solution.cpp").read_text()
    plain = "        double sum = 0.0;\n        for (int64_t i = 0; i < cols; ++i) sum += to[i];\n"
    assert plain in text
    (copy / "solution.cpp").write_text("#define LANES 1\n" + text.replace(plain, LANES))
    words = ("--set", "LANES=2,4,8,16,32,64,128,-1", "--budget", "40")
    found = [run(copy, cluster, *words, *more)[0] for more in ((), ("--ray", "auto"))]
    here, there = ({item["variant"]: item["status"] for item in last["variants"]} for last in found)
    assert here == there
    assert Counter(there.values()) == {"ok": 8, "build_error": 1}
    assert found[1]["device"] == found[0]["device"]
    assert there[found[1]["winner"]] == "ok"
