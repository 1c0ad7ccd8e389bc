"""group_norm_silu beyond its cases: refusals, other layouts, offsets, launches, torch.compile, and on a GPU CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "group_norm_silu"

TOOLS = """
import torch
import reference
from solution import group_norm_silu

def inputs_of(x, groups, dtype, variant="contiguous", spread=1.0, offset=0.0):
    case = dict(variant=variant, x=x, groups=groups, eps=1e-6, dtype=dtype)
    return reference.make_inputs(case, 0, device, spread, offset)

def error(inputs, result=None):
    result = group_norm_silu(**inputs) if result is None else result
    wanted = torch.empty_like(inputs["x"])
    assert result.shape == wanted.shape and result.dtype == wanted.dtype and result.stride() == wanted.stride()
    return float((result.double() - reference.truth(**inputs)).abs().max())
"""

FORMS = """
for _ in range(2):  # what was worked out for one form is there when another of the same shape comes
    for variant, dtype, groups in (("contiguous", "float32", 4), ("channels_last", "float32", 4),
                                   ("contiguous", "float32", 2), ("contiguous", "bfloat16", 4)):
        assert error(inputs_of("2x8x3x4", groups, dtype, variant)) < (5e-2 if dtype == "bfloat16" else 1e-5)
same = inputs_of("2x8x3x4", 4, "float32")
assert error({**same, "bias": same["weight"]}) < 1e-5
"""

REFUSED = """
def refuses(words, **change):
    inputs = {**inputs_of("2x8x3x4", 4, "float32"), **change}
    try:
        group_norm_silu(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("torch.float64", x=torch.zeros(2, 8, 3, dtype=torch.float64))
refuses("shape [8]", x=torch.zeros(8))
refuses("8 channels cannot be shared by 3 groups", num_groups=3)
refuses("by 0 groups", num_groups=0)
refuses("weight of shape [4]", weight=torch.ones(4))
refuses("bias of shape [8]", bias=torch.ones(16)[::2])
refuses("bias is torch.bfloat16", bias=torch.ones(8, dtype=torch.bfloat16))
"""

LAYOUTS = """
inputs = inputs_of("2x8x6x10", 2, "float32")
whole = inputs["x"]
for x in (whole[:, :, ::2], whole.transpose(2, 3), whole[:1].expand(3, 8, 6, 10), whole.flatten(2)[..., :9], whole[:0]):
    taken = {**inputs, "x": x}
    assert x.numel() == 0 and group_norm_silu(**taken).shape == x.shape or error(taken) < 1e-5, x.stride()
flat = torch.randn(2 * 8 * 64 + 1, device=device)
shifted = {**inputs, "x": flat[1:].view(2, 8, 8, 8)}
assert error(shifted) < 1e-5
"""

OFFSETS = """
for variant in ("contiguous", "channels_last"):
    for shape in SHAPES:
        assert error(inputs_of(shape, 2, "float32", variant, spread=0.1, offset=1e3)) < 5e-3, (variant, shape)
        assert error(inputs_of(shape, 2, "bfloat16", variant, spread=1.0, offset=16.0)) < 0.1, (variant, shape)
outlier = inputs_of(SHAPES[0], 2, "float32", spread=0.1, offset=1e3)
outlier["x"][:, :, 0, 0] = 0.0  # the first value says nothing about the others
assert error(outlier) < 5e-3
"""

COMPILED = """
import op

for variant in ("contiguous", "channels_last"):
    inputs = inputs_of("1x8x4x6", 2, "float32", variant)
    taken = torch.compile(op.group_norm_silu, fullgraph=True, backend="aot_eager")(**inputs)
    assert error(inputs, taken) < 1e-5
    torch.library.opcheck(op.group_norm_silu, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

LAUNCHES = """
import itertools, math, re
from launches import TURNS, Chip, choose

chip, sizes, seen, forms, of_one, odd = Chip(132, 232448), {"float": 4, "__half": 2}, set(), set(), set(), set()
shapes = [(batch, channels, positions) for batch in (1, 3, 9) for channels in (32, 64, 128, 320, 512)
          for positions in (1, 3, 8, 9, 40, 240, 1000, 1050, 2560, 5120, 15042, 20480, 40905, 46080, 122880, 128605,
                            327680, 348160, 1105425, 1114112, 2**21)]
for (kind, size), shape, groups, last in itertools.product(sizes.items(), shapes, (1, 8, 32), (False, True)):
    launch = choose(chip, kind, size, shape, groups, last)
    if launch is None:
        values, width = math.prod(shape[1:]) // groups, 16 // size
        assert last or shape[2] < width or shape[1] > 256 * groups or values < 2 * width
        continue
    name = launch.kernel.split("<")[0]
    layout, numbers = re.fullmatch(r"\\w+<\\w+, Layout<(.*?)>, (.*)>", launch.kernel).groups()
    slice_width, per, within, *further = layout.split(", ")
    mixed = 0 if last or per == "1" else int(per)
    slice_width, (threads, second, third, *fourth) = int(slice_width), map(int, re.findall(r"\\d+", numbers))
    units, team, slots, vectors, share = launch.rest[:5]
    seen.add((name, name == "held" and second > 0, last))
    if further == ["false", "16"]:  # the tensor cores add up, 16 at a time
        assert name == "held" and (not last or (slice_width, per, within, second) == (2, "2", "1", 8) and size == 2)
        of_one |= {threads} if last else set()
    else:
        assert further == ["true"] * (name == "twice" and fourth != [0]) and (last or name != "held")
    if mixed:  # every unit has `vectors` whole ones wherever it begins, and at its ends less than two more
        values = math.prod(shape[1:]) // groups
        ends, begins = values - vectors * mixed, [unit * values % mixed for unit in range(mixed)]
        assert shape[2] % mixed or shape[2] == mixed
        assert all(-begin % mixed <= ends < 2 * mixed for begin in begins)
        odd.add(name)
    else:
        assert units * vectors * 16 == math.prod(shape) * size
    assert team * share >= vectors and share % (slice_width or 1) == 0 and threads % 32 == 0
    if name == "held":
        assert math.ceil(share / threads) <= third + slots and launch.threads == threads
        assert launch.grid == units * team if second else launch.grid in (132, 264) and launch.grid >= units * team
        assert bool(launch.words) == (second == 0) and launch.shared == slots * threads * 16
        if mixed:  # as the device divides
            factor, digits = launch.rest[-1] % 2**32, (shape[2] - 1).bit_length() - 1
            for channel in range(1, shape[1] // groups + 1):
                for value in (channel * shape[2] - 1, channel * shape[2]):
                    assert (value * factor >> 32) >> digits == value // shape[2]
    else:
        steps, ahead = math.ceil((share - threads * sum(fourth)) / (threads * second)), third
        assert launch.grid == 132 >= team and launch.shared >= slots * threads * second * 16 and slots > ahead
        assert name == "twice" or steps + ahead <= slots <= TURNS * steps + ahead
        assert name == "ring" or fourth == [0] or fourth == [8] and last and share > threads * 8
        forms |= {(*fourth, team * units <= 132 and steps <= slots)} if fourth else {threads}
    assert (launch.shared + 2048) * max(1, launch.grid // 132 if launch.words else 1) <= chip.shared
of_held = set(itertools.product(("held",), (False, True), (False, True)))
assert seen == {*of_held, ("ring", False, False), ("twice", False, False), ("twice", False, True)}, seen
assert forms == {384, 512, 576, 640, 672, (0, False), (8, False), (8, True)}, forms  # True: nothing is read again
assert of_one == {128, 256}, of_one
assert odd == {"held", "ring", "twice"}, odd
"""

ON_GPU = """
import itertools

bounds = {"float32": 1e-5, "bfloat16": 4e-2, "float16": 6e-3}
contiguous = [("3x64x4x6x2", 8), ("1x512x2x12x10", 32), ("2x512x5x12x10", 32), ("1x96x7x40", 3), ("1x64x9x48x40", 4),
              ("9x256x12x40", 32), ("1x256x9x48x40", 32), ("1x128x17x96x80", 32), ("2x128x5x256x80", 4),
              ("1x16x1024x1040", 1), ("1x512x9x128x40", 32), ("1x128x17x256x80", 32),
              ("3x24x5x7", 3), ("2x6x41", 6), ("1x512x2x25x21", 32), ("1x512x5x9x43", 32), ("1x128x5x101x81", 32),
              ("1x512x3x46x109", 32), ("1x128x17x89x85", 32), ("1x512x9x139x45", 32), ("1x15x1023x1041", 1)]
last = [("1x512x2x12x10", 32), ("2x512x2x24x20", 32), ("1x256x3x48x40", 32), ("3x128x33x40", 32), ("2x128x5x96x80", 32),
        ("1x512x5x64x64", 32), ("1x128x5x256x80", 8), ("1x128x256x2056", 16), ("1x320x7x40", 32),
        ("1x256x9x128x128", 32), ("1x128x5x256x256", 32), ("3x128x5x96x128", 32), ("1x512x5x32x32", 32),
        ("1x128x17x96x80", 32), ("1x256x9x48x128", 32), ("1x128x9x256x256", 32), ("1x512x2x64x20", 32),
        ("1x512x5119", 32)]
for dtype, variant in itertools.product(bounds, ("contiguous", "channels_last")):
    for shape, groups in contiguous if variant == "contiguous" else last:
        inputs = inputs_of(shape, groups, dtype, variant)
        first = group_norm_silu(**inputs)
        assert error(inputs, first) < bounds[dtype], (dtype, variant, shape)
        assert torch.equal(first, group_norm_silu(**inputs)), (dtype, variant, shape)

for shape in ("1x512x2x12x10", "1x512x5x64x64", "1x512x9x128x40"):  # without and with a workspace
    inputs = inputs_of(shape, 32, "float16")
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for stream in streams:
        with torch.cuda.stream(stream):
            late = torch.empty_like(inputs["x"])
            torch.cuda._sleep(20_000_000)
            late.copy_(inputs["x"])
            results += [group_norm_silu(**{**inputs, "x": late}) for _ in range(3)]
    torch.cuda.synchronize()
    assert all(error(inputs, result) < bounds["float16"] for result in results)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = group_norm_silu(**inputs)
    for _ in range(3):
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert error(inputs, result) < bounds["float16"]

import threading
import solution

def calls(inputs, results):
    ready.wait()
    results += [group_norm_silu(**inputs) for _ in range(20)]

# Threads on one stream, whose calls need workspaces of different length.
several = [inputs_of(shape, 32, "float16") for shape in ("1x512x5x64x64", "1x512x9x128x40", "1x512x5x64x64")]
for inputs in several:
    group_norm_silu(**inputs)
for _ in range(5):
    solution._workspaces.clear()
    ready, results = threading.Barrier(len(several)), [[] for _ in several]
    threads = [threading.Thread(target=calls, args=pair) for pair in zip(several, results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for inputs, taken in zip(several, results):
        assert len(taken) == 20 and all(torch.equal(taken[0], result) for result in taken)
        assert error(inputs, taken[0]) < bounds["float16"]

wild = inputs_of("1x64x30x40", 2, "float16")  # distances between its values are beyond what fp16 can hold
wild["x"].mul_(30000).clamp_(-65504, 65504)
assert error(wild) < bounds["float16"]

for dtype, variant in itertools.product(bounds, ("contiguous", "channels_last")):
    flat = inputs_of("1x64x30x40", 2, dtype, variant)
    flat["x"].fill_(3.0)  # no variance: only the bias is left
    assert error(flat) < bounds[dtype], (dtype, variant)
    for size in (40.0, -100.0):
        steep = inputs_of("1x64x30x40", 2, dtype, variant)  # e^-z of some values is beyond what their product can hold
        steep["weight"].mul_(size)
        result, wanted = group_norm_silu(**steep), reference.truth(**steep)
        assert float(((result - wanted).abs() / (1 + wanted.abs())).max()) < bounds[dtype], (dtype, variant, size)
    lost = inputs_of("1x64x30x40", 2, dtype, variant)
    lost["x"][0, 40, 7, 9] = float("nan")  # what is no number is not hidden, and stays in its group
    assert group_norm_silu(**lost).isnan().all(dim=(2, 3)).tolist() == [[False] * 32 + [True] * 32], (dtype, variant)
for dtype in bounds:  # a vector has values of both groups
    shared = inputs_of("1x6x33x35", 2, dtype)
    shared["x"].view(-1)[3 * 33 * 35] = float("nan")
    assert group_norm_silu(**shared).isnan().float().mean(dim=(2, 3)).tolist() == [[0, 0, 0, 1, 1, 1]], dtype
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_of_x_is_taken() -> None:
    run(FORMS + REFUSED + LAYOUTS)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    run('SHAPES = ("1x8x30x41", "2x6x5x9")\n' + OFFSETS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


def test_every_launch_covers_x_and_fits_the_chip() -> None:
    run(LAUNCHES)


@pytest.mark.gpu
@pytest.mark.timeout(320)
def test_the_cuda_kernels_on_odd_shapes_layouts_streams_threads_and_in_a_graph() -> None:
    shapes = "1x64x30x40", "1x128x256x80", "1x128x1024x256", "1x128x2048x512", "1x64x31x41", "1x16x1023x511"
    run(f"{ON_GPU}{FORMS}{LAYOUTS}SHAPES = {shapes}\n{OFFSETS}", "cuda")
