"""What a model's output comes to beyond one step: drift, images, exactness by task."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.shared.codes import PLAIN_PAIR
from harness.shared.model_step import StepRequest, StepResult
from harness.transfer import step_images
from harness.transfer.loaded_model import LoadedModel
from harness.transfer.sites import ModelProblem
from harness.transfer.step_run import StepRun
from tests.transfer import toy

WRONG = "def scale(x, factor):\n    return x * 2.001\n"


@pytest.fixture(autouse=True)
def quiet_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def stepped(root: Path, solution: str = "", program: str = toy.PROGRAM + toy.GOING_ON, steps: int = 0) -> StepResult:
    folder = toy.write(root, toy.MODEL.replace("size = 128", "size = 16"), program=program)
    if solution:
        (root / "scale" / "solution.py").write_text(solution)
    model = toy.loaded(folder)
    request = StepRequest("run", model, (toy.patch(folder),), PLAIN_PAIR, 18, steps=steps, images=str(root / "out"))
    return StepRun(LoadedModel(model, "cpu", 0), request, None, lambda text: None).go()


def test_every_step_goes_on_from_the_output_of_the_one_before(tmp_path: Path) -> None:
    assert [gap.relative_l2 for gap in stepped(tmp_path / "right", steps=3).drift] == [0.0, 0.0, 0.0]
    result = stepped(tmp_path / "wrong", WRONG, steps=5)
    apart = [gap.relative_l2 or 0.0 for gap in result.drift]
    assert apart[0] == result.gaps[0].relative_l2
    assert apart == sorted(apart)
    assert apart[4] > 1.05 * apart[0]
    first, last = result.drift[0], result.drift[4]
    assert first.wide_l2 == result.gaps[0].wide_l2
    assert last.wide_l2 is not None
    assert last.original_wide_l2 is not None
    assert last.wide_l2 > 100 * last.original_wide_l2  # which of the two is wrong


def test_without_advance_there_is_no_drift(tmp_path: Path) -> None:
    with pytest.raises(ModelProblem, match=r"--steps: program.py has no advance\(inputs, output\)"):
        stepped(tmp_path, program=toy.PROGRAM, steps=2)


def test_each_task_says_whether_it_alone_is_exact(tmp_path: Path) -> None:
    assert [share.exact for share in stepped(tmp_path / "right").shares] == [True]
    assert [share.exact for share in stepped(tmp_path / "wrong", WRONG).shares] == [False]


def test_a_decoder_leaves_three_images(tmp_path: Path) -> None:
    result = stepped(tmp_path, WRONG)
    assert [Path(path).name for path in result.images] == ["toy-original.png", "toy-ours.png", "toy-difference.png"]
    original, ours, difference = (pixels(Path(path)) for path in result.images)
    assert len(original) == len(ours) == 8 * 8 * 3
    assert set(difference[3 * 8 :]) == {0}  # only the first line goes through the kernel
    assert stepped(tmp_path / "without", program=toy.PROGRAM).images == ()


def test_the_difference_is_brighter_and_a_large_image_is_cut_to_its_middle(tmp_path: Path) -> None:
    one = torch.zeros(3, 600, 4)
    one[:, 44] = 1.0  # the first line of the middle 512
    other = one + 2 / 255
    paths = step_images.write(str(tmp_path / "new"), "m", one, other)
    original, _, difference = (pixels(Path(path)) for path in paths)
    assert len(original) == 512 * 4 * 3
    assert original[:12] == [255] * 12
    assert original[12:24] == [0] * 12
    assert set(difference) == {16}
    with pytest.raises(ValueError, match=r"image\(\) of m returns \(600, 4\); it must be 3 x height x width"):
        step_images.write(str(tmp_path), "m", one[0], other[0])


def pixels(path: Path) -> list[int]:
    """Read as the PNG standard says, with every checksum."""
    data, found = path.read_bytes(), {}
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place = 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size : place + 12 + size]) == (zlib.crc32(kind + body),)
        found[kind] = body
        place += 12 + size
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colors, *rest = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert (depth, colors, rest) == (8, 2, [0, 0, 0])
    lines = zlib.decompress(found[b"IDAT"])
    assert len(lines) == height * (1 + 3 * width)
    assert {lines[line * (1 + 3 * width)] for line in range(height)} == {0}
    return [
        value for line in range(height) for value in lines[line * (1 + 3 * width) + 1 : (line + 1) * (1 + 3 * width)]
    ]
