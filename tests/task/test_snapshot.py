"""Snapshots: the hashes that name them, and what is kept on disk."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.task import snapshot
from tests import ROOT

SHIPPED = {
    "attention_choice": "d1861bd120d1d887",
    "attention_concat_copy": "44fcf906de122300",
    "bias_residual_add": "243dfe8db6df4773",
    "causal_conv3d_cat_pad": "9bf6b866c4c49dc9",
    "ernie_adaln_residual_gate": "3a5c307ac942c6fb",
    "fuse_scale_shift": "7e04ba664daab89c",
    "fused_add_rms_norm": "1b75ee711ea367c8",
    "gelu_concat": "7dc2bda565ae8289",
    "group_norm_silu": "ad0349eb1a9fd481",
    "ltx2_dual_modulate": "d65437f67e6a0614",
    "ltx2_qknorm_split_rope": "64a030ea546c9e54",
    "ltx2_rms_adaln": "e0bf9fcf963fc0fb",
    "norm_infer": "50bd7c7ccaf08b97",
    "norm_scale_shift": "bde9265a25b5dc62",
    "norm_tanh_mul_add": "177abd4c7f47ead1",
    "qknorm_rope": "8f5e849db2b1f6e8",
    "residual_gate_add": "a424d7ce9000de6a",
    "rms_norm": "bbdd7f7ad0082b36",
    "rotary_embedding": "6eb6b5dd93458f80",
    "silu_and_mul": "54f1251e381fb0a4",
    "softmax_host": "4c03cdc15ab3de90",
    "wan_vae_rmsnorm_silu": "a697a0e8d2cb4635",
}
"""None of these folders has data files. Their ITERATIONS.md, and those of users, name sources by such hashes."""


@pytest.mark.parametrize("name", SHIPPED)
def test_a_folder_without_data_files_keeps_its_hash(name: str, tmp_path: Path) -> None:
    sha = snapshot.sha_of(ROOT / "kernels" / name, tmp_path)
    assert sha.startswith(SHIPPED[name])


def test_a_full_disk_keeps_no_half_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, state = tmp_path / "task", tmp_path / "state"
    folder.mkdir()
    (folder / "solution.py").write_text("x = 1")

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            snapshot.take(folder, state)
    assert list((state / "sources").iterdir()) == []
    assert snapshot.take(folder, state).folder.is_dir()


FILES = {"solution.py": b"x = 1\n", "sub/tile.py": b"y = 2\n"}


def emptied(stored: Path) -> None:
    (stored / "solution.py").write_bytes(b"")


def rewritten(stored: Path) -> None:
    (stored / "sub" / "tile.py").write_bytes(b"y = 3\n")


def incomplete(stored: Path) -> None:
    (stored / "sub" / "tile.py").unlink()


def linked(stored: Path) -> None:
    stored.rename(stored.with_name("elsewhere"))
    stored.symlink_to("elsewhere")


def replaced_by_a_file(stored: Path) -> None:
    shutil.rmtree(stored)
    stored.touch()


@pytest.mark.parametrize("damage", [emptied, rewritten, incomplete, linked, replaced_by_a_file])
def test_a_damaged_snapshot_is_not_whole_and_is_stored_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    stored = snapshot.keep(FILES, tmp_path).folder
    assert snapshot.is_whole(stored)
    damage(stored)
    assert not snapshot.is_whole(stored)
    assert snapshot.keep(FILES, tmp_path).folder == stored
    assert snapshot.is_whole(stored)
    assert snapshot.read(stored) == FILES
    assert len(list(stored.parent.glob(".gone-*"))) == 1


def test_a_stored_source_gets_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    monkeypatch.setattr(snapshot.os, "fsync", lambda handle: synced.add(os.readlink(f"/proc/self/fd/{handle}")))
    before = set(threading.enumerate())
    stored = snapshot.keep(FILES, tmp_path).folder
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert synced >= {str(path) for path in (*stored.rglob("*"), stored, stored.parent)}


def test_what_a_run_adds_to_its_snapshot_is_no_damage_and_no_part_of_it(tmp_path: Path) -> None:
    stored = snapshot.keep(FILES, tmp_path).folder
    time.sleep(0.01)  # a file system's clock has ticks
    (stored / "tuned.json").write_text("[64]")
    assert sorted(snapshot.kept_files(stored)) == sorted(FILES)
    snapshot.keep(FILES, tmp_path)
    assert (stored / "tuned.json").exists()
    os.utime(stored / "tuned.json", (1, 1))  # copied with its age, for example
    assert not snapshot.is_whole(stored)
    snapshot.keep(FILES, tmp_path)
    assert snapshot.is_whole(stored)
    assert not (stored / "tuned.json").exists()
    (stored / "solution.py").write_bytes(b"x = 2\n")
    assert not snapshot.is_whole(stored)
