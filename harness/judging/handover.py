"""Hands results of calls from the worker to the judge: raw bytes through shared memory, headers through a socket.

The judge makes the ring, anonymous memory of a few slots, and passes it on when the worker connects, before any source
is loaded. The worker fills a slot and names it; the judge empties it and gives it back. On a GPU both ends register the
ring with CUDA, so that copies run at the speed of the bus. A tensor travels with its layout, whole span included.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.inputs import tensor_layout

SLOTS, SLOT = 4, 16 << 20
"""Slots of the ring, and the bytes of one."""
TURN_S = 0.1
"""How often a waiting judge asks whether it is still wanted."""
_LENGTH, _PIECE = struct.Struct("<I"), struct.Struct("<II")


class Ring:
    """The shared memory, as bytes of a tensor."""

    def __init__(self, file: int, device: str) -> None:
        self._map = mmap.mmap(file, SLOTS * SLOT)
        self.slots = torch.frombuffer(self._map, dtype=torch.uint8).view(SLOTS, SLOT)
        self.is_registered = device != "cpu" and _register(self.slots)

    def close(self) -> None:
        if self.is_registered:
            torch.cuda.cudart().cudaHostUnregister(self.slots.data_ptr())  # type: ignore[no-untyped-call]


def _register(memory: torch.Tensor) -> bool:
    """Whether CUDA may copy to and from the memory directly; slower if not."""
    return int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), 0)) == 0  # type: ignore[no-untyped-call]


class Sender:
    """The worker's end."""

    def __init__(self, address: str, device: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(_name(address))
        _data, files, _flags, _address = socket.recv_fds(self._socket, 1, 1)
        try:
            self._ring = Ring(files[0], device)
        finally:
            os.close(files[0])
        self._free = list(range(SLOTS))
        self._is_gpu = device != "cpu"

    def send(self, header: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        """One call: what is known about it, and its tensors."""
        layouts = [_layout(tensor) for tensor in tensors]
        text = json.dumps({**header, "tensors": layouts}).encode()
        self._socket.sendall(_LENGTH.pack(len(text)) + text)
        for tensor in tensors:
            if tensor_layout.span_bytes(tensor):
                self._send_bytes(tensor_layout.flat(tensor).view(torch.uint8))

    def finish(self) -> None:
        """Says that there are no more, and waits until the judge has taken all."""
        self.send({"end": True}, [])
        while len(self._free) < SLOTS:
            self._free += _read(self._socket, 1)

    def _send_bytes(self, raw: torch.Tensor) -> None:
        for start in range(0, raw.numel(), SLOT):
            piece = raw[start : start + SLOT]
            slot = self._free_slot()
            self._ring.slots[slot, : piece.numel()].copy_(piece)
            self._socket.sendall(_PIECE.pack(slot, piece.numel()))

    def _free_slot(self) -> int:
        if not self._free:
            self._free += _read(self._socket, 1)
        return self._free.pop()

    def close(self) -> None:
        self._socket.close()
        self._ring.close()


class Receiver:
    """The judge's end; `is_wanted` is asked while it waits."""

    def __init__(self, device: str, is_wanted: Callable[[], bool]) -> None:
        self.address = secrets.token_hex(16)
        self._device, self._is_wanted = device, is_wanted
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(_name(self.address))
        self._listener.listen(1)
        self._socket: socket.socket | None = None
        self._file = os.memfd_create("kernbench-results", os.MFD_CLOEXEC)
        os.ftruncate(self._file, SLOTS * SLOT)
        self._ring = Ring(self._file, device)

    def calls(self) -> Iterator[tuple[dict[str, Any], list[torch.Tensor]]]:
        """Every call that the worker sends, until it says that there are no more; raises EOFError if it leaves."""
        connected = self._accept()
        while True:
            header = json.loads(self._read(connected, _LENGTH.unpack(self._read(connected, _LENGTH.size))[0]))
            if header.get("end"):
                return
            yield header, [self._tensor(connected, layout) for layout in header["tensors"]]

    def _accept(self) -> socket.socket:
        self._listener.settimeout(TURN_S)
        while True:
            if not self._is_wanted():
                raise EOFError
            with contextlib.suppress(TimeoutError):
                connected, _address = self._listener.accept()
                if _user_of(connected) == os.getuid():  # the name of a socket without a file is open to all
                    break
                connected.close()
        self._socket = connected
        connected.settimeout(TURN_S)
        socket.send_fds(connected, [b"r"], [self._file])
        return connected

    def _read(self, connected: socket.socket, count: int) -> bytes:
        return _read(connected, count, self._is_wanted)

    def _tensor(self, connected: socket.socket, layout: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, layout["dtype"])
        like = torch.empty_strided(layout["shape"], layout["stride"], dtype=dtype, device="meta")
        count = tensor_layout.span(layout["shape"], layout["stride"]) * like.element_size()
        raw = torch.empty(count, dtype=torch.uint8, device=self._device)
        done = 0
        while done < count:
            slot, size = _PIECE.unpack(self._read(connected, _PIECE.size))
            raw[done : done + size].copy_(self._ring.slots[slot, :size])
            with contextlib.suppress(BrokenPipeError):  # it needs no more slots
                connected.sendall(bytes([slot]))
            done += size
        return tensor_layout.carve(raw, 0, like)

    def close(self) -> None:
        for opened in (self._socket, self._listener):
            if opened is not None:
                opened.close()
        self._ring.close()
        os.close(self._file)


def _name(address: str) -> str:
    """A name in the kernel, without a file that could be left behind."""
    return f"\0kernbench-{address}"


def _user_of(connected: socket.socket) -> int:
    size = struct.calcsize("3i")
    _pid, user, _group = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def _layout(tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(tensor.shape), "stride": list(tensor.stride())}


def _read(connected: socket.socket, count: int, is_wanted: Callable[[], bool] = lambda: True) -> bytes:
    data = b""
    while len(data) < count:
        try:
            more = connected.recv(count - len(data))
        except TimeoutError:
            if is_wanted():
                continue
            raise EOFError from None
        except ConnectionResetError:
            raise EOFError from None
        if not more:
            raise EOFError
        data += more
    return data
