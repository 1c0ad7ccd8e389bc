"""Which source of a task goes into a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.shared.errors import UserError
from kernbench.events import Summary
from kernbench.log.runs.journal import Journal
from kernbench.log.stored_sources import SourceError
from kernbench.task import snapshot
from kernbench.transfer import model_sources
from tests.harness.child import write_task
from tests.transfer import toy


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = toy.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return folder


def test_without_a_best_it_is_the_files_now(place: Path, tmp_path: Path) -> None:
    (patch,), (note,) = model_sources.choose(toy.loaded(place), (), None, on_cpu=True)
    assert (patch.task, patch.entry, patch.what, patch.file) == ("scale", "scale", "now", "solution.py")
    assert patch.folder == str(tmp_path / "scale" / ".kernbench" / "sources" / patch.source)  # a save changes nothing
    assert note == "scale: the files as they are now (no best yet: nothing has been run on this machine)"
    with pytest.raises(SourceError, match="no best yet"):
        model_sources.choose(toy.loaded(place), (), "best", on_cpu=True)


def test_on_a_cpu_the_reference_of_a_gpu_task_stands_in(place: Path, tmp_path: Path) -> None:
    text = (tmp_path / "scale" / "task.toml").read_text()
    (tmp_path / "scale" / "task.toml").write_text(text.replace('device = "cpu"\n', ""))
    (patch,), (note,) = model_sources.choose(toy.loaded(place), (), None, on_cpu=True)
    assert (patch.what, patch.file) == ("reference", "reference.py")
    assert note.startswith("wiring only: no GPU here")
    (patch,), notes = model_sources.choose(toy.loaded(place), (), "now", on_cpu=True)
    assert (patch.what, patch.file, notes) == ("now", "solution.py", [])


def test_the_gain_in_the_rows_is_that_of_the_same_source(place: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    source = snapshot.take(tmp_path / "scale", state).sha
    journal = Journal(state)
    for run, sha, speedup in (("a", source, 1.2), ("b", source, 1.3), ("c", "other", 9.0)):
        ratio = {"geomean": speedup, "low": speedup, "high": speedup, "verdict": "faster"}
        journal.finish(Summary(run, sha, "2026-01-01T00:00:00+00:00", right=True, **ratio), [])  # type: ignore[arg-type]
    (patch,), _ = model_sources.choose(toy.loaded(place), ("scale",), "now", on_cpu=True, state=state)
    assert (patch.source, patch.micro) == (source, 1.3)
    (patch,), _ = model_sources.choose(toy.loaded(place), ("scale",), "reference", on_cpu=True, state=state)
    assert patch.micro is None
    assert not (tmp_path / "scale" / ".kernbench").exists()


def test_a_task_without_a_site_is_named(place: Path, tmp_path: Path) -> None:
    write_task(
        tmp_path / "other", task_toml='name = "other"\nentry = "scale"\n[[case]]\nid = "a"\naxes = { rows = 1 }\n'
    )
    with pytest.raises(UserError, match="toy has no site for other; it has sites for scale"):
        model_sources.choose(toy.loaded(place), ("other",), None, on_cpu=True)
