"""Packs a kernel's arguments into its parameter layout, by the types of the values passed."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from harness.shared import format as fmt

INTEGERS = {8: "q", 4: "i", 2: "h", 1: "b"}
"""struct codes by width; the first is used if the width is unknown."""


class Packed:
    """The parameter memory for one combination of argument types."""

    def __init__(self, kinds: tuple[type, ...], declared: Sequence[tuple[int, int]] | None) -> None:
        if declared is not None and len(declared) != len(kinds):
            raise TypeError(f"the kernel takes {fmt.plural(len(declared), 'argument')}, not {len(kinds)}")
        layout, end, self._puts = "<", 0, []
        for index, kind in enumerate(kinds):
            try:
                code, put = passed(kind, declared[index][1] if declared is not None else None)
            except TypeError as problem:
                raise TypeError(f"argument {index} {problem}") from None
            size = struct.calcsize("<" + code)
            offset = declared[index][0] if declared is not None else -(-end // size) * size
            layout += f"{offset - end}x{code}"
            end = offset + size
            self._puts.append(put)
        self._struct, self._size = struct.Struct(layout), ctypes.c_size_t(end)
        self.buffer = ctypes.create_string_buffer(max(1, end))
        self.fill = self._filler()
        places = (ctypes.addressof(self.buffer), ctypes.addressof(self._size))
        self._extra = (ctypes.c_void_p * 5)(1, places[0], 2, places[1], 0)  # pointer, size, end
        self.extra = ctypes.addressof(self._extra) if kinds else 0

    def _filler(self) -> Callable[..., None]:
        """A function of exactly these arguments: a loop over them would take as long as the rest of the launch."""
        names = [f"a{index}" for index in range(len(self._puts))]
        values = [name if put is None else f"put_{name}({name})" for name, put in zip(names, self._puts, strict=True)]
        scope: dict[str, Any] = {f"put_{name}": put for name, put in zip(names, self._puts, strict=True)}
        scope["pack"] = functools.partial(self._struct.pack_into, self.buffer, 0)
        if names == values:
            return scope["pack"]  # type: ignore[no-any-return]
        made: Callable[..., None] = eval(f"lambda {', '.join(names)}: pack({', '.join(values)})", scope)
        return made

    def fill_unsigned(self, args: Sequence[Any]) -> None:
        """`fill` for integers beyond the signed range."""
        codes = re.findall(r"[a-wyzA-Z]", self._struct.format)
        ready = [arg if put is None else put(arg) for put, arg in zip(self._puts, args, strict=True)]
        wrapped = [_unsigned(value, code) for value, code in zip(ready, codes, strict=True)]
        self._struct.pack_into(self.buffer, 0, *wrapped)


def passed(kind: type, size: int | None) -> tuple[str, Callable[[Any], Any] | None]:
    """The struct code for values of a type if the kernel declares `size` bytes, and their conversion."""
    put: Callable[[Any], Any] | None = None
    if hasattr(kind, "data_ptr") or kind is type(None):
        what, codes, put = "a pointer", {8: "Q"}, _address if kind is not type(None) else lambda _: 0
    elif issubclass(kind, int):
        what, codes = "an int", INTEGERS
    elif kind is float:
        what, codes = "a float", {4: "f", 8: "d"}
    else:
        code, put = _scalar(kind)
        width = struct.calcsize("<" + code)
        what, codes = f"of type {kind.__name__} ({fmt.plural(width, 'byte')})", {width: code}
    if size is not None and size not in codes:
        raise TypeError(f"is {what}, but the kernel declares a parameter of {fmt.plural(size, 'byte')}")
    return codes[size or next(iter(codes))], put


def _scalar(kind: Any) -> tuple[str, Callable[[Any], Any] | None]:
    """numpy scalars, which have a known width."""
    if kind.__module__ == "numpy" and hasattr(kind, "itemsize"):
        about = kind(0).dtype
        if about.kind in "iub":
            return INTEGERS[about.itemsize], int
        if about.kind == "f" and about.itemsize <= 8:
            return {2: "e", 4: "f", 8: "d"}[about.itemsize], None
    raise TypeError(f"is of type {kind.__name__}; pass tensors, int, float, bool, None or numpy scalars")


def _address(tensor: Any) -> int:
    if not tensor.is_cuda:
        raise TypeError(f"a kernel got a tensor on {tensor.device}; pass one on the GPU")
    return tensor.data_ptr()  # type: ignore[no-any-return]


def _unsigned(value: Any, code: str) -> Any:
    """The signed integer with the same bits, for values that fit only an unsigned parameter."""
    bits = 8 * struct.calcsize("<" + code)
    if code not in INTEGERS.values() or -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    if not 0 <= value < 1 << bits:
        raise OverflowError(f"{value} does not fit in the {fmt.plural(bits // 8, 'byte')} the kernel declares")
    return value - (1 << bits)


def declared_by(kernel: Any) -> list[tuple[int, int]] | None:
    """Offset and size of every parameter; None with drivers before 12.4."""
    try:
        return [(int(item.offset), int(item.size)) for item in kernel.arguments_info]
    except NotImplementedError:
        return None
