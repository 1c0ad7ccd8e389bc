"""One task on several GPU types: columns side by side, the best of each, and nothing new for a log with one type."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench import export
from kernbench.cli import cli
from kernbench.events import Summary
from kernbench.log import best, stored_sources
from kernbench.log.gpu_types import GpuTypes
from kernbench.log.runs.journal import Journal
from tests.log.logs import make_log, write_entries

H200, B200 = "NVIDIA H200", "NVIDIA B200"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Four iterations on an H200."""
    task = make_log(tmp_path / "toy", 4, 3)
    write_entries(task)
    return task


def runs_of(task: Task) -> Path:
    return Path(task.folder) / ".kernbench" / "runs.jsonl"


def on_b200(text: str, numbers: dict[int, int]) -> str:
    """Lines of runs.jsonl as a B200 would have written them: the sources with these numbers, twice as fast, the run of
    one source the best there."""
    lines = []
    for line in map(json.loads, text.splitlines()):
        number = int(line["run"][9:15])
        if number not in numbers:
            continue
        line["run"] = f"20261115T{number:06d}-b200"
        if line["event"] == "finished":
            line |= {"iteration": None, "awaits": False, "confirmed": True, "best": number == max(numbers)}
            line |= {name: line[name] * 2 for name in ("geomean", "low", "high")}
        if "environment" in line:
            line["environment"]["device_name"] = B200
        if line["event"] == "case" and line["solution_us"]:
            line["solution_us"] /= 2
            line |= {name: line[name] * 2 for name in ("speedup", "low", "high")}
        lines.append(json.dumps(line, separators=(",", ":")))
    return "\n".join(lines) + "\n"


@pytest.fixture
def both(task: Task) -> Task:
    """The sources of #1 and #2 also ran on a B200, after those on the H200; #2 is the best there."""
    text = runs_of(task).read_text()
    runs_of(task).write_text(text + on_b200(text, {1: 1, 2: 2}))
    return task


def types_of(task: Task) -> GpuTypes:
    return GpuTypes(task, Journal(runs_of(task).parent), stored_sources.entries_of(task))


def entries_of(task: Task) -> list[Summary]:
    return list(best.listing(task, Journal(runs_of(task).parent), stored_sources.entries_of(task)))


def kernbench(*words: str) -> Result:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == 0, result.output
    return result


def test_each_type_has_its_own_best(both: Task) -> None:
    types = types_of(both)
    assert types.names == (H200, B200)
    assert (types.bests[H200].iteration, types.bests[B200].iteration) == (4, 2)
    assert types.sentence().startswith("Best by GPU type: H200 #4 ")
    first, second, *_middle, last = entries_of(both)
    assert set(types.of(first)) == set(types.of(second)) == {H200, B200}
    assert set(types.of(last)) == {H200}
    found = types.of(second)
    assert (found[H200].iteration, found[B200].iteration) == (2, None)
    assert types.cells(second)[1].endswith(" best")
    assert types.cells(last)[0].endswith(" best")
    assert types.cells(last)[1] == "-"


def test_the_log_has_a_column_per_type(both: Task) -> None:
    lines = kernbench("log", both.folder).stdout.splitlines()
    assert lines[0].split() == "# age source H200 B200 outcome stall hypothesis".split()
    assert not any("best now" in line for line in lines)  # each column has its own
    second = types_of(both).cells(entries_of(both)[1])
    assert "  ".join(second) in lines[2]
    told = [json.loads(line)["by_gpu"] for line in kernbench("log", both.folder, "--json").stdout.splitlines()]
    assert [set(item) for item in told] == [{H200, B200}] * 2 + [{H200}] * 2
    assert (told[1][B200]["best"], told[1][H200]["best"]) == (True, False)
    assert told[1][B200]["geomean"] == pytest.approx(2 * told[1][H200]["geomean"])


def test_show_prints_the_rows_side_by_side(both: Task) -> None:
    shown = kernbench("show", both.folder, "2").stdout
    _entry, table = shown.split("The same source by GPU type:\n\n")
    titles, *rows, _blank, sentence = table.splitlines()
    assert titles.split() == ["case", "H200", "us", "H200", "B200", "us", "B200"]
    assert len(rows) == len(both.timed) + 1
    assert rows[-1].startswith("geomean")
    assert rows[-1].endswith(" best")
    h200, b200 = (float(cell) for cell in re.findall(r" ([\d.]+) ", rows[0])[-2:])
    assert h200 == pytest.approx(2 * b200, rel=0.01)
    assert sentence.startswith("Best by GPU type: ")
    assert "by GPU type" not in kernbench("show", both.folder, "4").stdout  # it ran on one


@pytest.mark.parametrize("kind", ["md", "pr", "html"])
def test_documents_have_both_types(both: Task, kind: str) -> None:
    pytest.importorskip("jinja2")
    after = {"after": "2"} if kind == "pr" else {}
    text = export.text(both, runs_of(both).parent, kind, **after)
    assert "By GPU type" in text
    assert "Best by GPU type: H200 #4 " in text
    if kind == "md":
        assert "| # | when | source | H200 | B200 | outcome |" in text
    if kind == "html":
        assert '<th class="sorts num">H200</th><th class="sorts num">B200</th>' in text
    if kind == "pr":
        section = text.split("## By GPU type")[1].split("\n## ")[0]
        assert "| case | H200 us | H200 | B200 us | B200 |" in section
        assert len([line for line in section.splitlines() if line.startswith("| ")]) == len(both.timed) + 3


def test_data_has_both_types(both: Task) -> None:
    state = runs_of(both).parent
    rows = list(csv.DictReader(io.StringIO(export.text(both, state, "csv"))))
    for row in rows:
        if row["iteration"] == "2":
            assert float(row["H200_solution_us"]) == float(row["solution_us"])
            assert float(row["B200_solution_us"]) == pytest.approx(float(row["solution_us"]) / 2)
            assert float(row["B200_speedup"]) == pytest.approx(2 * float(row["speedup"]))
        if row["iteration"] == "4":
            assert row["B200_speedup"] == ""
    told = json.loads(export.text(both, state, "json"))["by_gpu"]
    assert (told[H200]["best"]["iteration"], told[B200]["best"]["iteration"]) == (4, 2)
    assert (len(told[H200]["sources"]), len(told[B200]["sources"])) == (4, 2)


@pytest.mark.parametrize("kind", ["md", "csv", "json", "html", "pr"])
def test_one_type_has_nothing_new(task: Task, kind: str) -> None:
    pytest.importorskip("jinja2")
    text = export.text(task, runs_of(task).parent, kind)
    assert not re.search("by.gpu", text, re.IGNORECASE)
    assert not re.search("H200_", text)
    assert "geomean" in kernbench("log", task.folder).stdout.splitlines()[0]
    assert "by_gpu" not in kernbench("log", task.folder, "--json").stdout
    assert "GPU type" not in kernbench("show", task.folder, "2").stdout


def test_a_run_on_a_cpu_is_no_gpu_type(task: Task) -> None:
    text = runs_of(task).read_text()
    more = (
        on_b200(text, {1: 1}).replace(B200, "AMD EPYC").replace('"cuda:0"', '"cpu"').replace('"l2":"cold"', '"l2":""')
    )
    runs_of(task).write_text(text + more)
    assert types_of(task).names == ()


def test_a_pulled_log_of_two_types_has_a_best_for_each(task: Task, tmp_path: Path) -> None:
    """Without any run here: #1 to #3 of an H200, then #3's source on a B200 as #4."""
    log = Path(task.folder) / "ITERATIONS.md"
    head, *entries = log.read_text().split("\n## ")
    other = entries[2].replace("3 ·", "4 ·", 1).replace(H200, B200).replace("-abc", "-b200")
    log.write_text("\n## ".join([head, *entries[:3], other]))
    shutil.rmtree(runs_of(task).parent)
    types = types_of(task)
    assert types.names == (H200, B200)
    assert (types.bests[H200].iteration, types.bests[B200].iteration) == (3, 4)
    assert [set(types.of(item)) for item in entries_of(task)] == [{H200}, {H200}, {H200, B200}, {H200, B200}]
    journal, pulled = Journal(runs_of(task).parent), stored_sources.entries_of(task)
    for name, number in ((H200, 3), (B200, 4), ("NVIDIA A100", 4)):  # of a GPU that it does not know: the last
        found = best.find(task, journal, pulled, Environment(device="cuda:0", device_name=name)).summary
        assert found is not None
        assert found.iteration == number
    assert "| H200 | B200 |" in export.text(task, tmp_path / "none", "md")
    assert kernbench("show", task.folder, "3").stdout.count("B200 us") == 1


def test_a_pulled_type_may_have_no_best_and_a_cpu_is_none(task: Task) -> None:
    log = Path(task.folder) / "ITERATIONS.md"
    head, *entries = log.read_text().split("\n## ")
    shutil.rmtree(runs_of(task).parent)
    other = entries[1].replace("2 ·", "5 ·", 1).replace(H200, B200).replace("-abc", "-b200")  # the same as the best
    log.write_text("\n## ".join([head, *entries, other]))
    assert types_of(task).sentence() == "Best by GPU type: H200 #4 1.32x, B200 none."
    cpu = other.replace(B200, "AMD EPYC").replace(" · cold L2", "").replace("cuda:0", "cpu").replace(',"l2":"cold"', "")
    log.write_text("\n## ".join([head, *entries, cpu]))
    assert types_of(task).names == ()
