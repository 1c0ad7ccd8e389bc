"""Listings and counts of machine code, from small recorded samples, and the page that compares two sources."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import pytest

from kernbench.diagnosis import machine_code
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.tui.pages import machine_view

PTX = """
.version 8.7
.target sm_90a
.visible .entry other(
	.param .u32 other_param_0
)
{
	ret;
}
	// .globl	scale
.visible .entry scale(
	.param .u64 .ptr .global .align 1 scale_param_0,
	.param .u32 scale_param_1
)
.reqntid 128
{
	.reg .b32 	%r<13>;
	.loc	1 5 0                           // k.py:5:0
$L__func_begin0:
// %bb.0:
	ld.param.b64 	%rd5, [scale_param_0];
$L__tmp0:
	mov.u32 	%r5, %ctaid.x;
	// begin inline asm
	@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
	// end inline asm
	bar.sync 	0;
	@%p1 st.global.b32 [ %rd3 + 0 ], { %r3 };
	@%p1 bra 	$L__BB0_2;
$L__BB0_2:
	ret;
}
	.file	1 "k.py"
"""
SASS = """
//--------------------- .text.scale               --------------------------
	.section	.text.scale,"ax",@progbits
scale:
.text.scale:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E R0, desc[UR4][R4.64] ;
        /*0020*/                   STL [R1], R0 ;
        /*0030*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0040*/               @P1 STG.E desc[UR4][R2.64+0x200], R9 ;
        /*0050*/                   EXIT ;
.L_x_0:
        /*0060*/                   BRA `(.L_x_0);
        /*0070*/                   NOP;
        /*0080*/                   NOP;
.L_x_1:


//--------------------- SYMBOLS --------------------------
"""


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def recorded(**kernel: Any) -> dict[str, Any]:
    facts = {"name": "scale", "entry": "scale", "variant": "fp32, BLOCK=256", "registers": 32, "local_bytes": 0}
    image = {"ptx": packed(PTX.encode()), "cubin": packed(b"\x7fELF")}
    return {"kernels": [{**facts, "shared_bytes": 1024, "image": "ab", **kernel}], "images": {"ab": image}}


def kernel(**changes: Any) -> KernelCode:
    [found] = machine_code.read(recorded(), lambda image: SASS if image == b"\x7fELF" else "")
    return replace(found, **changes)


def told(old: list[KernelCode], new: list[KernelCode], width: int = 76, columns: bool = False) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in machine_view.lines(old, new, width, columns)]


def test_braces_of_inline_assembly_do_not_end_a_function() -> None:
    wait = "{\n\t.reg .pred complete;\n\tmbarrier.try_wait.parity.shared.b64 complete, [%r1], %r2;\n}\n"
    text = PTX.replace(
        "\tbar.sync", f"{wait}\tcp.async.commit_group;\n\tcp.async.cg.shared.global [%r1], [%rd1], 16;\n\tbar.sync"
    )
    plain, longer = (machine_code.ptx_listing(source, "scale") for source in (PTX, text))
    assert longer.instructions == plain.instructions + 3
    assert longer.kinds["global loads"] == plain.kinds["global loads"] + 1
    assert longer.kinds["barriers"] == plain.kinds["barriers"] + 1


def test_a_wait_for_copies_is_no_load_and_a_reduction_of_a_warp_no_store() -> None:
    text = SASS.replace("HMMA.16816.F32 R4, R8, R12, R4", "LDGDEPBAR").replace("STL [R1], R0", "REDUX.SUM UR4, R0")
    before, after = (machine_code.sass_listing(source, "scale").kinds for source in (SASS, text))
    assert after["global loads"] == before["global loads"]
    assert after["global stores"] == before["global stores"]


def test_a_listing_is_what_the_compiler_chose_to_do() -> None:
    found = kernel()
    assert found.ptx.lines == (
        ".reg .b32 %r<13>;",
        "ld.param.b64 %rd5, [scale_param_0];",
        "mov.u32 %r5, %ctaid.x;",
        "@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];",
        "bar.sync 0;",
        "@%p1 st.global.b32 [ %rd3 + 0 ], { %r3 };",
        "@%p1 bra $L__BB0_2;",
        "$L__BB0_2:",
        "ret;",
    )
    assert found.ptx.instructions == 7
    assert {name for name, count in found.ptx.kinds.items() if count} == {
        "global loads", "global stores", "barriers", "branches",
    }  # fmt: skip
    assert found.sass.lines[1] == "@!P0 LDG.E R0, desc[UR4][R4.64]"
    assert found.sass.lines[-1] == "BRA `(.L_x_0)"  # the padding is left out
    assert found.sass.instructions == 7
    assert [found.sass.kinds[name] for name in ("global loads", "global stores", "local memory", "tensor cores")] == [
        1
    ] * 4


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"kernels": []},
        {"kernels": [{}], "images": {}},
        {"kernels": [], "images": {"a": {"ptx": "abcd", "cubin": ""}}},
    ],
)
def test_a_file_that_is_none_is_an_error(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a file of machine code"):
        machine_code.read(broken, lambda image: "")


def test_a_kernel_whose_code_was_too_large_has_its_figures() -> None:
    data = recorded()
    del data["kernels"][0]["image"]
    [found] = machine_code.read(data, lambda image: SASS)
    assert (found.registers, found.ptx.lines, found.sass.lines) == (32, (), ())


def test_kernels_are_paired_by_variant_then_by_name() -> None:
    one, two, three = (kernel(variant=f"BLOCK={size}") for size in (1, 2, 3))
    other, gone = kernel(name="other"), kernel(name="gone")
    found = machine_code.pairs([one, two, gone], [three, two, other])
    assert found == [(one, three), (two, two), (None, other), (gone, None)]


def test_the_page_shows_figures_counts_and_what_differs() -> None:
    new = kernel(
        registers=40, local_bytes=16, sass=machine_code.sass_listing(SASS.replace("STL [R1]", "STL [R2]"), "scale")
    )
    assert told([kernel()], [new]) == [
        "scale  fp32, BLOCK=256",
        "                        before  after",
        "  registers                 32     40   +8",
        "  local memory, bytes        0     16  +16",
        "  shared memory, bytes    1024   1024",
        "  SASS instructions          7      7",
        "  PTX instructions           7      7",
        "    global loads             1      1",
        "    global stores            1      1",
        "    local memory             1      1",
        "    tensor cores             1      1",
        "    branches                 1      1",
        "",
        "SASS",
        "@@ line 1 @@",
        "  LDC R1, c[0x0][0x28]",
        "  @!P0 LDG.E R0, desc[UR4][R4.64]",
        "- STL [R1], R0",
        "+ STL [R2], R0",
        "  HMMA.16816.F32 R4, R8, R12, R4",
        "  @P1 STG.E desc[UR4][R2.64+0x200], R9",
        "  EXIT",
        "PTX: no difference",
    ]
    styles = {
        text.split("  ")[1]: style
        for line in machine_view.lines([kernel()], [new], 76, False)
        for text, style in line
        if text.startswith("  ")
    }
    assert (styles["registers"], styles["shared memory, bytes"]) == ("warn", "")


def test_without_nvdisasm_the_counts_are_those_of_ptx() -> None:
    bare = kernel(sass=machine_code.Listing())
    page = told([bare], [bare])
    assert machine_view.NO_SASS in page
    assert "    barriers                 1      1" in page
    assert not any("SASS instructions" in line for line in page)


def test_a_new_and_a_gone_kernel_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    page = told([kernel(name="old")], [kernel(name="new", variant="")])
    assert [line for line in page if "(" in line and not line.startswith(" ")] == [
        "new (new)",
        "old (gone)  fp32, BLOCK=256",
    ]
    monkeypatch.setattr(machine_view, "MOST_LINES", 3)
    page = told([kernel()], [kernel(sass=machine_code.sass_listing(SASS.replace("EXIT", "RET"), "scale"))])
    assert [line for line in page if line.startswith("...")] == ["... 6 more lines of SASS"]
    assert told([], []) == ["no GPU kernel was compiled"]
