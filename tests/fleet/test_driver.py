"""The driver with a cluster that does what the test says: every loss and refusal without Ray."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.shared.taskfile import load
from kernbench.fleet import dispatch, driver
from kernbench.fleet.driver import Driver, last_line
from kernbench.fleet.job import item_of
from kernbench.task import snapshot
from kernbench.version import __version__


class Actor:
    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self.now = SimpleNamespace(remote=lambda: self._cluster.ref(self._node, "now", None))
        self.run = SimpleNamespace(remote=lambda job: self._cluster.ref(self._node, "run", job))


class Cluster:
    """Nodes by name, and what a call on them returns or raises."""

    def __init__(self, nodes: dict[str, Callable[[str, Any], Any]]) -> None:
        self._nodes, self._made, self.killed = nodes, 0, 0
        self._values: dict[int, Callable[[], Any]] = {}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "NodeManagerHostname": "host", "Resources": {"GPU": 1.0}} for name in self._nodes]

    def ref(self, node: str, what: str, job: Any) -> int:
        self._made += 1
        self._values[self._made] = lambda: self._nodes[node](what, job)
        return self._made

    def wait(self, refs: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        return refs[-1:], refs[:-1]  # answers before results

    def get(self, ref: int) -> Any:
        return self._values[ref]()

    def kill(self, actor: Actor) -> None:
        self.killed += 1


class Offline(Driver):
    def _make(self, place: Any) -> Any:
        return Actor(self._ray, place[0])


def good(what: str, job: Any) -> Any:
    return {"version": __version__} if what == "now" else {"outcome": {}, "lines": [], "source": job.sha}


def old(what: str, job: Any) -> Any:
    return {"version": "0.0.1"}


def bare(what: str, job: Any) -> Any:
    raise RuntimeError("The actor died\nModuleNotFoundError: No module named 'kernbench'")


def dies(what: str, job: Any) -> Any:
    if what == "now":
        return {"version": __version__}
    raise RuntimeError("the node died")


def never(what: str, job: Any) -> Any:
    raise RuntimeError("OSError: [Errno 30] Read-only file system")


@pytest.fixture
def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    monkeypatch.setattr(driver, "LOOK_S", 0.001)
    monkeypatch.setattr(driver, "NODES_S", 0.0)
    monkeypatch.setattr(dispatch, "FIRST_PAUSE_S", 0.0)
    source = snapshot.take(folder, folder / ".kernbench", load(folder))

    def play(nodes: dict[str, Callable[[str, Any], Any]], count: int) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        order = {"kind": "GPU", "per_slot": 1, "settings": {}}
        jobs = [item_of(f"job{number}", source, folder) for number in range(count)]
        made = Cluster(nodes)

        def tell(event: str, **data: Any) -> None:
            said.append({"event": event, **data})

        served = Offline(made, made.nodes, {**order, "jobs": jobs}, tell)
        served.serve(queue.Queue())
        return said

    return play


def of(said: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [item for item in said if item["event"] == event]


def test_every_job_has_its_result_and_a_node_with_another_version_gets_none(serve: Any) -> None:
    said = serve({"new-node": good, "old-node": old, "bare-node": bare}, 5)
    assert sorted(item["name"] for item in of(said, "result")) == [f"job{number}" for number in range(5)]
    assert [item["event"] for item in said][-1] == "done"
    told = sorted(item["text"] for item in of(said, "notice"))
    assert told == [
        f"not used: host/bare-nod has no kernbench: install version {__version__} there",
        f"not used: host/old-node has kernbench 0.0.1, and this is {__version__}: install the same version there",
    ]


def test_a_free_slot_gets_its_next_job_before_orders_are_waited_for(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []

    def get(orders: Any, block: bool = True, timeout: float | None = None) -> Any:
        waits.append(block)
        raise queue.Empty

    monkeypatch.setattr(queue.Queue, "get", get)
    assert len(of(serve({"one-slot": good}, 4), "result")) == 4
    assert len(waits) >= 4
    assert not any(waits)


def test_no_usable_node_is_a_sentence(serve: Any) -> None:
    said = serve({"old-node": old, "bad-node": never}, 2)
    (failed,) = of(said, "failed")
    assert failed["message"].startswith("no node can be used: ")
    assert "host/bad-node ends every actor: OSError: [Errno 30] Read-only file system" in failed["message"]


def test_a_job_whose_nodes_die_is_given_up_and_told(serve: Any) -> None:
    said = serve({"bad": dies}, 1)
    (lost,) = of(said, "lost")
    assert (lost["name"], lost["nodes"], lost["why"]) == ("job0", ["host/bad"] * 3, "the node died")
    assert said[-1]["event"] == "done"


def test_an_end_of_orders_ends_it_and_a_stop_begins_nothing() -> None:
    for order, events in ((None, []), ({"do": "stop"}, ["done"])):
        said: list[str] = []
        begun = {"kind": "GPU", "per_slot": 1, "settings": {}, "jobs": [{"name": "a"}]}
        served = Offline(Cluster({}), list, begun, lambda event, said=said, **data: said.append(event))  # type: ignore[misc]
        orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        orders.put(order)
        served.serve(orders)
        assert said == events


def unable(what: str, job: Any) -> Any:
    return {"version": __version__, "type": "H200"} if what == "now" else {"unusable": "torch is missing"}


def typed(device: str) -> Callable[[str, Any], Any]:
    about = {"version": __version__, "type": device, "uuid": f"GPU of {device}"}
    return lambda what, job: about if what == "now" else {"measured": {}, "lines": []}


def test_a_sweep_adds_jobs_as_it_goes_on_and_says_which_slots_it_does_not_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 0.001)
    monkeypatch.setattr(driver, "NODES_S", 0.0)
    source = snapshot.take(folder, folder / ".kernbench", load(folder))
    cluster = Cluster({"old": typed("A100"), "bad": unable, "new": typed("H200")})
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    said: list[dict[str, Any]] = []

    def add(name: str) -> None:
        orders.put({"do": "add", "jobs": [item_of(name, source, folder, "trial", where="")]})

    def tell(event: str, **data: Any) -> None:
        said.append({"event": event, **data})
        if event == "result":
            add("second") if data["name"] == "first" else orders.put({"do": "stop"})

    order = {"kind": "GPU", "per_slot": 1, "settings": {}, "jobs": [], "sweep": True, "ahead": 3}
    add("first")
    assert Offline(cluster, cluster.nodes, order, tell).serve(orders)
    assert [(item["name"], item["where"]) for item in of(said, "result")] == [
        ("first", "GPU of H200"),
        ("second", "GPU of H200"),
    ]
    assert said[-1]["event"] == "done"
    assert [item["text"] for item in of(said, "notice")] == [
        "not used: a slot on host/old, A100; this sweep runs on H200",
        "not used: host/bad cannot time it: torch is missing",
    ]


@pytest.mark.timeout(60)
def test_a_sweep_ends_when_no_gpu_of_its_type_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 0.001)
    monkeypatch.setattr(driver, "NODES_S", 0.0)
    monkeypatch.setattr(driver, "PATIENCE_S", 0.05)
    source = snapshot.take(folder, folder / ".kernbench", load(folder))
    nodes = {"old": typed("A100"), "one": typed("H200"), "two": typed("H200")}
    cluster, said = Cluster(nodes), list[dict[str, Any]]()
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def add(name: str) -> None:
        orders.put({"do": "add", "jobs": [item_of(name, source, folder, "trial", where="")]})

    def tell(event: str, **data: Any) -> None:
        said.append({"event": event, **data})
        if event == "result":
            del nodes["one"], nodes["two"]
            add("second")

    order = {"kind": "GPU", "per_slot": 1, "settings": {}, "jobs": [], "sweep": True, "ahead": 3}
    add("first")
    assert Offline(cluster, cluster.nodes, order, tell).serve(orders)
    assert said[-1] == {"event": "failed", "message": "no H200 is left in the cluster"}


def test_rays_errors_come_to_one_line() -> None:
    assert last_line(RuntimeError("trace\nOSError: full\nhint: try again")) == "OSError: full"
    assert last_line(RuntimeError("")) == "RuntimeError"
