"""What the shipped kernels make of sizes that nobody tuned them for. Needs a GPU.

python tests/measure/measure_jitter.py [TASK...] [--seed N] [--rows N]

Each row is a production row of another width (GroupNorm: of other extents), drawn by the seed. From 50 MB of traffic up
its share of the copy bandwidth counts, below that its time over as many rows of the nearest tuned width. All have to be
right.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import KERNBENCH

KERNELS = Path(__file__).parents[2] / "kernels"
TASKS = (
    "fuse_scale_shift", "norm_infer", "norm_scale_shift", "norm_tanh_mul_add", "qknorm_rope", "rotary_embedding",
    "group_norm_silu", "rms_norm",
)  # fmt: skip
COLUMNS = (1152, 1920, 2240, 2304, 2432, 2560, 3080, 3328, 5128, 1153, 2047, 3071, 5121)
HEADS = (40, 72, 88, 96, 104, 136, 160, 70, 90, 130)
"""Even: a rotation pairs values."""
LARGE = 50e6
"""Bytes."""
EVEN, ODD, SLOWER = 0.85, 0.60, 1.5
"""Shares of copy where the contiguous dimension is a multiple of eight and elsewhere; times below LARGE."""
OF_SAME_LAYOUT, ODD_OF_SAME_LAYOUT = 0.90, 0.70
"""GroupNorm: shares of the share of the production row."""
Axes = dict[str, Any]


@dataclass(frozen=True)
class Row:
    name: str
    axes: Axes
    peer: Axes | None
    """The row that it is compared with; None for a copy."""
    limit: float
    is_share: bool

    @property
    def cases(self) -> dict[str, Axes]:
        return {self.name: self.axes} | ({f"{self.name}_peer": self.peer} if self.peer is not None else {})


def width(axes: Axes) -> int:
    return int(axes["cols"] if "cols" in axes else axes["dims"][0] if "dims" in axes else _shape(axes)[-1])


def _shape(axes: Axes) -> list[int]:
    return axes["shape"] if "shape" in axes else [axes["head_dim"]]


def of_width(axes: Axes, columns: int, keeps_bytes: bool) -> Axes:
    """The same row with other columns, without the strides that belonged to its own."""
    made = {name: value for name, value in axes.items() if not name.endswith("_stride")}
    count = (lambda rows: max(1, rows * width(axes) // columns)) if keeps_bytes else (lambda rows: rows)
    if "shape" in made:
        batch, tokens, frames, _ = made["shape"]
        return made | {"shape": [batch, count(tokens), frames, columns]}
    name = "rows" if "rows" in made else "tokens"
    made[name] = count(made[name])
    if "dims" in made:
        return made | {"dims": [columns, min(columns, made["dims"][1])]}
    return made | {"cols" if "cols" in made else "head_dim": columns}


def jittered(task: str, production: Sequence[Axes], draw: random.Random, count: int) -> Iterator[Row]:
    tuned, traffic = {width(axes) for axes in production if "x" not in axes}, traffic_of(task)
    for number in range(count):
        axes = draw.choice(production)
        name = f"timed_{number}"
        if "x" in axes:
            yield other_extents(name, axes, production, traffic, draw, is_even=number % 2 == 0)
            continue
        columns = draw.choice(HEADS if width(axes) <= max(HEADS) else COLUMNS)
        made = of_width(axes, columns, keeps_bytes=True)
        if sum(traffic(made)[:2]) >= LARGE:
            yield Row(name, made, None, EVEN if columns % 8 == 0 else ODD, True)
        else:
            near = min(tuned, key=lambda other: abs(math.log(other / columns)))
            yield Row(name, of_width(axes, columns, False), of_width(axes, near, False), SLOWER, False)


def other_extents(
    name: str, axes: Axes, production: Sequence[Axes], traffic: Any, draw: random.Random, is_even: bool
) -> Row:
    """A row of GroupNorm whose places are other ones; the last extent is a multiple of eight if asked for. Its peer is
    the production row of its layout and dtype that is nearest in bytes: a call of 2 us has no share of its own to
    keep."""
    batch, channels, *extents = map(int, axes["x"].split("x"))
    places = [max(1, round(extent * draw.uniform(0.8, 1.1))) for extent in extents]
    if is_even:
        places[-1] = max(8, places[-1] // 8 * 8)
    made = axes | {"x": "x".join(map(str, [batch, channels, *places]))}
    is_aligned = axes["variant"].startswith("channels_last") or math.prod(places) % 8 == 0
    alike = [other for other in production if all(other.get(key) == axes.get(key) for key in ("variant", "dtype"))]
    size = sum(traffic(made)[:2])
    peer = min(alike, key=lambda other: abs(math.log(sum(traffic(other)[:2]) / size)))
    return Row(name, made, peer, OF_SAME_LAYOUT if is_aligned else ODD_OF_SAME_LAYOUT, True)


def traffic_of(task: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"reference_of_{task}", KERNELS / task / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.traffic


def measured(task: str, cases: dict[str, Axes], more: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The rows of a run of these cases, by id."""
    with tempfile.TemporaryDirectory(prefix="kernbench-measure-") as place:
        folder = Path(place, task)
        shutil.copytree(KERNELS / task, folder, ignore=shutil.ignore_patterns(".kernbench", "exports", "__pycache__"))
        listed = [{"id": name, "axes": axes, "headline": False} for name, axes in cases.items()]
        (folder / "cases.json").write_text(json.dumps(listed))
        options = ["--json", "--no-confirm", "--baseline", "eager", "--case", "timed_*", *more]
        command = [KERNBENCH, "run", str(folder), *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    events = list(map(json.loads, done.stdout.splitlines()))
    rows = {event["id"]: event for event in events if event["event"] == "case"}
    if not rows:
        raise SystemExit(f"{task}: no row\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return rows


def judged(row: Row, rows: dict[str, dict[str, Any]]) -> tuple[str, bool]:
    own, peer = rows.get(row.name, {}), rows.get(f"{row.name}_peer", {})
    if own.get("status") != "ok":
        return f"{own.get('status', 'no row')}: {own.get('detail') or ''}"[:70], False
    if own.get("solution_us") is None:
        return "right, not timed", True
    key = "light" if row.is_share else "solution_us"
    value, other = own.get(key), 1.0 if row.peer is None else peer.get(key)
    if not value or not other:
        return "nothing to compare it with", False
    found = value / other
    what = "of the production row's share" if row.is_share else "of the tuned row's time"
    said = f"{found:.2f} {'of copy' if row.peer is None else what}, {own['solution_us']:.1f} us"
    return said, found >= row.limit if row.is_share else found <= row.limit


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=12, help="for each task")
    parser.add_argument("--run", nargs="*", default=(), help="options of `kernbench run`")
    asked = parser.parse_args(words)
    missed = total = 0
    for task in asked.tasks:
        listed = json.loads((KERNELS / task / "cases.json").read_text())
        production = [case["axes"] for case in listed if case.get("headline")]
        made = list(jittered(task, production, random.Random(f"{asked.seed} {task}"), asked.rows))
        found = measured(task, {name: axes for row in made for name, axes in row.cases.items()}, asked.run)
        print(f"\n{task}")
        for row in made:
            said, is_met = judged(row, found)
            total, missed = total + 1, missed + (not is_met)
            size = sum(traffic_of(task)(row.axes)[:2]) / 1e6
            where = row.axes.get("x") or f"{width(row.axes)} wide"
            print(f"  {'  ' if is_met else '! '}{where:<22} {size:8.1f} MB  {said}  (mark {row.limit})", flush=True)
    print(f"\n{total} rows, {missed} missed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
