"""`kernbench transfer` on a CPU with real workers, and model.toml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.shared.taskfile.values import TaskError
from kernbench.log.runs.journal import Journal
from kernbench.task.lookup import ProjectError
from kernbench.transfer import model_file
from tests import ROOT
from tests.transfer import toy


def transfer(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "kernbench", "transfer", *words, "--json", "--device", "cpu", "--rounds", "18"]
    environment = {name: value for name, value in os.environ.items() if name != "KERNBENCH_HARNESS"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_the_mini_model_runs_every_family_on_a_cpu(tmp_path: Path) -> None:
    code, (row,), said = transfer(ROOT, "mini", "--state", str(tmp_path), "--steps", "3")
    assert code == 0, said
    calls = {share["task"]: share["calls"] for share in row["shares"]}
    assert calls == {
        "norm_scale_shift": 2,
        "qknorm_rope": 1,
        "norm_infer": 1,
        "rotary_embedding": 1,
        "norm_tanh_mul_add": 1,
        "fuse_scale_shift": 1,
        "gelu_concat": 1,
        "group_norm_silu": 3,
    }
    assert [item["name"] for item in row["times"]] == ["eager", "ours"]
    assert (row["word"], row["kept"], row["config"]) == ("checked", True, "tiny")
    (gap,) = row["gaps"]
    assert gap["psnr_db"] > 100
    assert gap["wide_l2"] < 2 * gap["original_wide_l2"]
    assert len(row["drift"]) == 3
    assert row["drift"][0]["relative_l2"] == gap["relative_l2"]
    assert {share["task"] for share in row["shares"] if share["exact"]} >= {"rotary_embedding", "fuse_scale_shift"}
    assert row["images"] == ["mini-original.png", "mini-ours.png", "mini-difference.png"]
    assert all((tmp_path / name).is_file() for name in row["images"])
    recorded = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert recorded == [row]
    assert Journal(tmp_path).summaries == []  # readers of runs leave it alone


def test_a_model_that_fell_back_is_forbidden(tmp_path: Path) -> None:
    toy.write(tmp_path, toy.MODEL.replace("adapters:scaled", "adapters:telling"))
    code, (row,), _ = transfer(tmp_path, "toy", "--task", "scale", "--source", "now")
    assert code == 1
    assert (row["word"], row["speedup"], row["times"], row["kept"]) == ("forbidden", None, [], False)
    assert row["why"].startswith('"WARNING: Using diffusers backend for toy" (line ')
    logged = (tmp_path / "scale" / ".kernbench" / "runs.jsonl").read_text()
    assert json.loads(logged) == row  # a row about one task is in its log


def test_a_model_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    folder = toy.write(tmp_path)
    assert model_file.find_model("toy", tmp_path) == folder
    assert model_file.find_model(str(folder)) == folder
    assert set(model_file.models(tmp_path)) >= {"toy", "mini", "flux", "wan", "vae"}
    with pytest.raises(ProjectError, match="no model 'toi' here; available: toy, "):
        model_file.find_model("toi", tmp_path)


@pytest.mark.parametrize("name", ["mini", "flux", "wan", "vae"])
def test_a_shipped_model_is_whole(name: str) -> None:
    folder = ROOT / "kernels" / "models" / name
    tiny, full = (model_file.load(folder, None, on_cpu) for on_cpu in (True, False))
    assert (tiny.config_name, tiny.dtype, full.dtype) == ("tiny", "float32", "bfloat16")
    assert tiny.config.keys() == full.config.keys()
    assert [task for task in tiny.tasks if not (ROOT / "kernels" / task / "task.toml").is_file()] == []


ELSEWHERE = {
    "rms_norm",  # the readable example
    "softmax_host",  # for CPUs
    "fused_add_rms_norm", "silu_and_mul",  # of language models
    "residual_gate_add",  # the site is fuse_scale_shift's, which computes the same
    "ernie_adaln_residual_gate",  # of ERNIE-Image
    "attention_concat_copy",  # around sequence-parallel attention
    "ltx2_qknorm_split_rope", "ltx2_dual_modulate", "ltx2_rms_adaln",  # of LTX-2
    "causal_conv3d_cat_pad", "wan_vae_rmsnorm_silu",  # of video decoders
    "bias_residual_add",  # of decoders
    "attention_choice",  # torch chooses the same kernel
}  # fmt: skip


def test_the_mini_model_has_every_family_of_diffusion_kernels() -> None:
    tasks = {path.parent.name for path in (ROOT / "kernels").glob("*/task.toml")}
    mini = model_file.load(ROOT / "kernels" / "models" / "mini", None, on_cpu=True)
    assert tasks - set(mini.tasks) == ELSEWHERE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("layers:scaled", "layers.scaled"), "site.call: 'layers.scaled' is not MODULE:NAME"),
        (("[[site]]", "[[sites]]"), "sites: unknown key"),
        (("[configs.only]\nsize = 128", ""), r"configs: must be \[configs.NAME\] tables"),
        (('"float32"', '"float8"'), "dtype: 'float8' is not one of bfloat16, float16, float32"),
        (("relative_l2 = 0.01", "relative_l3 = 0.01"), "limits.relative_l3: unknown key"),
        (('task = "scale"', 'task = "scale"\ncompiled = "no"'), "site.compiled: must be true or false, not 'no'"),
    ],
)
def test_a_mistake_in_model_toml_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        toy.loaded(toy.write(tmp_path, toy.MODEL.replace(*change)))


SIDES = "eager,eager+graph,compile,compile+graph,ours,ours+graph,compile+ours,compile+ours+graph"


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_all_eight_sides_run_on_a_gpu(tmp_path: Path) -> None:
    words = ["mini", "--source", "now", "--config", "tiny", "--rounds", "18", "--state", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "kernbench", "transfer", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    row = json.loads(done.stdout)
    assert [item["name"] for item in row["times"] if not item["problem"]] == SIDES.split(",")
    assert all(gap["is_finite"] for gap in row["gaps"])
