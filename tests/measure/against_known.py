"""Ours beside the times that were known before, from the lines of `kernbench run TASK --json`.

python tests/measure/against_known.py RUN.jsonl... [--rows]
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

SMALL_US = 5.0
"""Rows below this live on the launch path: their wall time counts."""
LARGE_MB = 100.0


def geomean(values: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The last word on every timed case."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "case" and event.get("solution_us"):
            found[event["id"]] = event
    return list(found.values())


def against(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Known time over ours, by case."""
    return {row["id"]: row["known"][name] / row["solution_us"] for row in rows if (row["known"] or {}).get(name)}


def told(path: Path, every_row: bool) -> None:
    rows = rows_of(path)
    print(f"\n{path.stem}: {len(rows)} rows timed")
    for name in ("sglang_us", "published_us"):
        ratios = against(rows, name)
        if ratios:
            worst = min(ratios, key=lambda case: ratios[case])
            mean = geomean(list(ratios.values()))
            print(f"  over {name[:-3]}: {mean:.3f} on {len(ratios)} rows, worst {worst} {ratios[worst]:.3f}")
    known = [row for row in rows if row["known"]]
    faster = {
        row["id"]: min(row["known"].get(name) or math.inf for name in ("sglang_us", "published_us"))
        / row["solution_us"]
        for row in known
    }
    behind = [f"{case} {ratio:.3f}" for case, ratio in faster.items() if ratio < 0.97]
    print(f"  below 0.97 of the faster known time: {', '.join(behind) or 'none'}")
    large = [(row["light"], row["id"]) for row in rows if row.get("light") and row["solution_us"] * row["light"] > 25]
    if large:
        print(
            f"  longest rows, share of the copy bandwidth: {min(large)[0]:.3f} ({min(large)[1]}) to {max(large)[0]:.3f}"
        )
    walls = [(row["wall"]["solution_us"], row["id"]) for row in rows if row["wall"] and row["solution_us"] < SMALL_US]
    if walls:
        print(f"  wall of rows under {SMALL_US:g} us: {min(walls)[0]:.1f} to {max(walls)[0]:.1f} us ({max(walls)[1]})")
    for row in rows if every_row else ():
        ratio = f"{faster[row['id']]:.3f}" if row["id"] in faster else "-"
        light, wall = row.get("light") or 0.0, (row["wall"] or {}).get("solution_us") or 0.0
        print(f"    {row['id']:<60} {row['solution_us']:9.2f} us  {ratio:>6} of the best known", end="")
        print(f"  light {light:.2f}  wall {wall:.1f}")


def main() -> None:
    words = sys.argv[1:]
    for word in words:
        if not word.startswith("--"):
            told(Path(word), "--rows" in words)


if __name__ == "__main__":
    main()
