"""What a step comes to: words, expected gains, limits, signals, and the text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.shared.model_step import (
    Limits,
    ModelFile,
    OutputGap,
    Patch,
    SideRatio,
    SideTime,
    Site,
    StepRequest,
    StepResult,
    TaskShare,
)
from kernbench.programs.searched_log import forbidden
from kernbench.transfer import model_report
from kernbench.transfer.model_row import ModelRow, decided, expected_speedup
from kernbench.transfer.model_run import crash, line_of

MODEL = ModelFile(
    name="flux",
    folder="",
    title="",
    program="",
    dtype="bfloat16",
    config_name="third",
    config={},
    sites=(Site("layers:norm", "norm", "adapters:norm"),),
    limits=Limits(relative_l2=0.02, psnr_db=50.0, fp32_ratio=1.5),
)
PATCH = Patch("norm", "norm", "/here/now", "/here", source="0123456789", what="best", micro=1.26)
GAP = OutputGap("ours", 0.01, 0.004, 67.0, wide_l2=0.005, original_wide_l2=0.005)
ABOUT = ModelRow("run", "flux", "third", "now", "unclear", False, sources=(PATCH,), rounds=72)


def result(speedup: float, half: float, verdict: str, share: float = 0.3, gap: OutputGap = GAP) -> StepResult:
    ratio = SideRatio("ours", "eager", speedup, speedup - half, speedup + half, verdict)
    times = SideTime("eager", 59.2, (59.2,)), SideTime("ours", 59.2 / speedup, (59.2 / speedup,))
    shares = (TaskShare("norm", 12, share, 1.2, exact=True),)
    return StepResult("run", times, (ratio,), floor=0.004, margin=0.01, shares=shares, gaps=(gap,), wide="float32")


def row(*args: object, forbidden: str = "", stand_in: bool = False, **more: object) -> ModelRow:
    return decided(MODEL, result(*args, **more), forbidden, stand_in, ABOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "said", "is_kept"),
    [
        (row(1.465, 0.003, "faster"), "faster", True),
        (row(1.001, 0.003, "same"), "same", True),  # 6 % were expected: it does not transfer
        (row(0.886, 0.003, "slower"), "slower", False),
        (row(1.001, 0.06, "unclear", share=0.5), "unclear", True),
        (row(1.001, 0.003, "same", share=0.015), "too small to see (expected +0.3%, resolvable 1.0%)", True),
        (row(0.97, 0.002, "slower", share=0.015), "slower", False),
        (row(0.97, 0.002, "slower", stand_in=True), "checked", True),
    ],
)
def test_the_word_of_a_step(measured: ModelRow, said: str, is_kept: bool) -> None:
    assert (measured.said, measured.kept) == (said, is_kept)


def test_a_check_of_the_wiring_says_so_first_and_claims_no_speed() -> None:
    one = replace(row(0.97, 0.002, "slower", stand_in=True), notes=("wiring only",))
    text = model_report.lines([one])
    assert text[:3] == ["note: wiring only", "", "flux (third), 72 rounds in turns on cpu"]
    assert text[-1] == "flux: the wiring and the numerics are right, with references for the kernels"
    assert model_report.entry(one) == "the wiring and the numerics are right, with references for the kernels"
    assert not any(word in " ".join(text) for word in ("slower", "kept"))
    outside = replace(one, kept=False, why="PSNR 20 dB is under the limit of 50 dB")
    said = "flux: PSNR 20 dB is under the limit of 50 dB, with references for the kernels"
    assert model_report.outcome(outside) == said


def test_what_is_forbidden_or_not_wired_has_no_number() -> None:
    for one in (
        row(1.465, 0.003, "faster", forbidden='"Using diffusers backend" (line 3 of its log)'),
        decided(MODEL, StepResult("run", not_wired="layers:norm was never called"), "", False, ABOUT),
    ):
        assert (one.kept, one.speedup, one.low, one.expected, one.floor, one.exact) == (False, *(None,) * 5)
        assert (one.times, one.ratios, one.shares, one.gaps) == ((), (), (), ())
        (text,) = model_report.lines([one])
        assert text in (
            'flux: forbidden: "Using diffusers backend" (line 3 of its log); not kept',
            "flux: not wired: layers:norm was never called; not kept",
        )


@pytest.mark.parametrize(
    ("gap", "why"),
    [
        (replace(GAP, relative_l2=0.03), "relative L2 3.0e-02 is over the limit of 0.02"),
        (replace(GAP, psnr_db=44.6), "PSNR 44.6 dB is under the limit of 50 dB"),
        (replace(GAP, wide_l2=0.02), "its error against wider weights is 4.0x the original's, over the limit of 1.5x"),
        (replace(GAP, is_finite=False), "the output of ours has values that are not finite"),
        (replace(GAP, psnr_db=None, relative_l2=0.0), ""),
    ],
)
def test_an_output_out_of_the_limits_is_not_kept(gap: OutputGap, why: str) -> None:
    one = row(1.465, 0.003, "faster", gap=gap)
    assert (one.why, one.kept) == (why, not why)


def test_the_fastest_with_kernels_is_compared_with_the_fastest_without() -> None:
    """The decoder that is twice as fast as eager and slower than compile is not kept."""
    times = [SideTime(name, ms, (ms,)) for name, ms in (("eager", 86.9), ("compile", 35.5), ("ours", 41.0))]
    found = ("eager", 2.1, 2.0, 2.2, "faster"), ("compile", 0.87, 0.86, 0.88, "slower")
    ratios = [SideRatio("ours", *ratio) for ratio in found]
    measured = replace(result(2.1, 0.1, "faster"), times=tuple(times), ratios=tuple(ratios))
    one = decided(MODEL, measured, "", False, ABOUT)
    assert (one.side, one.over, one.speedup, one.word, one.kept) == ("ours", "compile", 0.87, "slower", False)


def test_the_expected_gain_is_the_share_times_the_gain() -> None:
    shares = [TaskShare("norm", 1, 0.2, 4.0), TaskShare("rope", 1, 0.1, 2.0)]
    assert expected_speedup(shares, []) == pytest.approx(1 / (1 - 0.15 - 0.05))
    assert expected_speedup(shares, [replace(PATCH, micro=2.0)]) == pytest.approx(1 / (1 - 0.15 - 0.05))
    assert expected_speedup(shares, [replace(PATCH, micro=5.0)]) == pytest.approx(1 / (1 - 0.16 - 0.05))
    assert expected_speedup([TaskShare("rope", 1, 0.1, None)], []) is None


def test_a_signal_is_found_in_any_case_with_its_line() -> None:
    log = ["loading", "[WARN] Falling back to Diffusers backend: no class"]
    found = '"[WARN] Falling back to Diffusers backend: no class" (line 2 of its log)'
    assert forbidden(log, ["falling back to diffusers backend"]) == found
    assert forbidden(log, ["using diffusers backend"]) == ""


def test_a_crash_names_the_line_of_the_source() -> None:
    log = ["Fatal Python error: Aborted", "", "Current thread 0x1 (most recent call first):"]
    log += ['  File "/here/now/solution.py", line 3 in norm', '  File "/here/model/program.py", line 9 in forward']
    request = StepRequest("run", MODEL, (PATCH,), ("eager", "ours"), 18)
    assert crash(request, log, -6) == "the worker of flux aborted in norm/solution.py:3"
    assert crash(request, [], -9) == "the worker of flux was killed"


def test_a_line_names_no_folder_of_this_machine() -> None:
    line = json.loads(line_of(row(1.465, 0.003, "faster")))
    assert (line["event"], line["model"], line["word"], line["speedup"]) == ("model", "flux", "faster", 1.465)
    assert line["sources"][0]["source"] == "0123456789"
    assert "/here" not in json.dumps(line)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (GAP, ""),
        (replace(GAP, relative_l2=0.3), "relative L2 3.0e-01 after 2 steps is over the limit of 0.1"),
        (replace(GAP, is_finite=False), "after 2 steps the output has values that are not finite"),
    ],
)
def test_a_drift_out_of_its_limit_is_not_kept(last: OutputGap, why: str) -> None:
    model = replace(MODEL, limits=Limits(drift_l2=0.1))
    measured = replace(result(1.465, 0.003, "faster"), drift=(replace(GAP, relative_l2=0.3), last))
    one = decided(model, measured, "", False, ABOUT)
    assert (one.why, one.kept, one.drift) == (why, not why, measured.drift)


def test_the_drift_and_the_files_follow_the_output() -> None:
    one = replace(row(1.465, 0.003, "faster"), drift=(GAP, GAP), images=("/there/flux-ours.png",))
    text = model_report.lines([one])
    assert text[-7:] == [
        "step  max abs  relative L2  PSNR dB  L2 to float32  of eager",
        "1     1.0e-02      4.0e-03     67.0        5.0e-03   5.0e-03",
        "2     1.0e-02      4.0e-03     67.0        5.0e-03   5.0e-03",
        "",
        "flux: ours over eager 1.465x ±0.2%, faster · expected 1.066x · A/A floor 0.4% · kept",
        "",
        "images: /there/flux-ours.png",
    ]
    assert json.loads(line_of(one))["images"] == ["flux-ours.png"]


def test_a_command_shows_its_whole_run_and_its_memory() -> None:
    times = (
        SideTime("eager", 10.0, (10.0,), total_ms=3200.0, peak_mb=2048.0),
        SideTime("ours", 8.0, (8.0,), total_ms=3e3),
    )
    ratio = SideRatio("ours", "eager", 1.25, 1.24, 1.26, "faster")
    measured = StepResult("run", times, (ratio,), floor=0.004, margin=0.01)
    one = decided(MODEL, measured, "", False, replace(ABOUT, rounds=6, config=""))
    assert model_report.lines([one]) == [
        "flux, 6 pairs of runs in turns",
        "",
        "side      ms    over eager  kernels' gain  verdict   whole run ms  peak MB",
        "eager  10.00                                                 3200     2048",
        "ours   8.000  1.250x ±0.8%   1.250x ±0.8%  ▲ faster          3000        -",
        "",
        "flux: ours over eager 1.250x ±0.8%, faster · A/A floor 0.4% · kept",
    ]


def test_the_tables() -> None:
    whole, alone = row(1.465, 0.003, "faster"), row(1.001, 0.003, "same", share=0.015)
    assert model_report.lines([whole, alone]) == [
        "flux (third), 72 rounds in turns on cpu",
        "",
        "side      ms    over eager  kernels' gain  verdict",
        "eager  59.20",
        "ours   40.41  1.465x ±0.2%   1.465x ±0.2%  ▲ faster",
        "",
        "task  source         calls  share  after  micro  calls here  expected  bit-exact",
        "norm  best 01234567     12  30.0%  26.3%  1.26x       1.20x    1.066x        yes",
        "",
        "output  max abs  relative L2  PSNR dB  L2 to float32  of eager  bit-exact",
        "ours    1.0e-02      4.0e-03     67.0        5.0e-03   5.0e-03         no",
        "",
        "flux: ours over eager 1.465x ±0.2%, faster · expected 1.066x · A/A floor 0.4% · kept",
        "",
        "one at a time  share  micro  calls here  expected      measured  bit-exact  result",
        "norm            1.5%  1.26x       1.20x    1.003x  1.001x ±0.3%         no  "
        "too small to see (expected +0.3%, resolvable 1.0%)",
    ]
