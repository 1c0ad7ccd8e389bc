"""The cluster's nodes, and what our actors on them are doing; Ray is handed in."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

NAMESPACE = "kernbench"
NODES_S = 1.0
"""How often to look for nodes."""
ANSWERS_S = 5.0
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


def name_of(node: Node) -> str:
    """A node's host, and the first part of its id: a machine may have several."""
    return f"{node['NodeManagerHostname']}/{node['NodeID'][:8]}"


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
