"""Recordings made up for tests: a trace as torch.profiler writes it, a database as nsys exports it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

Item = dict[str, Any]

SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER, registersPerThread INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER,
  originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
"""


def event(kind: str, name: str, start: float, lasting: float, tid: int = 1, **args: Any) -> Item:
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": 9,
        "tid": tid,
        "ts": start,
        "dur": lasting,
        "args": spelled,
    }


def python(name: str, start: float, lasting: float) -> Item:
    return event("python_function", name, start, lasting)


def operator(name: str, start: float, lasting: float, *dims: list[int]) -> Item:
    return event("cpu_op", name, start, lasting, Input_Dims=list(dims))


def launched(
    name: str, at: float, number: int, start: float, lasting: float, by: str = "cudaLaunchKernel"
) -> list[Item]:
    """A kernel and the call that launched it."""
    return [
        event("cuda_runtime", by, at, 1, correlation=number),
        event("kernel", name, start, lasting, tid=7, correlation=number),
    ]


def write(path: Path, *items: Item) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(items), "traceName": "x"}, indent=1))
    return path


class NsysDatabase:
    """Grows row by row; times in microseconds."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self._database = sqlite3.connect(path)
        self._database.executescript(schema)
        self._strings: dict[str, int] = {}

    def string(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[value], value=value)
        return self._strings[value]

    def add(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        self._database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", [*values.values()])

    def kernel(
        self, name: str, number: int, start: int, lasting: int, at: int, chain: int | None = None, process: int = 0
    ) -> None:
        text = self.string(name)
        span = {"start": start * 1000, "end": (start + lasting) * 1000, "correlationId": number}
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": process << 24}
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", **span, **place, demangledName=text, shortName=text)
        launch = {"start": at * 1000, "end": at * 1000 + 5, "eventClass": 0, "correlationId": number}
        launch["globalTid"] = (process << 24) + 5
        call = {"nameId": self.string("cudaLaunchKernel_v7000"), "returnValue": 0, "callchainId": chain}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **launch, **call)

    def range(self, name: str, start: int, end: int, process: int = 0) -> None:
        span = {"start": start * 1000, "end": end * 1000, "eventType": 59, "globalTid": (process << 24) + 5}
        self.add("NVTX_EVENTS", **span, textId=self.string(name))

    def stack(self, chain: int, *frames: tuple[str, str]) -> None:
        for depth, (symbol, module) in enumerate(frames):
            names = {"symbol": self.string(symbol), "module": self.string(module)}
            self.add("CUDA_CALLCHAINS", id=chain, stackDepth=depth, **names)

    def close(self) -> Path:
        self._database.commit()
        self._database.close()
        return self.path
