"""Results on their way from a worker to the judge: bytes, layouts, large ones in pieces, and an end that is noticed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from harness.inputs import tensor_layout
from harness.inputs.reference import BadOutput
from harness.judging import handover
from harness.judging.cases import described, rebuilt

RESULTS: list[Any] = [
    torch.randn(5, 7),
    torch.randn(6, 8)[1:5, 2:7:2],
    (torch.arange(4), None, torch.randn(3).to(torch.bfloat16)),
    torch.randn(3, 4).to(torch.float8_e4m3fn)[:, 1:3],
    torch.sort(torch.randn(4)),
    {"a": torch.empty(0, 4), "b": [torch.tensor(True)]},
    torch.arange(8).expand(3, 8),
    None,
]


@pytest.fixture
def receiver() -> Iterator[handover.Receiver]:
    with contextlib.closing(handover.Receiver("cpu", lambda: True)) as made:
        yield made


def send(address: str, results: list[Any], ends: bool = True) -> threading.Thread:
    def work() -> None:
        sender = handover.Sender(address, "cpu")
        for number, result in enumerate(results):
            form, tensors = described(result)
            sender.send({"number": number, "form": form}, tensors)
        if ends:
            sender.finish()
        sender.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_results_arrive_as_they_were(receiver: handover.Receiver) -> None:
    thread = send(receiver.address, RESULTS)
    for number, (header, tensors) in enumerate(receiver.calls()):
        wanted, got = described(RESULTS[number])[1], described(rebuilt(header["form"], tensors))[1]
        assert header["number"] == number
        assert [value.stride() for value in got] == [value.stride() for value in wanted]
        assert all(tensor_layout.same_bits(one, other) for one, other in zip(got, wanted, strict=True))
    thread.join()
    assert number == len(RESULTS) - 1


def test_a_result_larger_than_the_ring_arrives_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "SLOT", 1 << 12)
    large = torch.randn(9, 5_001)
    with contextlib.closing(handover.Receiver("cpu", lambda: True)) as receiver:
        thread = send(receiver.address, [large, large + 1])
        found = [tensors[0] for _header, tensors in receiver.calls()]
    thread.join()
    assert torch.equal(found[0], large)
    assert torch.equal(found[1], large + 1)


def test_a_worker_that_leaves_is_noticed(receiver: handover.Receiver) -> None:
    thread = send(receiver.address, RESULTS[:1], ends=False)
    with pytest.raises(EOFError):
        list(receiver.calls())
    thread.join()


def test_a_judge_that_is_not_wanted_any_more_stops_waiting() -> None:
    with contextlib.closing(handover.Receiver("cpu", lambda: False)) as receiver, pytest.raises(EOFError):
        list(receiver.calls())


def test_what_is_no_tensor_is_named_where_it_is_judged() -> None:
    form, tensors = described((torch.ones(2), "text"))
    with pytest.raises(BadOutput, match="str"):
        rebuilt(form, tensors)
