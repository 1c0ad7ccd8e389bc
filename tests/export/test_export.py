"""Exports carry the numbers of runs.jsonl, escape what they print, and overwrite nothing unasked."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.results import CaseResult, VerdictWord
from harness.shared.task import Task
from kernbench import export, render
from kernbench.cli import cli
from kernbench.export import charts, data_frame, pull_request
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.machine.plain_text import plain
from tests import ROOT
from tests.log.logs import make_log, make_task, source_hash, write_entries
from tests.log.test_entry_text import profile

ODD = '<script>alert(1)</script> | "q" & \\'


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_log(tmp_path / "rms_norm", 9, cases=4, odd=ODD)


@pytest.fixture
def state(task: Task) -> Path:
    return Path(task.folder) / ".kernbench"


def kernbench(task: Task, *words: str) -> Result:
    return CliRunner().invoke(cli, ["export", task.folder, *words])


def rows_of(state: Path) -> dict[tuple[str, str], CaseResult]:
    journal = Journal(state)
    return {(item.run, case): row for item in journal.summaries for case, row in journal.cases_of(item.run).items()}


def number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize("name", ["ITERATIONS.md", "task.toml", "solution.py", "reference.py", ".kernbench/runs.jsonl"])
def test_no_export_replaces_what_belongs_to_the_task(task: Task, name: str) -> None:
    write_entries(task)
    path = Path(task.folder) / name
    before = path.read_bytes()
    result = kernbench(task, "--format", "md", "-o", str(path), "--force")
    assert str(result.exception) == f"{path} belongs to the task; export to a file of another name"
    assert path.read_bytes() == before


def test_csv_parses_back_to_the_numbers_of_the_log(task: Task, state: Path) -> None:
    wanted = rows_of(state)
    rows = list(csv.DictReader(io.StringIO(export.text(task, state, "csv"))))
    assert {(row["run"], row["case"]) for row in rows} == set(wanted)
    for row in rows:
        result = wanted[row["run"], row["case"]]
        assert (row["status"], row["verdict"] or None) == (result.status, result.verdict)
        for column, value in (
            ("baseline_us", result.baseline_us),
            ("solution_us", result.solution_us),
            ("speedup", result.speedup),
            ("speedup_low", result.low),
            ("speedup_high", result.high),
            ("vs_best_speedup", result.vs_best.speedup if result.vs_best else None),
            ("wall_speedup", result.wall.speedup if result.wall else None),
            ("light_fraction", result.roofline),
            ("exact_fraction", result.exact),
        ):
            assert number(row[column]) == value
        assert (row["light_bound"] or None) == result.bound


def cells(line: str) -> list[str]:
    """A row of a markdown table; bars and angle brackets inside a cell are escaped."""
    return [part.strip().replace("\\|", "|").replace("\\<", "<") for part in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_md_parses_back_to_the_numbers_of_the_log(task: Task, state: Path) -> None:
    text = export.text(task, state, "md")
    wanted = rows_of(state)
    exact = text.split("```csv\n")[1].split("```")[0]
    rows = list(csv.DictReader(io.StringIO(exact)))
    assert {(row["run"], row["case"]) for row in rows} == set(wanted)
    for row in rows:
        result = wanted[row["run"], row["case"]]
        got = tuple(number(row[name]) for name in list(row)[4:])
        assert got == (result.baseline_us, result.solution_us, result.speedup, result.low, result.high)
    labels = {case.label: case.id for case in task.cases}
    journal = Journal(state)
    for item in journal.summaries:
        part = text.split(f"\n## {item.iteration} · ")[1].split("\n## ")[0]
        told = {labels[row[0]]: row for row in map(cells, re.findall(r"^\|.*\|$", part, re.MULTILINE)[2:])}
        assert len(told) == (5 if item.right else 0)  # an entry that failed has no table
        for case, row in told.items():
            result = wanted[item.run, case]
            assert row[1:4] == [
                fmt.microseconds(result.baseline_us),
                fmt.microseconds(result.solution_us),
                fmt.speedup(result.ratio),
            ]


def test_json_holds_every_run_with_its_cases(task: Task, state: Path) -> None:
    data = json.loads(export.text(task, state, "json"))
    wanted = rows_of(state)
    assert data["schema"] == 1
    assert "folder" not in data["task"]
    assert len(data["runs"]) == 9
    for run in data["runs"]:
        for case in run["cases"]:
            assert case["solution_us"] == wanted[run["run"], case["id"]].solution_us


def test_plain_runs_are_exported_and_no_iterations(tmp_path: Path) -> None:
    task = make_task(tmp_path / "softmax_host", 1)
    state = tmp_path / "state"
    state.mkdir()
    lines = (ROOT / "tests" / "log" / "runs_v1.jsonl").read_text().replace('"iteration":1,', '"iteration":null,')
    lines = lines.replace("a95291382b84d496", task.hash).replace('"baseline":"eager"', '"baseline":"compile"')
    (state / "runs.jsonl").write_text(lines.replace('"iteration":2,', '"iteration":null,'))
    for kind in ("csv", "json", "html"):
        assert "4c03cdc1" in export.text(task, state, kind)
    runs = f"only {len(Journal(state).summaries)} plain runs"
    sentence = f"No entries yet, {runs}; `kernbench run rms_norm -m TEXT` makes an entry."
    md = export.text(task, state, "md")
    assert f"\n## Iterations\n\n{sentence}\n\n## Exact numbers\n" in md
    assert sentence in export.text(task, state, "html").replace("&#39;", "'")
    assert sentence in export.text(task, state, "pr")


def test_what_goes_to_stdout_is_what_a_file_would_hold(task: Task, tmp_path: Path) -> None:
    words = ["export", task.folder, "--format", "md", "-o"]
    assert kernbench(task, *words[2:], str(tmp_path / "x.md")).exit_code == 0
    printed = CliRunner(charset="ascii").invoke(cli, [*words, "-"])
    assert printed.stdout_bytes == (tmp_path / "x.md").read_bytes()


def test_html_escapes_everything(task: Task, state: Path) -> None:
    text = export.text(task, state, "html")
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", text)
    assert "url(" not in text
    assert "@import" not in text


def test_svg_is_well_formed_whatever_the_words(state: Path) -> None:
    entries = Journal(state).summaries
    tree = ElementTree.fromstring(charts.trajectory(entries))
    marks = [item for item in tree.iter() if item.get("class") in ("top", "dot", "wrong")]
    assert len(marks) == len(entries)
    ElementTree.fromstring(charts.heatmap(entries, {"a": ODD}, [{"a": ("wrong", None)} for _entry in entries]))
    ElementTree.fromstring(charts.trajectory(entries[:1]))


def test_a_part_of_the_cases_has_no_place_in_the_chart(state: Path) -> None:
    entries = Journal(state).summaries
    part = replace(next(item for item in entries if item.right), geomean=99.0, low=98.0, high=100.0, complete=False)
    assert charts.trajectory([*entries, part]) == charts.trajectory(entries)
    ElementTree.fromstring(charts.trajectory([part]))


def test_a_part_of_the_cases_keeps_its_word_in_the_frame(task: Task, state: Path) -> None:
    run = replace(next(item for item in Journal(state).summaries if item.right), complete=False)
    assert render.outcome(run) == "partial"
    assert set(data_frame.frame(task, [(run, [{"id": "a"}])])["outcome"]) == {"part"}


def test_a_build_error_keeps_its_word_in_the_frame(task: Task, state: Path) -> None:
    run = replace(Journal(state).summaries[0], right=False, counts={"build_error": 2})
    assert render.outcome(run) == "build error"
    assert set(data_frame.frame(task, [(run, [{"id": "a"}])])["outcome"]) == {"no build"}


def test_html_says_what_each_iteration_changed(task: Task, state: Path) -> None:
    page = export.text(task, state, "html")
    assert ">Change: first iteration, nothing to compare with</p>" in page
    assert ">Change from #1 to #2</p>" in page


def test_html_of_one_wrong_iteration_says_that_there_is_no_best(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 6, cases=2)
    state = tmp_path / "t" / ".kernbench"
    lines = (state / "runs.jsonl").read_text().splitlines(keepends=True)
    last = [line for line in lines if '"20261114T000006-abc"' in line]
    (state / "runs.jsonl").write_text("".join(last))
    assert "no source in this series has passed every case yet" in export.text(task, state, "html")
    with pytest.raises(export.ExportError, match="no source that passed every case was timed against compile"):
        export.text(task, state, "pr")


def test_a_part_of_the_cases_that_is_wrong_takes_the_best_its_place(task: Task, state: Path) -> None:
    journal = Journal(state)
    best = next(item for item in reversed(journal.summaries) if item.best)
    assert f"Best: #{best.iteration}, " in export.text(task, state, "md")
    again = {"run": "part", "iteration": None, "repeats": best.iteration, "best": False, "counts": {"wrong": 1}}
    journal.finish(replace(best, **again, right=False, complete=False), [])  # type: ignore[arg-type]
    now = stored_sources.summary_of(task, Journal(state), "best")
    assert now.iteration != best.iteration
    assert f"Best: #{now.iteration}, " in export.text(task, state, "md")
    assert f"best, #{now.iteration}, against" in export.text(task, state, "html")
    assert f"- after: #{now.iteration}, " in export.text(task, state, "pr")


def test_of_several_entries_of_the_best_source_the_first_is_named(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 1, cases=2)
    state = tmp_path / "t" / ".kernbench"
    journal = Journal(state)
    first = journal.summaries[0]
    (state / "runs.jsonl").write_text("")
    again = replace(first, best_geomean=first.geomean)
    for number, item in enumerate([replace(first, iteration=None), again, replace(again, iteration=2, repeats=1)]):
        Journal(state).finish(replace(item, run=f"r{number}"), [])
    assert stored_sources.summary_of(task, Journal(state), "best").iteration == 1
    assert "Best: #1, " in export.text(task, state, "md")


def test_pr_holds_what_a_reviewer_asks_for(task: Task, state: Path, tmp_path: Path) -> None:
    target = tmp_path / "pr"
    paths = export.export(task, state, "pr", target)
    names = {"PULL_REQUEST.md", "chart.svg", "cases.svg", "numbers.csv", "change.diff"}
    assert {path.name for path in paths} == names == {path.name for path in target.iterdir()}
    body = (target / "PULL_REQUEST.md").read_text()
    best = next(item for item in reversed(Journal(state).summaries) if item.best)
    assert body.startswith(f"# rms_norm: {fmt.times(best.geomean)} over compile on NVIDIA H200\n")
    assert f"| **geomean** |  |  |  | **{fmt.geomean(best.ratio)}** | {fmt.times(best.wall)} |  |" in body
    assert best.worst is not None
    assert f"| **worst**: {best.worst.label}" in body.replace("\\<", "<").replace("\\|", "|")
    assert "_Missing: Nsight Compute profiles of both sources" in body
    for slot in ("denoise stage", "end to end", "Image or output"):
        assert slot in body
    assert "kernbench run rms_norm --device cuda:0" in body
    assert "+STAGES = 9" in (target / "change.diff").read_text()
    for picture in ("chart.svg", "cases.svg"):
        assert re.search(rf"^!\[.+\]\({picture}\)$", body, re.MULTILINE)


@pytest.mark.parametrize(
    ("time", "title", "heading"),
    [
        (("faster", 1.52), "1.52x over compile", "Why it is faster"),
        (("slower", 0.52), "slower than compile (0.52x)", "What the counters say"),
        (("same", 1.0), "as fast as compile (1.00x)", "What the counters say"),
        (("unclear", 1.01), "no clear difference from compile (1.01x)", "What the counters say"),
    ],
)
def test_pr_claims_what_was_measured(tmp_path: Path, time: tuple[VerdictWord, float], title: str, heading: str) -> None:
    task = make_log(tmp_path / "t", 1, cases=2)
    runs = tmp_path / "t" / ".kernbench" / "runs.jsonl"
    lines = runs.read_text().splitlines()
    ended = {**json.loads(lines[-1]), "verdict": time[0], "geomean": time[1], "low": time[1], "high": time[1]}
    runs.write_text("\n".join([*lines[:-1], json.dumps(ended, separators=(",", ":"))]) + "\n")
    body = export.text(task, runs.parent, "pr")
    assert body.startswith(f"# rms_norm: {title} on NVIDIA H200\n")
    assert f"\n## {heading}\n" in body
    assert ("faster" in body.replace("▲ faster", "")) == (time[0] == "faster")


def test_pr_counts_every_entry_of_the_log(task: Task, state: Path) -> None:
    steps = [item.iteration for item in Journal(state).summaries[:2] if item.new_best]
    body = export.text(task, state, "pr", after="2")
    assert f"\n9 iterations, {fmt.plural(len(steps), 'new best')}:\n" in body


@pytest.mark.parametrize(
    ("entries", "made", "comparable", "said"),
    [
        (1, 0, 0, "1 iteration, from another machine, no new best here."),
        (1, 1, 0, "1 iteration, in another series (task, baseline or machine), no new best."),
        (3, 2, 1, "3 iterations, 1 of them from another machine, 1 in another series (task, baseline or machine), no"),
    ],
)
def test_pr_does_not_count_a_single_entry_twice(entries: int, made: int, comparable: int, said: str) -> None:
    about: Any = SimpleNamespace(entries=range(entries), made=range(made))
    assert pull_request._tried(about, comparable, 0).startswith(said)


def test_pr_of_a_cpu_task_asks_for_no_gpu_counters(tmp_path: Path) -> None:
    before = make_log(tmp_path / "t", 3, cases=2)
    file, runs = tmp_path / "t" / "task.toml", tmp_path / "t" / ".kernbench" / "runs.jsonl"
    file.write_text(file.read_text().replace('device = "cuda"', 'device = "cpu"'))
    runs.write_text(runs.read_text().replace(before.hash, taskfile.load(tmp_path / "t").hash))
    body = export.text(taskfile.load(tmp_path / "t"), tmp_path / "t" / ".kernbench", "pr")
    assert "Nsight" not in body
    assert "_To be written by the author: a CPU task has no GPU counters._" in body


def test_pr_explains_itself_by_the_counters(task: Task, state: Path) -> None:
    case = task.timed[0].id
    best = next(item for item in reversed(Journal(state).summaries) if item.best)
    assert best.iteration is not None
    profile(state, 1, case, registers=40, occupancy_pct=62, sm_pct=30, shared_bytes=1024)
    profile(state, best.iteration, case, registers=32, occupancy_pct=87, sm_pct=40, shared_bytes=2048)
    body = export.text(task, state, "pr")
    assert f"## Nsight Compute, before and after ({task.timed[0].label})" in body
    assert "| registers | 40 | 32 |  |" in body
    causes = body.split("## Why it is faster\n\n")[1].split("\n\n")[1]
    helped = "- registers down 20%: 40 -> 32\n- occupancy up 40%: 62 -> 87%"
    assert causes == f"{helped}\n- at the cost of: shared memory per block up 100%: 1.0 -> 2.0 KB"
    assert "ncu 2025.3" in body
    assert "registers" in export.text(task, state, "html")


def test_pr_compares_the_pair_that_was_asked_for(task: Task, state: Path) -> None:
    body = export.text(task, state, "pr", before="2", after="5")
    assert "| case | baseline us | #2 us | #5 us |" in body
    assert f"source {source_hash(5)[:12]}" in body


def test_nothing_is_overwritten_unasked(task: Task, tmp_path: Path) -> None:
    target = tmp_path / "log.csv"
    target.write_text("mine")
    result = kernbench(task, "--format", "csv", "-o", str(target))
    assert "already exists; use `--force` to overwrite it" in str(result.exception)
    assert target.read_text() == "mine"
    assert kernbench(task, "--format", "csv", "-o", str(target), "--force").exit_code == 0
    assert target.read_text().startswith("run,iteration,")
    folder = tmp_path / "pr"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "chart.svg").write_text("mine")
    assert "chart.svg already exists" in str(kernbench(task, "--format", "pr", "-o", str(folder)).exception)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "chart.svg"}
    assert kernbench(task, "--format", "pr", "-o", str(folder), "--force").exit_code == 0
    assert (folder / "notes.txt").read_text() == "mine"


def test_stdout_is_the_export_and_nothing_else(task: Task) -> None:
    result = kernbench(task, "--format", "json", "-o", "-")
    assert json.loads(result.stdout)["task"]["name"] == "rms_norm"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "csv", "-o", "."], "is a folder; give the name of a file"),
        (["--format", "csv", "-o", "/proc/none/x.csv"], "cannot write"),
        (["--format", "pr", "-o", "-", "--after", "77"], "no iteration '77'"),
    ],
)
def test_mistakes_are_one_sentence(task: Task, words: list[str], says: str) -> None:
    assert says in str(kernbench(task, *words).exception)


def test_a_log_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", 1)
    with pytest.raises(export.ExportError, match=r"rms_norm has not been run .*; `kernbench run rms_norm -m TEXT`"):
        export.text(task, tmp_path / "t" / ".kernbench", "csv")


def test_without_the_extra_the_command_names_it(task: Task, tmp_path: Path) -> None:
    code = "import sys; sys.modules['jinja2'] = None; from kernbench.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "export", task.folder, "--format", "html", "-o", str(tmp_path / "x.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    sentence = "html needs Jinja2, which is not installed; `pip install 'kernbench[report]'` installs it"
    assert done.stderr == f"kernbench: {sentence}\n"
    assert not (tmp_path / "x.html").exists()


def test_an_export_beside_the_task_is_no_part_of_its_source(task: Task, state: Path) -> None:
    from kernbench.task import snapshot

    before = snapshot.take(Path(task.folder), state).sha
    export.export(task, state, "csv", export.default_target(task, state, "csv"))
    assert snapshot.take(Path(task.folder), state).sha == before
    assert taskfile.load(Path(task.folder)).hash == task.hash


def test_no_format_carries_codes_formulas_or_markup_of_a_strangers_log(tmp_path: Path) -> None:
    odd = "=HYPERLINK(1)<img src=http://spy>![x](http://spy)\x1b]0;t\x07\x9b5m\x7f\u202e"
    task = make_log(tmp_path / "t", 3, cases=2, odd=odd)
    file, runs = tmp_path / "t" / "task.toml", tmp_path / "t" / ".kernbench" / "runs.jsonl"
    file.write_text(file.read_text().replace('summary = "', 'summary = "<script>alert(1)</script> ![y](//spy) '))
    loaded = taskfile.load(tmp_path / "t")
    runs.write_text(runs.read_text().replace('"Kim"', '"@Kim\\ud800"').replace(task.hash, loaded.hash))
    files = {kind: export.text(loaded, runs.parent, kind) for kind in ("md", "csv", "json", "html")}
    paths = export.export(loaded, runs.parent, "pr", tmp_path / "pr")
    files |= {path.name: path.read_text() for path in paths if path.name != "change.diff"}
    assert {name: text for name, text in files.items() if plain(text) != text} == {}
    for name in ("md", "PULL_REQUEST.md"):
        told = re.sub(r"(?ms)^(```+)\w.*?^\1$", "", files[name])
        assert "alert(1)" in told
        assert re.findall(r"(?<!\\)<(?!/?(?:details|summary)>)[a-z/!]|(?<!\\)!\[(?!speedup by|cases over)", told) == []
    for name in ("csv", "numbers.csv"):
        rows = list(csv.reader(io.StringIO(files[name])))
        cells = {cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))}
        assert [cell for cell in cells if number_or_none(cell) is None] == []
        assert any(cell.startswith("'=HYPERLINK") for row in rows for cell in row)
        assert any(cell == "'@Kim\ufffd" for row in rows for cell in row)
    assert "<img src=http" not in files["html"] + files["cases.svg"] + files["chart.svg"]
    for name in ("cases.svg", "chart.svg"):
        ElementTree.fromstring(files[name])
    json.loads(files["json"])


def number_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def test_a_committed_log_exports_where_nothing_was_run(tmp_path: Path) -> None:
    folder = tmp_path / "rms_norm"
    shutil.copytree(ROOT / "kernels" / "rms_norm", folder, ignore=shutil.ignore_patterns(".kernbench"))
    task = taskfile.load(folder)
    rows = kernbench(task, "--format", "csv", "-o", "-").stdout.splitlines()
    found = [row for row in csv.DictReader(rows) if row["label"] == "4096x3072"]
    assert [row["iteration"] for row in found] == ["1", "2", "3", "4", "5"]
    assert (found[0]["baseline_us"], found[0]["device_name"], found[0]["device"]) == ("15.89", "NVIDIA H200", "")
    runs = json.loads(kernbench(task, "--format", "json", "-o", "-").stdout)["runs"]
    assert [run["geomean"] for run in runs] == pytest.approx([0.87, 1.13, 1.17, 1.21, 1.17], abs=0.005)
    assert len(runs[0]["cases"]) > 15
    assert "<svg" in kernbench(task, "--format", "html", "-o", "-").stdout
    assert not (folder / ".kernbench").exists()
