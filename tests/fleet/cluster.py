"""`python -m tests.fleet.cluster NODES`: a Ray cluster on this machine, driven by lines on stdin, gone when they end.

`add` adds a node with one CPU, `gpus N` one that says it has N GPUs, `kill N` kills the N-th at once, `head` kills the
head. Each is answered by a line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT

SMALL = {"object_store_memory": 80 << 20}
SETTINGS = {
    "RAY_memory_monitor_refresh_ms": "0",  # Ray would kill actors while other programs fill the memory
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # by default Ray needs a minute to end a driver without a head
}


class Cluster:
    """Runs the cluster in a process of its own, with its files in a folder of its own."""

    def __init__(self, nodes: int, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kbray-", dir="/tmp"))  # short: it holds sockets
        self.environment = {**os.environ, **SETTINGS, **settings, "RAY_TMPDIR": str(self.folder)}
        self.environment.pop("RAY_ADDRESS", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fleet.cluster", str(nodes)],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._answer()

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        assert self._answer() == words

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def main() -> None:
    from ray import cluster_utils

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    head = {"num_cpus": 0, "include_dashboard": False, **SMALL}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=1, wait=False, **SMALL) for _ in range(int(sys.argv[1]))]
        cluster.wait_for_nodes()
        print(cluster.address, file=out, flush=True)
        for line in sys.stdin:
            what, *number = line.split()
            if what == "add":
                nodes.append(cluster.add_node(num_cpus=1, **SMALL))
            elif what == "gpus":
                nodes.append(cluster.add_node(num_cpus=1, num_gpus=int(number[0]), **SMALL))
            elif what == "kill":
                cluster.remove_node(nodes[int(number[0])], allow_graceful=False)
            elif what == "head":
                cluster.head_node.kill_gcs_server()
            print(line.strip(), file=out, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
