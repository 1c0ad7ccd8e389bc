"""Every job ends once, whatever becomes of the slots."""

from __future__ import annotations

import random

from kernbench.fleet.dispatch import MOST_STARTS, MOST_TRIES, Dispatch


def ready(dispatch: Dispatch, room: dict[str, int], now: float = 0.0) -> None:
    for place in dispatch.wanted(room, now):
        dispatch.start(place)
        dispatch.answered(place)


def test_no_more_slots_than_jobs_spread_over_the_nodes() -> None:
    dispatch = Dispatch(["a", "b", "c"])
    assert dispatch.wanted({"x": 8, "y": 8}, 0.0) == [("x", 0), ("y", 0), ("x", 1)]


def test_a_slot_gets_nothing_before_it_has_answered() -> None:
    dispatch = Dispatch(["a"])
    dispatch.start(("x", 0))
    assert dispatch.next_job() is None
    assert dispatch.lost(("x", 0), 0.0) == ("", [])
    assert dispatch.wanted({"x": 1}, 0.5) == []  # it rests
    ready(dispatch, {"x": 1}, 1.5)
    assert dispatch.next_job() == (("x", 0), "a")
    assert not dispatch.is_done
    assert dispatch.finished(("x", 0)) == "a"
    assert dispatch.is_done


def test_a_lost_job_is_tried_twice_again() -> None:
    dispatch = Dispatch(["a", "b"])
    for turn in range(MOST_TRIES):
        ready(dispatch, {"x": 1}, turn * 100.0)
        assert dispatch.next_job() == (("x", 0), "a")
        given_up = dispatch.lost(("x", 0), turn * 100.0)
    assert given_up == ("a", ["x", "x", "x"])
    ready(dispatch, {"x": 1}, 1000.0)
    assert dispatch.next_job() == (("x", 0), "b")


def test_the_other_slots_of_a_node_that_lost_one_have_to_answer_again() -> None:
    dispatch = Dispatch(["a", "b", "c"])
    ready(dispatch, {"x": 2, "y": 1})
    place, _job = dispatch.next_job() or (("", 0), "")
    assert place == ("x", 0)
    dispatch.lost(place, 0.0)
    assert dispatch.doubtful("x") == [("x", 1)]
    assert dispatch.next_job() == (("y", 0), "a")
    assert dispatch.next_job() is None
    dispatch.answered(("x", 1))
    assert dispatch.next_job() == (("x", 1), "b")


def test_a_refused_node_and_a_dead_one_get_no_slot_and_a_stop_begins_nothing() -> None:
    dispatch = Dispatch(["a", "b", "c"])
    ready(dispatch, {"x": 1, "y": 1})
    dispatch.refuse("x", "another version")
    assert dispatch.wanted({"x": 1, "y": 1}, 0.0) == []
    assert dispatch.wanted({"z": 1}, 0.0) == [("z", 0)]
    assert dispatch.is_stuck
    ready(dispatch, {"z": 1})
    assert dispatch.next_job() == (("z", 0), "a")
    dispatch.is_stopped = True
    assert dispatch.next_job() is None
    assert not dispatch.is_done
    dispatch.finished(("z", 0))
    assert dispatch.is_done


def test_every_job_ends_exactly_once_in_any_order() -> None:
    for seed in range(50):
        chance, now, room = random.Random(seed), 0.0, {"x": 2, "y": 1}
        names, ended = [f"job{number}" for number in range(40)], list[str]()
        dispatch = Dispatch(names)
        while not dispatch.is_done:
            now += 50.0
            ready(dispatch, room, now)
            while dispatch.next_job() is not None:
                pass
            for place in [slot.place for slot in dispatch.slots.values() if slot.job and chance.random() < 0.7]:
                if chance.random() < 0.2:
                    ended += filter(None, [dispatch.lost(place, now)[0]])
                    for other in dispatch.doubtful(place[0]):
                        dispatch.answered(other)
                else:
                    ended.append(dispatch.finished(place))
        assert sorted(ended) == sorted(names)


def test_jobs_that_end_their_slots_do_not_condemn_the_node() -> None:
    dispatch = Dispatch(["a", "b", "c"])
    for turn in range(2 * MOST_TRIES):
        ready(dispatch, {"x": 1}, turn * 100.0)
        assert dispatch.next_job() is not None
        dispatch.lost(("x", 0), turn * 100.0)
        assert not dispatch.starts_in_vain(("x", 0))
    for turn in range(100, 100 + MOST_STARTS):
        dispatch.start(("x", 0))
        dispatch.lost(("x", 0), turn * 100.0)
    assert dispatch.starts_in_vain(("x", 0))


def sweep_with(slots: dict[tuple[str, int], tuple[str, str]], ahead: int = 8) -> Dispatch:
    dispatch = Dispatch([], is_sweep=True, ahead=ahead)
    for place, (where, device) in slots.items():
        dispatch.start(place)
        dispatch.answered(place, where, device)
    return dispatch


def test_a_sweep_gets_slots_before_it_has_jobs_and_ends_when_it_is_stopped() -> None:
    dispatch = Dispatch([], is_sweep=True, ahead=3)
    assert dispatch.wanted({"x": 8}, 0.0) == [("x", 0), ("x", 1), ("x", 2)]
    assert not dispatch.is_done
    dispatch.is_stopped = True
    assert dispatch.is_done
    assert dispatch.wanted({"x": 8}, 0.0) == []


def test_a_sweep_runs_on_the_device_that_most_slots_have_and_never_starts_the_others_again() -> None:
    dispatch = sweep_with({("x", 0): ("u0", "A100"), ("x", 1): ("u1", "H200"), ("y", 0): ("u2", "H200")})
    dispatch.start(("z", 0))
    dispatch.add({"a": "", "b": "", "c": ""})
    assert dispatch.drop_others(is_late=False) == []  # one has not answered
    assert dispatch.next_job() is None
    assert [slot.place for slot in dispatch.drop_others(is_late=True)] == [("x", 0)]
    assert dispatch.device == "H200"
    assert [dispatch.next_job() for _ in range(3)] == [(("x", 1), "a"), (("y", 0), "b"), None]
    assert ("x", 0) not in dispatch.wanted({"x": 2, "y": 1, "z": 1}, 1e9)
    dispatch.answered(("z", 0), "u3", "A100")
    assert [slot.place for slot in dispatch.drop_others(is_late=False)] == [("z", 0)]


def test_a_sweep_whose_device_is_gone_has_nowhere_to_go() -> None:
    dispatch = sweep_with({("x", 0): ("u0", "A100"), ("y", 0): ("u1", "H200"), ("y", 1): ("u2", "H200")})
    assert not dispatch.is_out_of_places({"x": 1})  # nothing is chosen yet
    dispatch.drop_others(is_late=False)
    dispatch.wanted({"x": 1}, 0.0)
    assert dispatch.is_out_of_places({"x": 1})
    assert not dispatch.is_out_of_places({"x": 1, "y": 2})
    assert not dispatch.is_out_of_places({"x": 2})  # its other GPU may be one


def test_a_job_with_a_place_waits_for_it_and_goes_elsewhere_only_if_it_is_gone() -> None:
    dispatch = sweep_with({("x", 0): ("u0", "H200"), ("y", 0): ("u1", "H200")})
    dispatch.drop_others(is_late=False)
    dispatch.add({"a": "u1", "b": "u1", "c": ""})
    assert dispatch.next_job() == (("y", 0), "a")
    assert dispatch.next_job() == (("x", 0), "c")
    assert dispatch.finished(("x", 0)) == "c"
    assert dispatch.next_job() is None
    dispatch.lost(("y", 0), 0.0)
    assert dispatch.next_job() == (("x", 0), "a")


def test_a_variant_of_the_next_round_has_all_its_tries_again_and_a_job_put_back_loses_none() -> None:
    dispatch = Dispatch([], is_sweep=True)
    for _round in range(3):
        dispatch.add({"a": ""})
        for _turn in range(MOST_TRIES - 1):
            dispatch.start(("x", 0))
            dispatch.answered(("x", 0), "u", "H200")
            dispatch.drop_others(is_late=False)
            assert dispatch.next_job() == (("x", 0), "a")
            assert dispatch.lost(("x", 0), 0.0) == ("", [])
        dispatch.start(("x", 0))
        dispatch.answered(("x", 0), "u", "H200")
        dispatch.next_job()
        dispatch.put_back(("x", 0))
        assert dispatch.next_job() == (("x", 0), "a")
        dispatch.finished(("x", 0))
        del dispatch.slots["x", 0]
