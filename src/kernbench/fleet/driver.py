"""`python -m kernbench.fleet.driver serve|look ADDRESS`: the only process here that imports Ray.

It takes its orders from stdin and reports every event as a JSON line on stdout, so that its parent has each
result as soon as it exists: when the head of a cluster dies, Ray ends its driver a minute later without an exception.
It ends when its stdin does, and its actors end with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernbench.fleet import job as jobs
from kernbench.fleet.bench_actor import BenchActor
from kernbench.fleet.dispatch import Dispatch, Place
from kernbench.task.snapshot import Source
from kernbench.version import __version__

NAMESPACE = "kernbench"
LOOK_S, NODES_S = 0.2, 1.0
"""How long to wait for a result before looking at orders, and how often to look for nodes."""
PATIENCE_S = 15.0
"""After this time without a slot, say so."""
ANSWERS_S = 5.0
Say = Callable[..., None]
Node = dict[str, Any]
"""As Ray describes one."""


class NodeWatch:
    """The living nodes, as of about a second ago; asked for in a thread, because that call waits for a dead head, and
    results still come then."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._nodes = ray, living(ray)
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> list[Node]:
        return self._nodes

    def _watch(self) -> None:
        while True:
            time.sleep(NODES_S)
            with contextlib.suppress(Exception):  # one look that fails must not be the last
                self._nodes = living(self._ray)


def living(ray: Any) -> list[Node]:
    return [node for node in ray.nodes() if node["Alive"]]


class Driver:
    """Gives jobs to actors, one each at a time, until all have ended."""

    def __init__(self, ray: Any, nodes: Callable[[], list[Node]], order: dict[str, Any], say: Say) -> None:
        self._ray, self._nodes, self._say = ray, nodes, say
        self._kind, self._per_slot, self._settings = order["kind"], order["per_slot"], order["settings"]
        self._jobs = {item["name"]: item for item in order["jobs"]}
        self._dispatch = Dispatch(self._jobs)
        self._actors: dict[Place, Any] = {}
        self._answers: dict[Any, Place] = {}
        self._results: dict[Any, Place] = {}
        self._hosts: dict[str, str] = {}
        self._token = secrets.token_hex(4)
        self._look_at, self._had_slot, self._told = 0.0, time.monotonic(), False

    def serve(self, orders: queue.Queue[dict[str, Any] | None]) -> bool:
        """Until all is done, or stdin ends: then False."""
        while not self._dispatch.is_done:
            self._start_slots()
            while (given := self._dispatch.next_job()) is not None:
                self._give(*given)
            self._collect()
            self._tell_if_stuck()
            while not orders.empty():
                if orders.get() is None:
                    return False
                self._dispatch.is_stopped = True
            if self._refused_all():
                return True
        self._say("done")
        return True

    def _start_slots(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + NODES_S
        nodes = self._nodes()
        self._hosts |= {node["NodeID"]: name_of(node) for node in nodes}
        room = {node["NodeID"]: int(node["Resources"].get(self._kind, 0) // self._per_slot) for node in nodes}
        for place in self._dispatch.wanted({node: count for node, count in room.items() if count}, now):
            self._dispatch.start(place)
            self._actors[place] = self._make(place)
            self._ask(place)
        for place in [place for place in self._actors if place not in self._dispatch.slots]:
            self._forget(place)

    def _make(self, place: Place) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node, index = place
        amount = {"num_gpus": 1, "num_cpus": 0} if self._kind == "GPU" else {"num_cpus": self._per_slot}
        made = self._ray.remote(BenchActor).options(
            name=f"bench-{self._token}-{node[:8]}-{index}-{secrets.token_hex(2)}",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            max_restarts=0,
            **amount,
        )
        return made.remote(self._hosts[node], self._settings, self._kind == "GPU")

    def _ask(self, place: Place) -> None:
        self._answers[self._actors[place].now.remote()] = place

    def _give(self, place: Place, name: str) -> None:
        item = self._jobs[name]
        source = Source(item["sha"], "", Path(item["source"]))
        self._results[self._actors[place].run.remote(jobs.read(name, source, Path(item["home"])))] = place

    def _collect(self) -> None:
        waiting = [*self._results, *self._answers]
        if not waiting:
            time.sleep(LOOK_S)
            return
        for ref in self._ray.wait(waiting, num_returns=1, timeout=LOOK_S)[0]:
            is_result = ref in self._results
            place = (self._results if is_result else self._answers).pop(ref)
            try:
                value = self._ray.get(ref)
            except Exception as problem:  # whatever ended the actor, another one gets its job
                self._lose(place, last_line(problem), is_result)
            else:
                self._take_result(place, value) if is_result else self._take_answer(place, value)

    def _take_result(self, place: Place, value: dict[str, Any]) -> None:
        self._say("result", name=self._dispatch.finished(place), **value)

    def _take_answer(self, place: Place, about: dict[str, Any]) -> None:
        if place not in self._dispatch.slots:
            return
        if about["version"] != __version__:
            theirs = f"has kernbench {about['version']}, and this is {__version__}"
            self._refuse(place[0], f"{self._hosts[place[0]]} {theirs}: install the same version there")
        else:
            self._dispatch.answered(place)

    def _lose(self, place: Place, why: str, had_job: bool) -> None:
        if place not in self._dispatch.slots:
            return
        node = place[0]
        if not had_job and "kernbench" in why and ("ModuleNotFoundError" in why or "failed to import" in why):
            self._refuse(node, f"{self._hosts[node]} has no kernbench: install version {__version__} there")
            return
        job, nodes = self._dispatch.lost(place, time.monotonic())
        self._forget(place)
        if had_job:
            self._say("notice", text=f"lost a slot on {self._hosts[node]}: {why}")
        if job:
            self._say("lost", name=job, nodes=[self._hosts[node] for node in nodes], why=why)
        if self._dispatch.starts_in_vain(place):
            self._refuse(node, f"{self._hosts[node]} ends every actor: {why}")
        for other in self._dispatch.doubtful(node):
            self._ask(other)

    def _refuse(self, node: str, why: str) -> None:
        if node not in self._dispatch.refused:
            self._say("notice", text=f"not used: {why}")
        self._dispatch.refuse(node, why)
        for place in [place for place in self._actors if place[0] == node and place not in self._dispatch.slots]:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        """End the actor, should it still live: only then is its GPU free for another."""
        self._ray.kill(self._actors.pop(place))
        self._answers = {ref: at for ref, at in self._answers.items() if at != place}

    def _refused_all(self) -> bool:
        refused = self._dispatch.refused
        if not refused or self._dispatch.slots or self._dispatch.is_done:
            return False
        alive = {node["NodeID"] for node in self._nodes() if node["Resources"].get(self._kind)}
        if alive - set(refused):
            return False
        self._say("failed", message=f"no node can be used: {'; '.join(refused.values())}")
        return True

    def _tell_if_stuck(self) -> None:
        now = time.monotonic()
        if not self._dispatch.is_stuck:
            self._had_slot, self._told = now, False
        elif now - self._had_slot > PATIENCE_S and not self._told:
            self._told = True
            what = "GPU" if self._kind == "GPU" else "CPU"
            self._say("notice", text=f"waiting for a free {what} in the cluster; ctrl+c ends this, --resume goes on")


def name_of(node: Node) -> str:
    """A node's host, and the first part of its id: a machine may have several."""
    return f"{node['NodeManagerHostname']}/{node['NodeID'][:8]}"


def last_line(problem: Exception) -> str:
    """What a failure comes to; Ray puts the cause last, after a traceback, and hints after that."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.partition(":")[0] and ":" in line]
    return (named or lines or [type(problem).__name__])[-1]


def described(nodes: list[Node]) -> list[dict[str, Any]]:
    """Nodes as the parent sees them."""
    return [
        {
            "node": name_of(node),
            "address": node["NodeManagerAddress"],
            "gpus": int(node["Resources"].get("GPU", 0)),
            "cpus": int(node["Resources"].get("CPU", 0)),
        }
        for node in nodes
    ]


def look(ray: Any) -> list[dict[str, Any]]:
    """What each of our actors is doing; one that is too slow to say so is left out."""
    names = [item["name"] for item in ray.util.list_named_actors(all_namespaces=True) if item["namespace"] == NAMESPACE]
    asked = []
    for name in names:
        try:
            asked.append(ray.get_actor(name, NAMESPACE).now.remote())
        except ValueError:  # it has just ended
            continue
    ready = ray.wait(asked, num_returns=len(asked), timeout=ANSWERS_S)[0] if asked else []
    answers = []
    for ref in ready:
        try:
            answers.append(ray.get(ref))
        except Exception:  # it has just ended, or was never a benchmark's
            continue
    return sorted(answers, key=lambda item: (item["node"], item["pid"]))


def _orders(into: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        into.put(json.loads(line))
    into.put(None)


def main() -> None:
    what, address = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is not an event

    def say(event: str, **data: Any) -> None:
        out.write(json.dumps({"event": event, **data}) + "\n")
        out.flush()

    import ray

    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:  # Ray has many kinds
        say("failed", message=f"cannot join the Ray cluster at {address}: {last_line(problem)}")
        return
    nodes = NodeWatch(ray)
    say("connected", nodes=described(nodes()), slots=look(ray) if what == "look" else [])
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_orders, args=(orders,), daemon=True).start()
    if what == "serve" and (order := orders.get()) is not None:
        Driver(ray, nodes, order, say).serve(orders)
    ray.shutdown()


if __name__ == "__main__":
    main()
