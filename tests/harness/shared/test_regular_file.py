"""Files are opened only if they are regular and of sane size."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from harness.shared.regular_file import NotRegular, read_bytes, read_text


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("é".encode() * 50)
    assert read_bytes(tmp_path / "a", 100) == "é".encode() * 50
    assert read_text(tmp_path / "a", 100) == "é" * 50
    with pytest.raises(NotRegular, match=r"a is [0-9,]+ bytes; kernbench reads at most [0-9,]+"):
        read_bytes(tmp_path / "a", 99)


@pytest.mark.parametrize("kind", ["a fifo", "a socket", "a device", "a folder"])
def test_what_is_not_a_file_is_a_sentence(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    if kind == "a fifo":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("a")
    with pytest.raises(NotRegular, match=rf"/a is {kind}, not a regular file; move it out of the way$"):
        read_bytes(path, 100)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "a", 100)
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "a", 100)


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotRegular, match=r"1,099,511,627,776 bytes; kernbench reads at most 1,048,576"):
        read_bytes(tmp_path / "a", 1 << 20)
