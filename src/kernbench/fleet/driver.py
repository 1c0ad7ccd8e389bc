"""`python -m kernbench.fleet.driver serve|look ADDRESS`: the only process here that imports Ray.

It takes its orders from stdin and reports every event as a JSON line on stdout, so that its parent has each
result as soon as it exists: when the head of a cluster dies, Ray ends its driver a minute later without an exception.
It ends when its stdin does, and its actors end with it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kernbench.fleet import job as jobs
from kernbench.fleet.bench_actor import BenchActor
from kernbench.fleet.dispatch import Dispatch, Place
from kernbench.fleet.nodes import ANSWERS_S, NAMESPACE, NODES_S, Node, NodeWatch, described, look, name_of
from kernbench.version import __version__

LOOK_S = 0.2
"""How long to wait for a result before looking at orders."""
PATIENCE_S = 15.0
"""After this time without a slot, say so."""
Say = Callable[..., None]


class Driver:
    """Gives jobs to actors, one each at a time, until all have ended."""

    def __init__(self, ray: Any, nodes: Callable[[], list[Node]], order: dict[str, Any], say: Say) -> None:
        self._ray, self._nodes, self._say = ray, nodes, say
        self._kind, self._per_slot, self._settings = order["kind"], order["per_slot"], order["settings"]
        self._jobs = {item["name"]: item for item in order["jobs"]}
        self._is_sweep = order.get("sweep", False)
        self._dispatch = Dispatch(self._jobs, self._is_sweep, order.get("ahead", 0))
        self._actors: dict[Place, Any] = {}
        self._answers: dict[Any, Place] = {}
        self._results: dict[Any, Place] = {}
        self._hosts: dict[str, str] = {}
        self._room: dict[str, int] = {}
        """How many slots each living node can have."""
        self._token = secrets.token_hex(4)
        self._look_at, self._had_slot, self._told = 0.0, time.monotonic(), False
        self._first_answer = math.inf

    def serve(self, orders: queue.Queue[dict[str, Any] | None]) -> bool:
        """Until all is done, or stdin ends: then False. A sweep is done when it says so."""
        while not self._dispatch.is_done:
            self._start_slots()
            self._drop_others()
            self._collect()
            while (given := self._dispatch.next_job()) is not None:  # before the orders, which an idle driver waits for
                self._give(*given)
            self._tell_if_stuck()
            if not self._obey(orders):
                return False
            if self._refused_all() or self._has_lost_its_device():
                return True
        self._say("done")
        return True

    def _obey(self, orders: queue.Queue[dict[str, Any] | None]) -> bool:
        """The next order, which is waited for if nothing else can happen; False if there will be none."""
        is_idle = not self._results and not self._answers and not self._dispatch.is_done
        try:
            order = orders.get(is_idle, LOOK_S)
        except queue.Empty:
            return True
        if order is None:
            return False
        if order["do"] == "stop":
            self._dispatch.is_stopped = True
        else:
            self._jobs |= {item["name"]: item for item in order["jobs"]}
            self._dispatch.add({item["name"]: item["where"] for item in order["jobs"]})
        return True

    def _start_slots(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + NODES_S
        nodes = self._nodes()
        self._hosts |= {node["NodeID"]: name_of(node) for node in nodes}
        room = {node["NodeID"]: int(node["Resources"].get(self._kind, 0) // self._per_slot) for node in nodes}
        self._room = {node: count for node, count in room.items() if count}
        for place in self._dispatch.wanted(self._room, now):
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
        self._results[self._actors[place].run.remote(jobs.packed(self._jobs[name]))] = place

    def _collect(self) -> None:
        waiting = [*self._results, *self._answers]
        if not waiting:
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
        if "unusable" in value:
            self._dispatch.put_back(place)
            self._refuse(place[0], f"{self._hosts[place[0]]} cannot time it: {value['unusable']}")
            return
        where = self._dispatch.slots[place].where
        self._say("result", name=self._dispatch.finished(place), where=where, **value)

    def _take_answer(self, place: Place, about: dict[str, Any]) -> None:
        if place not in self._dispatch.slots:
            return
        if about["version"] != __version__:
            theirs = f"has kernbench {about['version']}, and this is {__version__}"
            self._refuse(place[0], f"{self._hosts[place[0]]} {theirs}: install the same version there")
        else:
            self._first_answer = min(self._first_answer, time.monotonic())
            self._dispatch.answered(place, about.get("uuid") or self._hosts[place[0]], about.get("type", ""))

    def _drop_others(self) -> None:
        for slot in self._dispatch.drop_others(time.monotonic() - self._first_answer > ANSWERS_S):
            self._forget(slot.place)
            chosen = f"this sweep runs on {self._dispatch.device}"
            self._say("notice", text=f"not used: a slot on {self._hosts[slot.place[0]]}, {slot.device}; {chosen}")

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

    def _has_lost_its_device(self) -> bool:
        """A node that is only restarted has some time to come back."""
        is_late = time.monotonic() - self._had_slot > PATIENCE_S
        if not is_late or self._dispatch.is_done or not self._dispatch.is_out_of_places(self._room):
            return False
        self._say("failed", message=f"no {self._dispatch.device} is left in the cluster")
        return True

    def _tell_if_stuck(self) -> None:
        now = time.monotonic()
        if not self._dispatch.is_stuck:
            self._had_slot, self._told = now, False
        elif now - self._had_slot > PATIENCE_S and not self._told:
            self._told = True
            what = "GPU" if self._kind == "GPU" else "CPU"
            later = "" if self._is_sweep else ", --resume goes on"
            self._say("notice", text=f"waiting for a free {what} in the cluster; ctrl+c ends this{later}")


def last_line(problem: Exception) -> str:
    """What a failure comes to; Ray puts the cause last, after a traceback, and hints after that."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.partition(":")[0] and ":" in line]
    return (named or lines or [type(problem).__name__])[-1]


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
