"""What becomes of a task's work, step by step, over the fake harness in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared import taskfile
from harness.shared.errors import UserError
from kernbench.campaign import campaign_run, campaign_tasks, promotion
from kernbench.campaign.agent_run import AgentEnd, AgentOptions
from kernbench.campaign.campaign_file import CampaignFile, Stopwatch, alone, opened
from kernbench.campaign.campaign_run import Campaign, CampaignOptions
from kernbench.campaign.sandbox import Bounds, Sandbox
from kernbench.campaign.task_tree import TaskTree
from kernbench.cli import cli
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.log.runs.journal import Journal
from tests import FAKE
from tests.campaign.conftest import Project
from tests.repositories import commit, git
from tests.sessions import PATIENT, run_and_confirm, write

pytestmark = pytest.mark.anyio
Projects = Callable[[str], Project]


class Played:
    """Instead of an agent: runs the source as it is, then `tries`, in this process."""

    tries: tuple[str, ...] = ()
    then: Callable[[TaskTree], object] = staticmethod(lambda tree: None)
    runs = 0

    def __init__(self, tree: TaskTree, _options: AgentOptions) -> None:
        self._tree = tree

    async def first_run(self) -> tuple[int, str]:
        await self._run()
        return 0, "ran"

    async def run(self) -> AgentEnd:
        for text in type(self).tries:
            write(self._tree.folder, text)
            await self._run()
        type(self).then(self._tree)
        return AgentEnd(0, len(type(self).tries), 1.0)

    async def _run(self) -> None:
        await run_once(self._tree.folder)


async def run_once(folder: Path) -> None:
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE, deadlines=PATIENT))
    session.notes.hypothesis = "a try"
    try:
        await run_and_confirm(session, iteration=True)
    finally:
        await session.close()


async def played(
    made: Project,
    monkeypatch: pytest.MonkeyPatch,
    *tries: str,
    then: Callable[[TaskTree], object] = lambda tree: None,
    review: str | None = None,
) -> tuple[str, str]:
    """The outcome of the task `toy`, and why."""
    monkeypatch.setattr(campaign_run, "AgentRun", type("This", (Played,), {"tries": tries, "then": staticmethod(then)}))
    kernels = made.root / "kernels"
    file = opened(kernels, is_new=False)
    await Campaign(file, CampaignOptions(AgentOptions("", 9, 5.0), review)).run(campaign_tasks.find(kernels))
    (event,) = (event for event in file.events() if event["event"] in ("done", "skipped"))
    return event.get("outcome", event["event"]), event["why"]


def mine(made: Project) -> Callable[[TaskTree], object]:
    """The user saves while the agent works."""
    return lambda tree: write(made.root / "kernels" / "toy", "TIME_US = 50.0  # mine")


async def test_every_step_can_be_repeated(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    folder = made.root / "kernels" / "toy"
    assert await played(made, monkeypatch, "TIME_US = 20.0") == ("promoted", "wrote solution.py and the log")
    files = [folder / "solution.py", folder / "ITERATIONS.md", folder / ".kernbench" / "runs.jsonl"]
    before = [path.read_bytes() for path in files]
    events = made.campaign_folder() / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:-1]) + '{"event": "do')  # killed before the last line was whole
    assert await played(made, monkeypatch, "TIME_US = 20.0") == ("promoted", "the files are in place and the log")
    assert [path.read_bytes() for path in files] == before
    log = CliRunner().invoke(cli, ["log", str(folder)])
    assert "2" in log.output
    assert "best" in log.output


async def test_what_the_user_saved_meanwhile_stays(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    outcome = await played(made, monkeypatch, "TIME_US = 20.0", then=mine(made))
    assert outcome == ("kept", "the solution changed in your checkout meanwhile")
    assert "# mine" in made.source("toy")
    branch = git(made.root, "branch", "--list", "campaign/*").split()[-1]
    assert "TIME_US = 20.0" in git(made.root, "show", f"{branch}:kernels/toy/solution.py")


async def test_a_log_that_changed_meanwhile_stays(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    own = made.root / "kernels" / "toy" / "ITERATIONS.md"
    said = await played(made, monkeypatch, "TIME_US = 20.0", then=lambda tree: own.write_text("mine\n"))
    assert said[0] == "promoted"
    assert "your log changed meanwhile" in said[1]
    assert own.read_text() == "mine\n"


async def test_a_log_that_the_agent_edited_stays_in_the_worktree(
    project: Projects, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project("toy")
    own = made.root / "kernels" / "toy" / "ITERATIONS.md"
    own.write_text("# Iterations\n\nmine\n")

    def edited(tree: TaskTree) -> None:
        log = tree.folder / "ITERATIONS.md"
        log.write_text(log.read_text().replace("mine", "theirs"))

    said = await played(made, monkeypatch, "TIME_US = 20.0", then=edited)
    assert said[1] == "wrote solution.py; ITERATIONS.md was edited in the worktree, so the log stays there"
    assert own.read_text() == "# Iterations\n\nmine\n"


def refused_at_first(made: Project) -> None:
    """Commits a source that no confirmation agrees with."""
    write(made.root / "kernels" / "toy", "TIME_US = 50.0\nCONFIRM_US = 150.0")
    commit(made.root)


async def test_without_a_confirmed_start_nothing_is_better(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    refused_at_first(made)
    outcome, why = await played(made, monkeypatch, "TIME_US = 70.0", "TIME_US = 60.0")
    assert (outcome, "the source as it is is right but was not confirmed" in why) == ("no better", True)


async def test_an_old_best_is_not_the_agents(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    folder = made.root / "kernels" / "toy"
    committed = (folder / "solution.py").read_text()
    write(folder, "TIME_US = 20.0")
    await run_once(folder)
    (folder / "solution.py").write_text(committed)
    said = "nothing faster than the best before was confirmed"
    assert await played(made, monkeypatch, "TIME_US = 30.0") == ("no better", said)


async def test_a_resumed_campaign_does_not_run_half_an_edit(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    refused_at_first(made)

    with pytest.raises(RuntimeError):
        await played(made, monkeypatch, then=stopped)
    counts: list[int] = []
    await played(made, monkeypatch, then=lambda tree: counts.append(len(Journal(tree.state).summaries)))
    assert counts == [campaign_run.FIRST_RUNS]


async def test_a_run_on_another_device_is_no_opponent(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = project("toy"), []
    devices = (None, "cpu", "cuda:0")
    await played(
        made,
        monkeypatch,
        then=lambda tree: found.extend(promotion.has_opponent(tree, device) for device in devices),
    )
    assert found == [True, True, False]


def stopped(tree: TaskTree) -> None:
    """The machine goes down with a file half edited."""
    write(tree.folder, "TIME_US = 1.0")
    raise RuntimeError


def forged(tree: TaskTree) -> None:
    for path in (tree.state / "sources").glob("*/solution.py"):
        path.write_text(path.read_text() + "forged = 1\n")


async def test_a_repository_in_the_worktree_is_refused(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(tree: TaskTree) -> None:
        (tree.folder / "inner").mkdir()
        git(tree.folder / "inner", "init", "-q")

    outcome, why = await played(project("toy"), monkeypatch, "TIME_US = 20.0", then=nested)
    assert (outcome, why.startswith("the agent made a git repository in its worktree")) == ("failed", True)


def relinked(tree: TaskTree) -> None:
    elsewhere = tree.place / "elsewhere"
    shutil.move(tree.folder, elsewhere)
    tree.folder.symlink_to(elsewhere)


def tampered(tree: TaskTree) -> None:
    (tree.folder / "reference.py").write_text("def make_inputs(case, seed, device): return 1\ndef toy(): ...\n")


@pytest.mark.parametrize(
    ("tries", "then", "said"),
    [
        ((), None, "nothing faster than the source as it is was confirmed"),
        (("TIME_US = 20.0\nCONFIRM_US = 90.0",), None, "nothing faster than the source as it is was confirmed"),
        (("TIME_US = 20.0",), relinked, "a link has taken the place of the task's folder in the worktree"),
        (("TIME_US = 20.0",), tampered, "the task's own files were changed in the worktree"),
        (("TIME_US = 20.0",), forged, "the stored source of 2 is damaged"),
    ],
)
async def test_what_is_not_promoted(
    project: Projects,
    monkeypatch: pytest.MonkeyPatch,
    tries: tuple[str, ...],
    then: Callable[[TaskTree], None] | None,
    said: str,
) -> None:
    made = project("toy")
    outcome, why = await played(made, monkeypatch, *tries, then=then or (lambda tree: None))
    assert (outcome, why[: len(said)]) == ("failed" if then is forged else "no better", said)
    assert "TIME_US = 50.0" in made.source("toy")


async def test_a_review_decides(project: Projects, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = project("toy")
    review = f'cat > {tmp_path}/diff; echo "$KERNBENCH_TASK $KERNBENCH_SPEEDUP"; exit 4'
    outcome, why = await played(made, monkeypatch, "TIME_US = 20.0", review=review)
    assert (outcome, "the review said no (exit code 4; " in why) == ("kept", True)
    assert "+TIME_US = 20.0" in (tmp_path / "diff").read_text()
    assert (made.campaign_folder() / "toy" / "review.log").read_text() == "toy 5.0\n"
    assert "TIME_US = 50.0" in made.source("toy")


async def test_uncommitted_files_are_not_touched(project: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project("toy")
    mine(made)(None)  # type: ignore[arg-type]
    said = "its files differ from what is committed; commit or stash the changes"
    assert await played(made, monkeypatch, "TIME_US = 20.0") == ("skipped", said)
    assert git(made.root, "worktree", "list").count("\n") == 1
    assert git(made.root, "branch", "--list", "campaign/*") == ""


def test_a_list_names_the_tasks(project: Projects) -> None:
    folder = project("a b c").root / "kernels"
    assert list(campaign_tasks.find(folder)) == ["a", "b", "c"]
    (folder / "CAMPAIGN.md").write_text(
        "# hot\n\n| task | share |\n| --- | --- |\n| c | 1 |\n| [a](a) | 2 |\n| `b/` |\n| /etc | 0 |\n"
    )
    assert list(campaign_tasks.find(folder)) == ["c", "a", "b"]
    (folder / "CAMPAIGN.md").write_text("| task |\n| --- |\n| d |\n")
    with pytest.raises(UserError, match="lists no task"):
        campaign_tasks.find(folder)


def test_one_campaign_at_a_time_and_another_when_asked(tmp_path: Path) -> None:
    first = opened(tmp_path, is_new=False)
    assert opened(tmp_path, is_new=False).folder == first.folder
    assert opened(tmp_path, is_new=True).folder != first.folder
    with (
        alone(tmp_path),
        pytest.raises(UserError, match=r"another campaign is running .* \(process \d+\)"),
        alone(tmp_path),
    ):
        pass


def test_seconds_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "seconds").write_text("61.5")
    watch = Stopwatch(tmp_path / "seconds")
    assert watch.seconds == 61.5
    watch.start()
    watch.save()
    assert Stopwatch(tmp_path / "seconds").seconds >= 61.5


def test_a_sandbox_is_bwrap_or_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = Bounds(tmp_path, tmp_path / "scratch", [tmp_path / "tree"], [tmp_path / "tree" / "log"])
    assert Sandbox.parse(None).wrapped(["a", "b"], bounds) == ["a", "b"]
    assert Sandbox.parse("env -i").wrapped(["a"], bounds) == ["env", "-i", "a"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"bwrap is not installed \(`apt install bubblewrap`\)"):
        Sandbox.parse("bwrap")
    (tmp_path / "bwrap").write_text("")
    (tmp_path / "bwrap").chmod(0o755)
    words = Sandbox.parse("bwrap").wrapped(["a", "b"], bounds)
    assert words[-3:] == ["--", "a", "b"]
    assert "--share-net" not in words
    places = {words[at + 1]: words[at] for at, word in enumerate(words) if word in ("--bind", "--ro-bind")}
    assert places["/"] == places[str(tmp_path / "tree" / "log")] == "--ro-bind"
    assert words.index(str(tmp_path / "tree")) < words.index(str(tmp_path / "tree" / "log"))  # later ones win
    assert places[str(tmp_path / "tree")] == "--bind"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "9"], "'9' is not RUNS/MINUTES, such as 30/60"),
        (["--budget", "0/5"], "'0/5' is not RUNS/MINUTES"),
        (["--budget", "1/1", "--sandbox", "no-such-tool run"], "--sandbox: no 'no-such-tool run' here"),
    ],
)
def test_a_mistake_is_a_sentence(project: Projects, words: list[str], said: str) -> None:
    made = project("toy")
    result = CliRunner().invoke(cli, ["campaign", str(made.root / "kernels"), "--agent", "true", *words])
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    file = CampaignFile(tmp_path)
    file.add("a", "ready")
    with (tmp_path / "events.jsonl").open("a") as events:
        events.write('{"event": "begun", "task": "a"')
    file.add("a", "ended", code=0)
    assert list(file.seen("a")) == ["ready", "ended"]
