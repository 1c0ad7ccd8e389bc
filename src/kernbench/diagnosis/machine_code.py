"""What a source was compiled to, and how two of them differ: figures, instruction counts and readable listings.

Reads what harness/load/machine_code.py has written. A listing is one kernel's PTX or SASS without addresses, debug
information and padding, so that a diff shows what the compiler does differently and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_TEXT = 8 << 20
"""Bytes that one piece of code may unpack to."""
Disassemble = Callable[[bytes], str]
"""From an image to nvdisasm's text; empty if there is no nvdisasm."""
_ENTRY = re.compile(r"^(?:\.visible |\.weak |\.extern )*\.(?:entry|func)\b[^\n]*?\b(?P<name>[\w$]+)\s*\(", re.MULTILINE)
_SASS = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?P<text>.*?)\s*;?\s*(?:/\*.*\*/)?$")
_PREDICATE = re.compile(r"^@!?%?U?P\w+\s+|^@!?%\w+\s+")
PTX_KINDS = {
    "global loads": r"ld\.global|ld\.relaxed|ldu|cp\.async\.c[ag]|cp\.async\.bulk[\w.]*shared[\w:]*\.global",
    "global stores": r"st\.global|red\.|atom\.|st\.relaxed|cp\.async\.bulk[\w.]*global\.shared",
    "shared memory": r"ld\.shared|st\.shared|ldmatrix|stmatrix",
    "local memory": r"ld\.local|st\.local",
    "tensor cores": r"mma\.|wgmma\.mma|tcgen05\.mma|wmma\.mma",
    "barriers": r"bar\.|barrier\.|mbarrier\.",
    "branches": r"bra\b|brx",
}
SASS_KINDS = {
    "global loads": r"LDG(?!DEPBAR)|UBLKCP|UTMALDG",
    "global stores": r"STG|RED(?!UX)|ATOMG|UTMASTG",
    "shared memory": r"LDS|STS|LDSM|STSM|ATOMS",
    "local memory": r"LDL|STL",
    "tensor cores": r"[HIQDB]MMA|[HIQB]GMMA|UTC\w*MMA",
    "barriers": r"BAR|SYNCS|DEPBAR|LDGDEPBAR|WARPSYNC",
    "branches": r"BRA|BRX|BSSY|CALL|RET",
}
"""How instructions begin, without their predicate."""


@dataclass(frozen=True)
class Listing:
    """One kernel's code as text."""

    lines: tuple[str, ...] = ()
    instructions: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelCode:
    name: str
    variant: str
    """What tells it apart from others of its name: dtypes, constants, warps, stages."""
    registers: int | None
    local_bytes: int | None
    """Per thread: spilled registers, and arrays that do not fit in registers."""
    shared_bytes: int | None
    ptx: Listing
    sass: Listing


def read(data: Mapping[str, Any], disassemble: Disassemble) -> list[KernelCode]:
    """The kernels of one file; an error in it is a ValueError."""
    try:
        images = {name: (_unpacked(image["ptx"]), _unpacked(image["cubin"])) for name, image in data["images"].items()}
        texts = {name: (ptx.decode(errors="replace"), disassemble(code)) for name, (ptx, code) in images.items()}
        return [_kernel(kernel, *texts.get(kernel.get("image"), ("", ""))) for kernel in data["kernels"]]
    except (KeyError, TypeError, AttributeError, binascii.Error, zlib.error) as problem:
        raise ValueError(f"not a file of machine code ({problem})") from None


def _kernel(data: Mapping[str, Any], ptx: str, sass: str) -> KernelCode:
    entry = str(data["entry"])
    return KernelCode(
        name=str(data["name"]),
        variant=str(data["variant"]),
        registers=_figure(data.get("registers")),
        local_bytes=_figure(data.get("local_bytes")),
        shared_bytes=_figure(data.get("shared_bytes")),
        ptx=ptx_listing(ptx, entry),
        sass=sass_listing(sass, entry),
    )


def pairs(old: Sequence[KernelCode], new: Sequence[KernelCode]) -> list[tuple[KernelCode | None, KernelCode | None]]:
    """In the order of the new ones: each with the old one of its name and variant, else with the first of its name that
    is left; then what is gone."""
    left = list(old)
    same: dict[int, KernelCode] = {}
    for whole in (True, False):
        for place, after in enumerate(new):
            match = [item for item in left if item.name == after.name and (not whole or item.variant == after.variant)]
            if place not in same and match:
                same[place] = match[0]
                left = [item for item in left if item is not match[0]]
    return [*((same.get(place), after) for place, after in enumerate(new)), *((item, None) for item in left)]


def ptx_listing(text: str, entry: str) -> Listing:
    """The instructions of one function."""
    begin = next((match.end() for match in _ENTRY.finditer(text) if match["name"] == entry), None)
    if begin is None:
        return Listing()
    body = _in_braces(text[begin:].partition("\n{")[2])
    lines = [line for raw in body.splitlines() if (line := " ".join(raw.partition("//")[0].split()))]
    lines = [line for line in lines if not line.startswith((".loc", "$L__tmp", "$L__func", "{", "}"))]
    code = [line for line in lines if not line.startswith(".") and not line.endswith(":")]
    return Listing(tuple(lines), len(code), _counted(code, PTX_KINDS))


def _in_braces(text: str) -> str:
    """Up to the brace that closes the function; inline assembly has braces as well."""
    depth = 1
    for found in re.finditer(r"[{}]", text):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return text[: found.start()]
    return text


def sass_listing(text: str, entry: str) -> Listing:
    """The instructions of one function, without the padding after them."""
    body = text.partition(f"\n.text.{entry}:\n")[2].partition("\n//----")[0]
    lines: list[str] = []
    for raw in body.splitlines():
        found = _SASS.match(raw)
        if found is not None:
            lines.append(" ".join(found["text"].split()))
        elif raw.startswith(".L_"):
            lines.append(raw.strip())
    while lines and (lines[-1] == "NOP" or lines[-1].endswith(":")):
        lines.pop()
    code = [line for line in lines if not line.endswith(":")]
    return Listing(tuple(lines), len(code), _counted(code, SASS_KINDS))


def _counted(code: Sequence[str], kinds: Mapping[str, str]) -> dict[str, int]:
    names = [_PREDICATE.sub("", line) for line in code]
    return {kind: sum(re.match(begins, name) is not None for name in names) for kind, begins in kinds.items()}


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj()
    return unpacker.decompress(base64.b64decode(text), MOST_TEXT)


def _figure(value: Any) -> int | None:
    return value if type(value) is int else None
