"""aa and slow: equal sides must measure equal, and a 2% slowdown of one row must show there and nowhere else."""

from __future__ import annotations

import math
from collections import Counter

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.results import CaseResult
from kernbench.engine.jobs import Options
from kernbench.selfcheck import Report, Tell
from kernbench.selfcheck.task_copy import TaskCopy
from kernbench.task import lookup
from kernbench.worker.process import child_environment

LONG_US, LONG_BUDGET = 300, 2
"""A call that takes longer may use this many times the budget."""
FALSE = ("faster", "slower", "disqualified")
"""What no row may be called if both sides are the same honest kernel."""
SLOWED_ENTRY = "rms_norm"
SLOWED = '''"""RMSNorm with a ballast: on one shape, one program in fifty does its row twice."""

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm(x, weight, out, rows, cols, eps, BLOCK: tl.constexpr):
    start = (tl.program_id(0) % rows).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    inside = column < cols
    row = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(row * row, axis=0) / cols + eps)
    tl.store(out + start + column, (row * scale * gain).to(out.dtype.element_ty), mask=inside)


def rms_norm(x, weight, eps):
    x = x.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    rows = x.numel() // cols
    block = triton.next_power_of_2(cols)
    more = BALLAST if tuple(x.shape) == SHAPE else 0
    _rms_norm[(rows + more,)](x, weight, out, rows, cols, eps, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
    return out
'''


async def against_itself(task: str, options: Options, repeats: int, tell: Tell) -> Report:
    report = Report("aa")
    async with TaskCopy(task, options, tell, baseline=shipped_solution(task)) as shop:
        ratios: dict[str, list[CaseResult]] = {}
        spent: dict[str, list[float]] = {}
        for _ in range(repeats + 1):  # the first run builds
            outcome = await shop.run()
            if not shop.rows():
                return Report("aa", notes=[f"nothing was timed: {shop.why_untimed(outcome)}"])
            for case, row in shop.rows().items():
                ratios.setdefault(case, []).append(row)
                spent.setdefault(case, []).append(shop.steps.get(("time", case), 0.0))
        contrast = await one_after_the_other(shop, repeats)
        for case, rows in ratios.items():
            report.rows.append(_row(shop, case, rows[1:], spent[case][1:], contrast.get(case, [])))
        on_gpu = shop.environment.device != "cpu"
        report.notes.append(_sum_up(report, options.budget_ms if on_gpu else math.inf))
    return report


def _row(
    shop: TaskCopy, case: str, rows: list[CaseResult], spent: list[float], contrast: list[float]
) -> dict[str, object]:
    off = [abs((row.speedup or 1.0) - 1) for row in rows]
    words = Counter(str(row.verdict) for row in rows)
    words += Counter({"disqualified": sum(bool(row.disqualifying) for row in rows)})
    return {
        "case": shop.session.task.case(case).label,
        "us": rows[-1].solution_us,
        "worst_percent": 100 * max(off),
        "rms_percent": 100 * math.sqrt(sum(value * value for value in off) / len(off)),
        "said": " ".join(f"{count} {word}" for word, count in sorted(words.items())),
        "row_ms": 1000 * sum(spent) / len(spent),
        "do_bench_worst_percent": 100 * max((abs(value - 1) for value in contrast), default=math.nan),
    }


def _sum_up(report: Report, budget_ms: float) -> str:
    """A row may use its budget, with long calls twice that; on a CPU there is no limit."""
    wrong = [row["case"] for row in report.rows if any(word in row["said"] for word in FALSE)]
    broad = [row["case"] for row in report.rows if row["worst_percent"] > (1.5 if row["us"] < 5 else 0.5)]
    share = [row["row_ms"] / budget_ms / (LONG_BUDGET if row["us"] > LONG_US else 1) for row in report.rows]
    slow = [row["case"] for row, used in zip(report.rows, share, strict=True) if used > 1]
    said = [f"false verdicts on {', '.join(wrong)}" if wrong else "no false verdicts"]
    if broad:
        said.append(f"off by more than 0.5% (1.5% under 5 us): {', '.join(broad)}")
    if slow:
        limits = (
            f"{fmt.milliseconds(budget_ms)}; {fmt.milliseconds(LONG_BUDGET * budget_ms)} for calls over {LONG_US} us"
        )
        said.append(f"over the time limit ({limits}): {', '.join(slow)}")
    return "; ".join([*said, *([] if broad or slow else ["every row within its limits"])])


async def one_after_the_other(shop: TaskCopy, repeats: int) -> dict[str, list[float]]:
    """Times the same kernel against itself with triton.testing.do_bench."""
    answers = await shop.other_methods(child_environment(None), repeats=min(repeats, 5))
    return {answer["case"]: answer["ratios"] for answer in answers}


def shipped_solution(task: str) -> str:
    return (lookup.find_task(task, to_edit=False) / "solution.py").read_text(encoding="utf-8")


async def slowed_down(task: str, options: Options, repeats: int, tell: Tell) -> Report:
    """Runs with one row made 2% slower, a different row each time."""
    report, doubtful = Report("slow"), []
    if taskfile.load(lookup.find_task(task, to_edit=False)).entry != SLOWED_ENTRY:
        return Report("slow", notes=[f"not measured: this part only works on {SLOWED_ENTRY}"])
    async with TaskCopy(task, options, tell, baseline=SLOWED.replace("BALLAST", "0").replace("SHAPE", "()")) as shop:
        outcome = await shop.run()
        if not shop.rows():
            return Report("slow", notes=[f"nothing was timed: {shop.why_untimed(outcome)}"])
        long = [case for case, row in shop.rows().items() if (row.baseline_us or 0) >= 20]
        if not long:
            return Report("slow", notes=["no row takes 20 us or more: nothing to slow down"])
        for number in range(repeats):
            case = long[number % len(long)]
            axes = shop.session.task.case(case).axes
            rows, cols = int(axes["rows"]), int(axes["cols"])
            shop.write(SLOWED.replace("BALLAST", str(rows // 50)).replace("SHAPE", f"({rows}, {cols})"))
            await shop.run()
            report.rows.append(_verdicts(shop, case))
            doubtful += _doubtful(shop, case)
    seen = sum(row["verdict"] == "slower" for row in report.rows)
    others = sum(int(row["others_wrong"]) for row in report.rows)
    unclear = sum(int(row["unclear"]) for row in report.rows)
    total = sum(int(row["rows"]) for row in report.rows)
    report.notes.append(
        f"slowed row called slower {seen}/{repeats}; false verdicts elsewhere {others}; unclear {unclear}/{total}"
    )
    if doubtful:
        report.notes.append(f"not called same: {'; '.join(doubtful)}")
    return report


def _doubtful(shop: TaskCopy, slowed: str) -> list[str]:
    """Rows other than the slowed one that were not called same, with their verdicts."""
    return [
        f"{shop.session.task.case(case).label} {fmt.speedup(row.ratio)} {row.verdict}"
        for case, row in shop.rows().items()
        if case != slowed and row.verdict not in (None, "same")
    ]


def _verdicts(shop: TaskCopy, slowed: str) -> dict[str, object]:
    rows = shop.rows()
    others = [row for case, row in rows.items() if case != slowed]
    return {
        "slowed": shop.session.task.case(slowed).label,
        "speedup": fmt.speedup(rows[slowed].ratio) if slowed in rows else "-",
        "verdict": rows[slowed].verdict if slowed in rows else "-",
        "others_wrong": sum(row.verdict in ("faster", "slower") for row in others),
        "unclear": sum(row.verdict == "unclear" for row in rows.values()),
        "rows": len(rows),
    }
