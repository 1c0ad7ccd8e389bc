"""From a recording to functions, categories, candidates, fast paths and the text about them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared.taskfile.values import TaskError
from kernbench.cli import cli
from kernbench.rank import categories, chrome_trace, fast_paths, python_frames, rank_report, ranking
from kernbench.rank.python_frames import Names
from kernbench.rank.ranking import Ranking
from kernbench.rank.recording import Frame, Tensor
from tests.rank.traces import event, launched, operator, python, write

NORMS = """
import torch

def outer():
    def inner(): ...

class AdaNorm(torch.nn.Module):
    class Part:
        @torch.no_grad()
        def apply(self): ...

    def forward(self, x):
        return x
"""
CUTE = "kernel_cutlass_"
ATTENTION_LAYER = "sglang/layers.py(4): apply_qk_norm"


def ranked(folder: Path, *items: dict[str, object], main: str = "") -> Ranking:
    recording = chrome_trace.read(write(folder / "t.json", *items))
    return ranking.rank(recording, Names([folder], main), fast_paths.load([]), ["python", "a b.py"])


def test_functions_are_named_as_their_module_names_them(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "norms.py").write_text(NORMS)
    names = Names([tmp_path / "other", tmp_path], str(tmp_path / "run.py"))
    (tmp_path / "run.py").write_text("def main(): ...\n")

    def site(file: str, line: int, name: str, owner: str = "") -> str:
        found = names.of(Frame(file, line, name, owner))
        return f"{found.site} {found.problem}".strip()

    assert site("models/norms.py", 12, "forward") == "models.norms:AdaNorm.forward"
    assert site("models/norms.py", 13, "forward") == "models.norms:AdaNorm.forward"  # it was running already
    assert site("models/norms.py", 9, "apply") == "models.norms:AdaNorm.Part.apply"
    assert site("models/norms.py", 5, "inner").endswith("outer.<locals>.inner it is a function inside a function")
    assert site(str(tmp_path / "models" / "norms.py"), 4, "outer") == "models.norms:outer"
    assert site("run.py", 1, "main") == "__main__:main it is part of the script itself; move it to a module"
    assert site("run.py", 1, "<module>") == "__main__:<module> it is code outside a function"
    assert site("not/here.py", 3, "forward", "Block") == "not.here:Block.forward"  # by the module that was called
    assert site("pack/__init__.py", 3, "f") == "pack:f"
    assert site("/else/where.py", 3, "f") == "/else/where.py:f its file is not on sys.path"


@pytest.mark.parametrize(
    ("name", "is_outside"),
    [
        ("layers.py(3): norm", True),
        ("torchtune/modules.py(3): norm", True),
        ("/usr/bin/sglang(8): <module>", True),
        ("torch/nn/functional.py(3): norm", False),
        ("/venv/lib/python3.12/site-packages/triton/runtime/jit.py(3): run", False),
        ("/usr/lib/python3.12/contextlib.py(81): inner", False),
        ("contextlib.py(81): inner", False),
        ("/venv/lib/python3.12/site-packages/tvm_ffi/module.py(9): call", False),
        ("cutlass/base_dsl/dsl.py(3): wrapper", False),
        ("helion/runtime/kernel.py(3): __call__", False),
        ("cutlass_norms/ops.py(3): norm", True),
        ("/tmp/torchinductor_root/ab/cab.py(3): call", False),
        ("harness/cuda/launching.py(76): start", False),
        ("/venv/harness/cuda/launching.py(76): start", False),
        ("my_harness/cuda/ops.py(76): start", True),
        ("<frozen importlib._bootstrap>(1): _load", False),
        ("<built-in method mul of Tensor object at 0x7f>", False),
        ("nn.Module: Linear_0", False),
        ("layers.py(3): <lambda>", False),
    ],
)
def test_torch_triton_and_python_are_looked_through(name: str, is_outside: bool) -> None:
    assert (python_frames.parse(name) is not None) is is_outside


@pytest.mark.parametrize(
    ("kernel", "inside", "category"),
    [
        ("void pytorch_flash::flash_fwd_kernel<...>", "aten::_flash_attention_forward", categories.ATTENTION),
        ("sm90_xmma_fprop_implicit_gemm_bf16", "aten::cudnn_convolution", categories.CONVOLUTION),
        ("void cudnn::ops::nchwToNhwcKernel<...>", "aten::cudnn_convolution", categories.COPIES),
        ("cutlass::Kernel<s1688gemm>", "aten::convolution_backward", categories.CONVOLUTION),
        ("nvjet_hsh_128x256", "aten::addmm", categories.GEMM),
        ("void splitKreduce_kernel<...>", "aten::mm", categories.GEMM),
        ("void at::native::elementwise_kernel<...direct_copy_kernel_cuda...>", "aten::copy_", categories.COPIES),
        ("Memcpy DtoD (Device -> Device)", "", categories.COPIES),
        ("void at::native::elementwise_kernel<...>", "aten::mul", categories.ELEMENTWISE),
        ("aten::native_layer_norm", "aten::native_layer_norm", categories.ELEMENTWISE),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "", categories.ATTENTION),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "", categories.ELEMENTWISE),
        ("triton_poi_fused_add_convolution_silu_3", "", categories.ELEMENTWISE),
        ("convert_fp8_kernel", "", categories.ELEMENTWISE),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(T2 *, T2 *, T2 *)", "", categories.ELEMENTWISE),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>", "", categories.ELEMENTWISE),
        ("void flashinfer::activation::act_and_mul_kernel<__half, &silu>", "", categories.ELEMENTWISE),
        ("flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<...>", "", categories.ELEMENTWISE),
        ("void flashinfer::sampling::TopPSamplingFromProbKernel<...>", "", categories.ELEMENTWISE),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<...>", "", categories.ATTENTION),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<...>", "", categories.ATTENTION),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>", "", categories.ATTENTION),
        ("void vllm::reshape_and_cache_flash_kernel<...>", "", categories.COPIES),
        (
            f"{CUTE}kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16",
            "",
            categories.ELEMENTWISE,
        ),
        (f"{CUTE}kernel___main__SSDKernel_object_at__CopyAtom_ThrID10_TVLayoutSrc1409601", "", categories.ELEMENTWISE),
        (f"{CUTE}_convert_kernel_tensorptrf16gmemalign16o12561110", "", categories.ELEMENTWISE),
        (f"{CUTE}kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA_ThrLayout", "", categories.GEMM),
        (f"{CUTE}kernel_TiledMMA_ThrLayoutVMNK11110000_PermutationMNK____MMAAtom", "", categories.GEMM),
        (f"{CUTE}kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100", "", categories.ATTENTION),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16>", "", categories.GEMM),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32", "", categories.GEMM),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", categories.COMMUNICATION),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*)", "c10d::allreduce_", categories.COMMUNICATION),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", categories.COMMUNICATION),
        ("void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>", "", categories.COMMUNICATION),
        ("(anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16>", "", categories.COMMUNICATION),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel<...>", "", categories.COMMUNICATION),
        ("c10d::allreduce_", "c10d::allreduce_", categories.COMMUNICATION),
        ("smallReduceKernel", "", categories.ELEMENTWISE),
    ],
)
def test_categories(kernel: str, inside: str, category: str) -> None:
    assert categories.category(kernel, inside) == category


def test_candidates_are_what_is_left_without_the_libraries_kernels(tmp_path: Path) -> None:
    result = ranked(
        tmp_path,
        python("net.py(1): block", 0, 100),
        operator("aten::addmm", 1, 10, [8, 8]),
        *launched("gemm", 2, 1, 200, 900),
        operator("aten::mul", 20, 10, [8, 8]),
        *launched("mul_kernel", 21, 2, 1200, 60),
        python("net.py(9): small", 110, 20),
        *launched("tiny_kernel", 111, 3, 1300, 5),
        python("net.py(12): proj", 140, 20),
        *launched("gemm", 141, 4, 1400, 35),
    )
    (candidate,) = result.candidates
    assert (candidate.function, candidate.share, candidate.open_share) == ("net:block", 0.96, 0.06)
    assert candidate.mostly == categories.GEMM
    assert candidate.command == "kernbench capture --site net:block --new block -- python 'a b.py'"
    assert result.categories[categories.GEMM] == 0.935
    assert sum(result.categories.values()) == pytest.approx(1)


def test_two_candidates_get_two_task_names(tmp_path: Path) -> None:
    result = ranked(
        tmp_path,
        python("a.py(1): norm", 0, 10),
        *launched("x", 1, 1, 100, 9),
        python("b.py(1): norm", 20, 10),
        *launched("y", 21, 2, 200, 8),
    )
    tasks = [re.findall(r"--new (\w+)", row.command) for row in result.candidates]
    assert tasks == [["norm"], ["norm_2"]]
    assert ranking.task_name("d.m:AdaLayerNormZero.forward") == "ada_layer_norm_zero"
    assert ranking.task_name("d.m:RMSNorm.__call__") == "rms_norm"
    assert ranking.task_name("d.m:_turned") == "turned"


def fast_path(folder: Path, extent: int, kernel: str = "mul_kernel", function: str = ATTENTION_LAYER) -> str:
    step = [python(function, 0, 50), operator("aten::mul", 1, 20, [9, 4, extent]), *launched(kernel, 2, 1, 60, 9)]
    return ranked(folder, *step).rows[0].fast_path.text


def test_a_fast_path_ran_or_says_why_not(tmp_path: Path) -> None:
    assert fast_path(tmp_path, 96) == "should have run: head_dim 96"
    assert fast_path(tmp_path, 128) == "should have run"
    assert fast_path(tmp_path, 128, kernel="void fused_qknorm_rope_warp<...>") == "ran"
    assert fast_path(tmp_path, 128, function="sglang/ops/qknorm_rope.py(2): run") == "ran"
    assert fast_path(tmp_path, 96, function="diffusers/attention.py(9): apply_qk_norm") == "only in SGLang: head_dim 96"
    assert fast_path(tmp_path, 96, function="sglang/layers.py(9): softplus") == "none known"
    norm = "sglang/layers.py(9): RMSNormScaleShift"
    assert [fast_path(tmp_path, width, function=norm) for width in (100, 512, 16384)] == [
        "should have run: width 100",
        "should have run",
        "should have run: width 16384",
    ]
    step = [python(ATTENTION_LAYER, 0, 50), *launched("k", 2, 1, 60, 9)]
    assert ranked(tmp_path, *step).rows[0].fast_path.text == "should have run: head_dim not recorded"
    on_cpu = [python(ATTENTION_LAYER, 0, 50), operator("aten::mul", 1, 20, [9, 4, 96])]
    assert ranked(tmp_path, *on_cpu).rows[0].fast_path.text == "needs a GPU"
    fused = [fast_path(tmp_path, width, function="sglang/layers.py(4): apply_qk_norm_rope") for width in (256, 512)]
    assert fused == ["should have run", "should have run: head_dim 512"]
    assert [fast_path(tmp_path, width) for width in (512, 1024, 2048)] == [
        "should have run",
        "should have run",
        "should have run: head_dim 2048",
    ]
    assert fast_path(tmp_path, 512, kernel="void fused_qknorm_cta<...>") == "ran"


@pytest.mark.parametrize(
    ("site", "text"),
    [
        ("sglang.kernels.ops.diffusion.modulate.modulate_scale_shift_jit:modulate_scale_shift", "ran"),
        ("sglang.kernels.ops.diffusion.norm.wan_rmsnorm_silu_triton:wan_rmsnorm_silu", "ran"),
        ("sglang.kernels.ops.diffusion.norm.zimage_qk_rmsnorm_triton:zimage_qk_rmsnorm_native", "ran"),
        ("sglang.kernels.ops.diffusion.rope.rope_rotate_half_bitexact:fused_rope_rotate_half_bitexact", "ran"),
        ("sglang.kernels.ops.diffusion.sites.hunyuan_qknorm_site:try_hunyuan_qknorm", "ran"),
        ("sgl_kernel.elementwise:rmsnorm", "ran"),
        ("flashinfer.norm:fused_add_rmsnorm", "ran"),
        ("sglang.kernels.ops.diffusion.common.fallback_torch:norm_infer_native", "should have run"),
        ("sglang.kernels.ops.diffusion.common.fallback_torch:fuse_scale_shift_kernel_native", "should have run"),
        ("sglang.kernels.ops.diffusion.norm.group_norm_silu_triton:_group_norm_silu_native", "should have run"),
        ("sglang.kernels.ops.layernorm:RMSNorm.forward_native", "should have run"),
        ("sglang.kernels.ops.speculative.ragged_verify_kernels:PaddedToBucket.torch", "none known"),
        ("sglang.multimodal_gen.runtime.layers.layernorm:RMSNorm.forward_native", "should have run"),
    ],
)
def test_what_a_library_of_kernels_has_is_a_fast_path_itself(site: str, text: str) -> None:
    assert fast_paths.judge(fast_paths.load([]), site, ["k"], Tensor((2, 128), 2)).text == text


@pytest.mark.parametrize(
    ("dtype", "most"), [("c10::BFloat16", 32768), ("c10::Half", 32768), ("float", 16384), ("double", 8192)]
)
def test_a_bound_in_bytes_holds_for_every_dtype(tmp_path: Path, dtype: str, most: int) -> None:
    def text(width: int) -> str:
        norm = operator("aten::mul", 1, 20, [9, width])
        norm["args"]["Input type"] = [dtype]
        step = [python("sglang/layers.py(9): rms_norm", 0, 50), norm, *launched("k", 2, 1, 60, 9)]
        (row,) = ranked(tmp_path, *step).rows
        assert row.fast_path.detail.endswith("at most 65536 bytes") is (width > most)
        return row.fast_path.text

    assert [text(most), text(most + 1)] == ["should have run", f"should have run: width {most + 1}"]


def test_users_add_and_replace_fast_paths(tmp_path: Path) -> None:
    table = '[[path]]\nname = "{}"\nproject = "ours"\nentry = "f"\nfunctions = "my_norm"\nran = "{}"\n'
    own = tmp_path / "fast_paths.toml"
    own.write_text(table.format("mine", "fast_kernel") + table.format("qknorm_rope", "other"))
    paths = fast_paths.load([own, tmp_path / "missing.toml"])
    assert [(path.name, path.project) for path in paths[:2]] == [("mine", "ours"), ("qknorm_rope", "ours")]
    assert len(paths) == len(fast_paths.load([])) + 1
    assert fast_paths.judge(paths, "m:my_norm", ["k"], Tensor()).text == "should have run"
    assert fast_paths.judge(paths, "m:my_norm", ["fast_kernel"], Tensor()).text == "ran"
    for wrong, says in (('ran = "("', "not a regular"), ("size = 3", "must be a table"), ("speed = 3", "unknown key")):
        own.write_text(
            table.format("mine", "x").replace('ran = "x"', "") + 'ran = "x"\n' * ("ran" not in wrong) + wrong
        )
        with pytest.raises(TaskError, match=says):
            fast_paths.load([own])


def test_the_command_prints_a_report_or_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write(
        tmp_path / "t.json",
        python(ATTENTION_LAYER, 0, 50),
        operator("aten::mul", 1, 20, [9, 4, 96]),
        *launched("mul_kernel", 2, 1, 60, 3000),
        *launched("graphed", 90, 2, 5060, 1000, by="cudaGraphLaunch"),
        event("ac2g", "flow", 3, 1),
    )
    done = CliRunner().invoke(cli, ["rank", "--from", "t.json", "--", "python", "run.py"])
    assert done.exit_code == 0, done.output
    table = done.output.splitlines()
    assert table[0] == "t.json: 4.000 ms of device time (GPU) in a window of 6.000 ms"
    assert table[1] == rank_report.GRAPH.format("25.0%")
    assert "idle                   33.3%  2.000  of the window; recording stacks lengthens it" in table
    assert any(line.endswith("norm and elementwise  should have run: head_dim 96") for line in table)
    assert "  kernbench capture --site sglang.layers:apply_qk_norm --new apply_qk_norm -- python run.py" in table
    done = CliRunner().invoke(cli, ["rank", "--from", "t.json", "--json"])
    whole, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (whole["event"], whole["idle_us"], whole["graph_share"]) == ("rank", 2000.0, 0.25)
    assert [(row["function"], row["candidate"]) for row in rows] == [
        ("sglang.layers:apply_qk_norm", True),
        (ranking.NO_FUNCTION, False),
    ]
    assert rows[0]["command"].endswith("-- COMMAND")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rank"], "give a command after --"),
        (["rank", "--for", "soon", "--", "x"], "'soon' is not a time"),
        (["rank", "--whole", "--skip", "2s", "--", "x"], "--skip counts from the first call"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, says in done.output) == (2, True), done.output
