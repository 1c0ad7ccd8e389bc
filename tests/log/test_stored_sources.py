"""Sources by number, hash or word; restored without losing anything; copied out; compared with the main tree."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench import atomic_write
from kernbench.cli import cli
from kernbench.engine.archive import Archive
from kernbench.log import stored_sources
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from kernbench.task import snapshot, source_files
from tests.log.logs import add_to_source, make_log, source_hash, source_text


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_log(tmp_path / "rms_norm", 6, cases=2)


@pytest.fixture
def journal(task: Task) -> Journal:
    return Journal(Path(task.folder) / ".kernbench")


def kernbench(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize("reference", ["3", source_hash(3), source_hash(3)[:6]])
def test_found_by_number_and_hash(task: Task, journal: Journal, reference: str) -> None:
    point = stored_sources.find(task, journal, reference)
    assert (point.folder / "solution.py").read_text() == source_text(3)


def test_restore_keeps_what_was_there_and_what_is_not_its_own(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    (folder / "solution.py").write_text("never run\n")
    (folder / "solution.py").chmod(0o640)
    (folder / "notes.md").write_text("mine\n")
    before, changed = stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert changed == ["solution.py"]
    assert (folder / "solution.py").read_text() == source_text(2)
    assert (folder / "solution.py").stat().st_mode & 0o777 == 0o640
    assert (folder / "notes.md").read_text() == "mine\n"
    assert (journal.state / "sources" / before / "solution.py").read_text() == "never run\n"
    assert not list(folder.glob(f"{atomic_write.PREFIX}*"))


@pytest.mark.parametrize("target", [None, "kept.py"])
def test_a_solution_that_is_gone_is_restored(task: Task, target: str | None) -> None:
    solution = Path(task.folder) / "solution.py"
    solution.unlink()
    if target is not None:
        solution.symlink_to(target)
    for words in (("log",), ("show", "2"), ("diff", "1", "2"), ("restore", "2")):
        assert kernbench(words[0], task.folder, *words[1:]).exit_code == 0
    assert solution.read_text() == source_text(2)


@pytest.mark.parametrize("words", [("show", "2", "--source"), ("diff", "2", "now"), ("restore", "2")])
def test_a_damaged_source_is_refused_by_its_name(task: Task, journal: Journal, words: tuple[str, ...]) -> None:
    (journal.state / "sources" / source_hash(2) / "solution.py").write_text("other = 1\n")
    before = (Path(task.folder) / "solution.py").read_text()
    result = kernbench(words[0], task.folder, *words[1:])
    assert result.exit_code == 1
    assert f"the stored source of {words[1]} is damaged: " in str(result.exception)
    assert "other = 1" not in result.output
    assert (Path(task.folder) / "solution.py").read_text() == before


def test_a_file_too_large_to_be_kept_is_not_replaced(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    large = "x = 1\n" * (source_files.LARGEST_FILE // 6 + 1)
    (folder / "solution.py").write_text(large)
    with pytest.raises(stored_sources.SourceError, match=r"solution\.py .* too large to keep"):
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert (folder / "solution.py").read_text() == large
    assert not list(folder.glob(f"{atomic_write.PREFIX}*"))


def save_after_the_snapshot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = snapshot.take

    def take_then_save(*places: Path) -> snapshot.Source:
        taken = real(*places)
        path.write_text("saved this moment\n")
        return taken

    monkeypatch.setattr(snapshot, "take", take_then_save)


def test_a_save_of_this_moment_is_not_replaced(task: Task, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(task.folder)
    save_after_the_snapshot(folder / "solution.py", monkeypatch)
    with pytest.raises(stored_sources.SourceError, match="was just saved"):
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert (folder / "solution.py").read_text() == "saved this moment\n"


def test_restore_takes_away_what_later_iterations_have_added(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    (folder / "helper.py").write_text("of a later one\n")
    (folder / "tables.json").write_text("[1]\n")
    (folder / "solution.py").write_text('import json, helper\njson.load(open("tables.json"))\n')
    before, changed = stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert changed == ["solution.py", "helper.py (removed)", "tables.json (removed)"]
    assert not (folder / "helper.py").exists()
    assert not (folder / "tables.json").exists()
    stored_sources.restore(task, stored_sources.find(task, journal, before[:8]), journal.state)
    assert (folder / "helper.py").read_text() == "of a later one\n"
    assert (folder / "tables.json").read_text() == "[1]\n"


def test_restore_leaves_links_and_what_the_task_needs(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    (folder.parent / "elsewhere.py").write_text("kept\n")
    for name in ("linked.py", "linked.cuh"):
        (folder / name).symlink_to("../elsewhere.py")
    (folder / "solution.py").write_text("import linked\n")
    (folder / "shapes.py").write_text("of the reference\n")
    reference = folder / "reference.py"
    reference.write_text("import shapes\n" + reference.read_text())
    _before, changed = stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert changed == ["solution.py"]
    assert (folder / "linked.py").is_symlink()
    assert (folder / "linked.cuh").is_symlink()
    assert (folder / "shapes.py").exists()


def test_restore_leaves_the_sides_for_comparison(task: Task, journal: Journal) -> None:
    add_to_source(journal.state, source_hash(2), "fast.py", b"old\n")
    folder, point = Path(task.folder), stored_sources.find(task, Journal(journal.state), "2")
    (folder / "fast.py").write_text("new\n")
    assert "fast.py" in stored_sources.restore(task, point, journal.state)[1]
    (folder / "fast.py").write_text("new\n")
    comparing = replace(task, compare=("fast.py",), compare_files=("fast.py",))
    assert "fast.py" not in stored_sources.restore(comparing, point, journal.state)[1]
    assert (folder / "fast.py").read_text() == "new\n"


def test_restore_removes_only_what_counts_in_the_code_and_is_kept(task: Task, journal: Journal) -> None:
    """Not a package of the reference's, nor another opponent, nor what is not part of the source."""
    folder = Path(task.folder)
    task = replace(task, ignore=("dumps", "mine.txt"))
    names = ["refpkg/__init__.py", "refpkg/u.py", "alt.py", "notes.md", "dumps/out.pt", "mine.txt", "solution.o"]
    (folder / "large.npy").write_bytes(b"0" * (source_files.LARGEST_FILE + 1))
    (folder / "dumps").mkdir()
    (folder / "table.npy").write_text("of the solution\n")
    (folder / "refpkg").mkdir()
    for name in names:
        (folder / name).write_text("of a later one\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "tile.py").write_text("of the solution\n")
    reference = folder / "reference.py"
    reference.write_text("from refpkg.u import k\n" + reference.read_text())
    (folder / "solution.py").write_text('from refpkg.u import k\nfrom sub.tile import t\nopen("table.npy")\n')
    before, changed = stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert changed == ["solution.py", "sub/tile.py (removed)", "table.npy (removed)"]
    assert all((folder / name).read_text() == "of a later one\n" for name in names)
    assert (folder / "large.npy").exists()
    stored_sources.restore(task, stored_sources.find(task, journal, before[:8]), journal.state)
    for name in ("sub/tile.py", "table.npy"):
        assert (folder / name).read_text() == "of the solution\n"


def test_restore_never_writes_over_what_is_not_part_of_the_source(task: Task, journal: Journal) -> None:
    """An earlier version kept notes that the code named; a file may be ignored only since."""
    folder = Path(task.folder)
    task = replace(task, ignore=("out.pt",))
    point = stored_sources.find(task, journal, "2")
    for name in ("notes.md", "out.pt"):
        (point.folder / name).write_text("then\n")
        (folder / name).write_text("now\n")
    _before, changed = stored_sources.restore(task, point, journal.state)
    assert changed == ["solution.py"]
    assert [(folder / name).read_text() for name in ("notes.md", "out.pt")] == ["now\n", "now\n"]


def test_restore_never_touches_what_lies_behind_a_linked_folder(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    shared = folder.parent / "shared" / "ops.py"
    shared.parent.mkdir()
    shared.write_text("f = 1\n")
    (folder / "lib").symlink_to("../shared")
    (folder / "solution.py").write_text("from lib.ops import f\n")
    with_link = snapshot.take(folder, journal.state)
    shared.write_text("f = 2\n")
    _before, changed = stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert changed == ["solution.py"]
    _before, changed = stored_sources.restore(
        task, stored_sources.find(task, journal, with_link.sha[:8]), journal.state
    )
    assert changed == ["solution.py", "lib/ops.py (in a linked folder: unchanged)"]
    assert shared.read_text() == "f = 2\n"


def test_restore_does_not_follow_a_link_out_of_the_folder(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    other = folder.parent / "other.py"
    other.write_text("of another project\n")
    (folder / "solution.py").unlink()
    (folder / "solution.py").symlink_to(other)
    (folder / "helper.py").write_text("of a later one\n")
    with pytest.raises(
        stored_sources.SourceError, match=r"^solution.py is a link to /.*/other.*, outside the task's folder; nothing"
    ):
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert other.read_text() == "of another project\n"
    assert (folder / "solution.py").is_symlink()
    assert (folder / "helper.py").exists()
    assert not list(folder.parent.glob(f"**/{atomic_write.PREFIX}*"))


def test_restore_follows_a_link_inside_the_folder(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    (folder / "solution.py").rename(folder / "variant.md")
    (folder / "solution.py").symlink_to("variant.md")
    stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert (folder / "solution.py").is_symlink()
    assert (folder / "variant.md").read_text() == source_text(2)


def test_a_fifo_in_the_place_of_a_file_stops_neither_restore_nor_diff(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    (folder / "solution.py").unlink()
    os.mkfifo(folder / "solution.py")
    point, now = (stored_sources.find(task, journal, reference) for reference in ("2", "now"))
    with pytest.raises(UserError, match=r"solution.py is a fifo, not a regular file"):
        stored_sources.restore(task, point, journal.state)
    with pytest.raises(UserError, match=r"solution.py is a fifo, not a regular file"):
        stored_sources.diff(point, now, task)


@pytest.mark.parametrize(("reference", "said"), [("best", "no best yet"), ("last", "no last run yet")])
def test_before_the_first_run_there_is_nothing_to_name(task: Task, tmp_path: Path, reference: str, said: str) -> None:
    (Path(task.folder) / "ITERATIONS.md").unlink(missing_ok=True)
    with pytest.raises(stored_sources.SourceError, match=f"^{said}: nothing has been run on this machine$"):
        stored_sources.find(task, Journal(tmp_path / "fresh"), reference)


def test_a_restore_that_one_file_forbids_has_changed_none(
    task: Task, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(task.folder)
    (folder / "helper.py").write_text("of a later one\n")
    (folder / "solution.py").write_text("import helper\n")
    save_after_the_snapshot(folder / "helper.py", monkeypatch)
    with pytest.raises(stored_sources.SourceError, match=r"helper\.py was just saved .*; nothing was restored"):
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert (folder / "solution.py").read_text() == "import helper\n"


def test_a_restore_that_stops_halfway_says_so_and_how_to_undo_it(
    task: Task, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(task.folder)
    (folder / "helper.py").write_text("of a later one\n")
    (folder / "solution.py").write_text("import helper\n")
    before, real, checked = snapshot.take(folder, journal.state, task).sha, stored_sources._must_be_kept, []

    def save_before_the_last_step(place: Path, kept: Path, path: Path, otherwise: str) -> None:
        checked.append(path)
        if len(checked) == 4:  # two files, each checked before the first step and before its own
            (place / path).write_text("saved this moment\n")
        real(place, kept, path, otherwise)

    monkeypatch.setattr(stored_sources, "_must_be_kept", save_before_the_last_step)
    stopped = f"the restore stopped there: `kernbench restore {before[:8]}` undoes the partial restore"
    with pytest.raises(stored_sources.SourceError, match=f"^helper.py was just saved .*; {stopped}$"):
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert (folder / "helper.py").read_text() == "saved this moment\n"
    monkeypatch.undo()
    stored_sources.restore(task, stored_sources.find(task, journal, before[:8]), journal.state)
    assert (folder / "solution.py").read_text() == "import helper\n"


def test_a_full_disk_names_the_file_and_leaves_nothing_behind(task: Task, journal: Journal) -> None:
    folder = Path(task.folder)
    snapshot.take(folder, journal.state)  # so that the restore has only the solution to write
    with largest_file(32), pytest.raises(stored_sources.SourceError) as refused:
        stored_sources.restore(task, stored_sources.find(task, journal, "2"), journal.state)
    assert str(refused.value) == f"cannot write {folder / 'solution.py'}: File too large; fix that and restore again"
    assert (folder / "solution.py").read_text() == source_text(0)
    assert not list(folder.glob(f"{atomic_write.PREFIX}*"))


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk, a write ends with an error that names no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_way_back_names_a_state_folder_of_its_own(
    task: Task, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(task.folder)
    monkeypatch.chdir(folder.parent)
    usual = Archive(task, Logbook(folder, journal.state)).restore("2")[0]
    assert re.search(r"`kernbench restore \./rms_norm [0-9a-f]{8}` undoes this", usual)
    journal.state.rename(folder.parent / "my state")
    other = Archive(task, Logbook(folder, folder.parent / "my state")).restore("3")[0]
    command = re.search("`(.*)` undoes this", other)
    assert command is not None
    assert re.fullmatch(r"kernbench restore \./rms_norm [0-9a-f]{8} --state 'my state'", command[1])
    assert kernbench(*shlex.split(command[1])[1:]).exit_code == 0
    assert (folder / "solution.py").read_text() == source_text(2)


def test_a_state_folder_inside_the_task_is_no_source_of_now(task: Task, journal: Journal) -> None:
    state = Path(task.folder) / "state"
    journal.state.rename(state)
    inside = Journal(state)
    now = stored_sources.find(task, inside, "now")
    assert list(stored_sources.texts(now, task)) == [
        path.as_posix() for path in stored_sources.solution_files(now, task)
    ]
    assert list(stored_sources.texts(now, task)) == ["solution.py"]
    assert stored_sources.restore(task, now, state)[1] == []


def test_a_digit_that_is_no_number_is_one_sentence(task: Task, journal: Journal) -> None:
    with pytest.raises(stored_sources.SourceError, match="no iteration '²' here"):
        stored_sources.summary_of(task, journal, "²")


def test_a_source_that_is_not_here_is_listed_and_says_so(task: Task, journal: Journal) -> None:
    for path in sorted((journal.state / "sources" / source_hash(2)).iterdir(), reverse=True):
        path.unlink()
    (journal.state / "sources" / source_hash(2)).rmdir()
    assert "(source not in this state folder)" in kernbench("log", task.folder).stdout
    with pytest.raises(stored_sources.SourceError, match=r"of 2 \([0-9a-f]{8}\) is not in this state folder"):
        stored_sources.find(task, journal, "2")


def test_log_has_a_column_for_the_stall(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 40, cases=2)
    lines = kernbench("log", task.folder).stdout.splitlines()
    column = lines[0].index("stall")
    stalled = [line for line in lines[1:] if line[column:].startswith("stalled")]
    assert all(line[column:].startswith("stalled    ") for line in stalled)  # no first word of the hypothesis
    assert len(stalled) == sum(item.stalled for item in Journal(tmp_path / "t" / ".kernbench").summaries) > 0


def test_copied_out(task: Task, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert kernbench("show", task.folder, "4", "--to", str(target)).exit_code == 0
    assert (target / "solution.py").read_text() == source_text(4)
    again = kernbench("show", task.folder, "5", "--to", str(target))
    assert "already exists; choose another folder" in str(again.exception)
    assert (target / "solution.py").read_text() == source_text(4)


# -- the main tree -----------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clone of a repository with one commit, in step with it."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "trunk")
    (origin / "norm.py").write_text("_old = 1\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    return clone


def test_a_repository_that_is_fit_says_so_with_its_exit_code(tree: Path) -> None:
    result = kernbench("doctor", "--repo", str(tree / "norm.py"))
    assert result.exit_code == 0
    assert "trunk, the default branch" in result.stdout
    assert "nothing to commit" in result.stdout
    assert "up to date with origin/trunk (not fetched since it was cloned)" in result.stdout


def test_a_repository_that_is_not_fit_names_each_fault_and_its_fix(tree: Path) -> None:
    (tree.parent / "origin" / "more.py").write_text("x\n")
    git(tree.parent / "origin", "add", ".")
    git(tree.parent / "origin", "commit", "-qm", "two")
    git(tree, "fetch", "-q")
    (tree / "norm.py").write_text("changed\n")
    behind = kernbench("doctor", "--repo", str(tree))
    assert behind.exit_code == 1
    assert "1 behind origin/trunk (as of the last fetch, 0 s ago)" in behind.stdout
    assert "1 not committed: norm.py" in behind.stdout
    assert "-> `git pull --ff-only`." in behind.stdout
    git(tree, "commit", "-qam", "mine")
    assert "1 ahead of and 1 behind origin/trunk" in kernbench("doctor", "--repo", str(tree)).stdout
    git(tree, "switch", "-qc", "topic")
    other = kernbench("doctor", "--repo", str(tree)).stdout
    assert "topic, not the default branch trunk" in other
    assert "the branch has no upstream" in other
    git(tree, "switch", "-q", "--detach")
    assert "no branch is checked out" in kernbench("doctor", "--repo", str(tree)).stdout


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("..", ".. is not in a git repository"),
        ("../plain", "../plain is not in a git repository"),
        ("../missing", "../missing does not exist"),
        ("missing", "missing does not exist"),
        ("../clone/../missing", "../clone/../missing does not exist"),
    ],
)
def test_what_is_no_repository_is_one_line(tree: Path, monkeypatch: pytest.MonkeyPatch, path: str, says: str) -> None:
    """Even if the current folder is in one."""
    (tree.parent / "plain").mkdir()
    monkeypatch.chdir(tree)
    result = kernbench("doctor", "--repo", path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].split() == ["NO", "repository", *says.split()]
    assert "ok" not in result.stdout.split()


def test_port_writes_the_best_into_a_clean_tree(task: Task, journal: Journal, tree: Path) -> None:
    target = tree / "norm.py"
    target.chmod(0o755)
    git(tree, "commit", "-qam", "mode")
    best = stored_sources.summary_of(task, journal, "best")
    result = kernbench("port", task.folder, "--to", str(target))
    assert result.exit_code == 0
    assert "-_old = 1" in result.stdout
    assert f"+++ {best.iteration}/solution.py" in result.stdout
    assert target.read_text() == source_text(best.iteration or 0)
    assert target.stat().st_mode & 0o777 == 0o755
    assert "is already the same as" in kernbench("port", task.folder, "--to", str(target)).stderr


def test_port_names_what_it_does_not_write(task: Task, journal: Journal, tree: Path) -> None:
    target = tree / "norm.py"
    best = stored_sources.summary_of(task, journal, "best")
    alone = kernbench("port", task.folder, "--to", str(target), "--force")
    assert "not written" not in alone.stderr
    target.write_text("_old = 1\n")
    add_to_source(journal.state, best.source, "solution.cu", b"// a kernel\n")
    result = kernbench("port", task.folder, "--to", str(target), "--force")
    assert "kernbench: not ported: solution.cu; the speedup may depend on" in result.stderr


def test_port_shows_and_does_not_write_where_something_is_not_committed(task: Task, tree: Path) -> None:
    target = tree / "norm.py"
    (tree / "other.py").write_text("not committed\n")
    result = kernbench("port", task.folder, "--to", str(target))
    assert result.exit_code == 1
    assert "+def rms_norm" in result.stdout
    assert "is not clean (1 not committed: other.py); commit first, or use --force" in result.stderr
    assert target.read_text() == "_old = 1\n"
    assert kernbench("port", task.folder, "--to", str(target), "--force").exit_code == 0
    assert target.read_text() != "_old = 1\n"


def test_port_does_not_follow_a_link_out_of_the_repository(task: Task, tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("of another project\n")
    (tree / "linked.py").symlink_to(other)
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "a link")
    result = kernbench("port", task.folder, "--to", str(tree / "linked.py"))
    assert result.exit_code == 1
    why = f"linked.py is a link to {other}, which is not in the repository"
    assert f"{why}; use --force to write it anyway" in result.stderr
    assert other.read_text() == "of another project\n"


def test_port_outside_a_repository_needs_force(task: Task, tmp_path: Path) -> None:
    target = tmp_path / "plain.py"
    target.write_text("mine\n")
    result = kernbench("port", task.folder, "--to", str(target))
    assert result.exit_code == 1
    assert "is not in a git repository, so git cannot undo the change; use --force to write it anyway" in result.stderr
    assert target.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to", "norm.cu"], "which file goes into norm.cu? choose one with `--file`: solution.py"),
        (["--to", "."], "is a folder; give the name of a file"),
        (["--to", "no/such/norm.py"], "its folder does not exist"),
        (["--to", "x.py", "--from", "6"], "6 fails some cases"),
    ],
)
def test_port_mistakes_are_one_sentence(task: Task, words: list[str], says: str) -> None:
    assert says in str(kernbench("port", task.folder, *words).exception)
