"""What a worker said about one solution: status, detail and every finding, of the row and of the source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.child import Child, results, write_task


@dataclass(frozen=True)
class Judged:
    status: str
    checked: int
    detail: str
    findings: dict[str, bool]
    """By name: whether it is red."""
    said: str
    """Every sentence of help."""


def judged(child: Child, folder: Path, case: str, files: dict[str, str], **request: Any) -> Judged:
    events = child.run(write_task(folder, **files), cases=(case,), **request)
    assert events[-1]["event"] == "finished", events[-1]
    result = results(events)[case]
    found = [*result["findings"], *(event["finding"] for event in events if event["event"] == "finding")]
    assert all(finding["help"] for finding in found)
    return Judged(
        result["status"],
        result["checked"],
        result["detail"] or "",
        {finding["name"]: finding["red"] for finding in sorted(found, key=lambda finding: bool(finding["red"]))},
        " ".join(finding["help"] for finding in found),
    )
