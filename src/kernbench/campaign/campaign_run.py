"""Works through a campaign's tasks, one after the other, from wherever an earlier start has stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.campaign import promotion
from kernbench.campaign.agent_run import AgentOptions, AgentRun
from kernbench.campaign.campaign_file import CampaignFile, slug
from kernbench.campaign.process_tree import ProcessTree, Streams
from kernbench.campaign.promotion import Candidate, NotPromoted
from kernbench.campaign.task_tree import NotStarted, Start, TaskTree
from kernbench.log.runs.journal import Journal

DIGITS = 4
FIRST_RUNS = 3
"""How often the source as it is is run until its confirmation agrees: on a busy machine the first may not."""
CANNOT = (2, 3, 70, 127)
"""Exit codes of `kernbench run` that say that nothing was run."""


@dataclass(frozen=True)
class CampaignOptions:
    agent: AgentOptions
    review: str | None = None
    """A command line for the shell, which gets the diff on stdin and says yes with 0."""


class Campaign:
    def __init__(self, file: CampaignFile, options: CampaignOptions) -> None:
        self._file, self._options = file, options

    async def run(self, tasks: Mapping[str, Path]) -> None:
        for name, folder in tasks.items():
            if "done" not in self._file.seen(name):
                await self._work(name, folder)

    async def _work(self, name: str, folder: Path) -> None:
        try:
            tree = self._tree(name, folder)
        except NotStarted as problem:
            self._file.add(name, "skipped", why=str(problem))
            return
        except (UserError, OSError) as problem:
            self._file.add(name, "done", outcome="failed", why=str(problem))
            return
        agent = AgentRun(tree, self._options.agent)
        try:
            if not await self._has_begun(name, tree, agent):
                return
            await self._has_ended(name, tree, agent)
            tree.commit(f"campaign: what was tried on {name}")
            won = promotion.candidate(tree, self._file.seen(name)["started"]["known"])
            promotion.put_in_tree(tree, won)
            tree.commit(f"campaign: the best of {name}, {won.words}")
        except (UserError, OSError) as problem:
            is_tried = isinstance(problem, NotPromoted)
            self._done(name, tree, "no better" if is_tried else "failed", str(problem))
            return
        try:
            await self._review(name, tree, won)
            said = promotion.promote(tree, won)
        except (UserError, OSError) as problem:
            self._done(name, tree, "kept", str(problem), won)
            return
        self._done(name, tree, "promoted", said, won)

    def _tree(self, name: str, folder: Path) -> TaskTree:
        """The task's worktree; made if it is not there yet."""
        seen = self._file.seen(name)
        if "ready" in seen:
            return TaskTree(folder, self._file.place(name), Start.read(seen["ready"]))
        branch = f"campaign/{self._file.name}/{slug(name)}"
        tree = TaskTree(folder, self._file.place(name), Start.of(folder, branch))
        tree.make()
        self._file.add(name, "ready", **asdict(tree.start), worktree=str(tree.root))
        return tree

    async def _has_begun(self, name: str, tree: TaskTree, agent: AgentRun) -> bool:
        """Whether the source as it is could be run, so that there is something to beat."""
        if "started" in self._file.seen(name):  # by now the agent may have changed it
            return True
        for _again in range(FIRST_RUNS):
            if promotion.has_opponent(tree, self._options.agent.device):
                break
            code, said = await agent.first_run()
            if code in CANNOT or code < 0:
                self._done(name, tree, "failed", f"the source as it is could not be run: {said}")
                return False
            self._file.add(name, "begun", said=said)
        return True

    async def _has_ended(self, name: str, tree: TaskTree, agent: AgentRun) -> None:
        seen = self._file.seen(name)
        if "ended" in seen:
            return
        is_resumed = "started" in seen
        known = seen["started"]["known"] if is_resumed else [run.run for run in Journal(tree.state).summaries]
        self._file.add(name, "started", runs=agent.runs, known=known)
        ended = await agent.run()
        self._file.add(name, "ended", **asdict(ended))

    async def _review(self, name: str, tree: TaskTree, won: Candidate) -> None:
        """Raises NotPromoted for a no."""
        if self._options.review is None:
            return
        seen = self._file.seen(name).get("reviewed")
        code = seen["code"] if seen is not None else await self._ask_for_review(name, tree, won)
        if code != 0:
            log = tree.place / "review.log"
            raise NotPromoted(f"the review said no (exit code {code}; {log})")

    async def _ask_for_review(self, name: str, tree: TaskTree, won: Candidate) -> int:
        diff = tree.place / "review.diff"
        diff.write_text(promotion.difference(tree, won), encoding="utf-8", errors="surrogateescape")
        about = {"KERNBENCH_TASK": name, "KERNBENCH_BRANCH": tree.start.branch, "KERNBENCH_BEST": won.words}
        about["KERNBENCH_WORKTREE"] = str(tree.root)
        for what, ratio in (("", won.summary.ratio), ("_OVER_BEST", won.summary.vs_best)):
            if ratio is not None:
                about |= {
                    f"KERNBENCH_SPEEDUP{what}": str(round(ratio.speedup, DIGITS)),
                    f"KERNBENCH_LOW{what}": str(round(ratio.low, DIGITS)),
                    f"KERNBENCH_HIGH{what}": str(round(ratio.high, DIGITS)),
                }
        streams = Streams(diff, tree.place / "review.log")
        assert self._options.review is not None
        words = ["sh", "-c", self._options.review]
        review = await ProcessTree.start(words, Path.cwd(), streams, {**os.environ, **about})
        try:
            code = await review.wait()
        finally:
            await review.end()
        assert code is not None
        self._file.add(name, "reviewed", code=code)
        return code

    def _done(self, name: str, tree: TaskTree, outcome: str, why: str, won: Candidate | None = None) -> None:
        ended = self._file.seen(name).get("ended", {})
        about: dict[str, Any] = {"best": won.words if won is not None else ""}
        about |= {"runs": ended.get("runs", 0), "seconds": ended.get("seconds", 0.0)}
        about |= {"branch": tree.start.branch, "worktree": str(tree.root)}
        self._file.add(name, "done", outcome=outcome, why=_with_code(why, ended), **about)


def _with_code(why: str, ended: Mapping[str, Any]) -> str:
    """Says how the agent ended, if not by itself and well."""
    if not ended or ended["code"] == 0:
        return why
    if ended["code"] is None:
        return f"{why}; the agent was stopped after its {fmt.plain(round(ended['seconds'] / 60, 1))} minutes"
    return f"{why}; the agent exited with code {ended['code']}"
