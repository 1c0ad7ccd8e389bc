"""Which job goes to which slot, and what becomes of both when a node is lost; without any call to Ray.

A slot gets a job only after it has answered. A lost job is given to another slot, twice at most; a slot that is lost
before it was given a job costs no job a try. The jobs of a suite are known from the start. A sweep adds jobs as it goes
on, and only slots of one device get them: its variants are ranked against each other.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_TRIES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before a lost slot is started again; twice as long each time."""
MOST_STARTS = 5
"""So often a slot may be lost without a result; its node stays listed for about 15 s after its death."""

Place = tuple[str, int]
"""A node, and the number of a slot on it."""


@dataclass
class Slot:
    place: Place
    answered: bool = False
    job: str = ""
    where: str = ""
    """The GPU's UUID, or the node of a CPU slot."""
    device: str = ""
    """Its type."""

    @property
    def is_free(self) -> bool:
        return self.answered and not self.job


class Dispatch:
    def __init__(self, jobs: Iterable[str], is_sweep: bool = False, ahead: int = 0) -> None:
        """`ahead`: so many slots are started before there are jobs for them."""
        self._waiting = deque(jobs)
        self._is_sweep, self._ahead = is_sweep, ahead
        self.device = ""
        """The type of all slots of a sweep, once it is chosen."""
        self._places: dict[str, str] = {}
        """Where jobs belong that do not go anywhere."""
        self._lost_on: dict[str, list[str]] = {}
        """The nodes that were lost with a job."""
        self.slots: dict[Place, Slot] = {}
        self.refused: dict[str, str] = {}
        """Nodes that cannot be used, and why."""
        self._failures: Counter[Place] = Counter()
        self._not_before: dict[Place, float] = {}
        self.is_stopped = False

    @property
    def is_done(self) -> bool:
        return not self.running and (self.is_stopped or not (self._waiting or self._is_sweep))

    @property
    def running(self) -> int:
        return sum(bool(slot.job) for slot in self.slots.values())

    @property
    def is_stuck(self) -> bool:
        """No slot has a job, or could take one now."""
        return not any(slot.answered for slot in self.slots.values())

    def add(self, jobs: Mapping[str, str]) -> None:
        """More jobs, each with where it belongs: anywhere if that is empty, or gone."""
        self._waiting.extend(jobs)
        self._places |= jobs
        for job in jobs:
            self._lost_on.pop(job, None)  # a variant takes part in several rounds

    def wanted(self, room: Mapping[str, int], now: float) -> list[Place]:
        """Slots to start, given how many each living node has room for; never more than there are jobs.

        Forgets the slots of nodes that are gone, unless they have a job: its loss is still to be reported."""
        self.slots = {place: slot for place, slot in self.slots.items() if place[0] in room or slot.job}
        places = sorted(((node, index) for node, count in room.items() for index in range(count)), key=lambda at: at[1])
        jobs = (0 if self.is_stopped else len(self._waiting)) + self.running
        missing = max(jobs, 0 if self.is_stopped else self._ahead) - len(self.slots)
        able = [
            place
            for place in places
            if place not in self.slots and place[0] not in self.refused and self._not_before.get(place, 0.0) <= now
        ]
        return able[: max(0, missing)]

    def is_out_of_places(self, room: Mapping[str, int]) -> bool:
        """Whether a sweep has no slot left, and no living node one that could be of its device."""
        places = [(node, index) for node, count in room.items() if node not in self.refused for index in range(count)]
        is_over = all(self._not_before.get(place) == math.inf for place in places)
        return bool(self.device) and not self.slots and is_over

    def start(self, place: Place) -> None:
        self.slots[place] = Slot(place)

    def answered(self, place: Place, where: str = "", device: str = "") -> None:
        slot = self.slots[place]
        slot.answered, slot.where, slot.device = True, where, device

    def drop_others(self, is_late: bool) -> list[Slot]:
        """Chooses the device of a sweep, once all slots have answered or it is late: the one that most slots have, the
        first of equals. From then on drops the slots of other devices, for good, and returns them."""
        known = [slot for slot in self.slots.values() if slot.answered]
        if not self._is_sweep or not known:
            return []
        if not self.device and (is_late or len(known) == len(self.slots)):
            self.device = Counter(slot.device for slot in known).most_common(1)[0][0]
        others = [slot for slot in known if self.device and slot.device != self.device]
        for slot in others:
            self._not_before[slot.place] = math.inf
            del self.slots[slot.place]
        return others

    def next_job(self) -> tuple[Place, str] | None:
        """A job for a free slot, which counts as given."""
        if self.is_stopped or (self._is_sweep and not self.device):
            return None
        for job in self._waiting:
            if (slot := self._free_for(job)) is not None:
                self._waiting.remove(job)
                slot.job = job
                return slot.place, job
        return None

    def _free_for(self, job: str) -> Slot | None:
        where = self._places.get(job)
        own = [slot for slot in self.slots.values() if where and slot.where == where]
        return next((slot for slot in own or self.slots.values() if slot.is_free), None)

    def finished(self, place: Place) -> str:
        """The slot has finished its job; returns its name."""
        slot = self.slots[place]
        job, slot.job = slot.job, ""
        self._failures[place] = 0
        return job

    def put_back(self, place: Place) -> None:
        """The slot cannot do its job, but another one may."""
        slot = self.slots[place]
        self._waiting.appendleft(slot.job)
        slot.job = ""

    def lost(self, place: Place, now: float) -> tuple[str, list[str]]:
        """The slot is gone: returns its job and the nodes lost with it if that was the last try, else nothing.

        The other slots of the node have to answer again before they get a job: it may be gone altogether."""
        slot = self.slots.pop(place)
        pause = min(FIRST_PAUSE_S * 2 ** self._failures[place], LONGEST_PAUSE_S)
        self._not_before[place] = now + pause
        if not slot.job:
            self._failures[place] += 1
            return "", []
        tried = self._lost_on.setdefault(slot.job, [])
        tried.append(place[0])
        if len(tried) >= MOST_TRIES:
            return slot.job, tried
        self._waiting.appendleft(slot.job)
        return "", []

    def starts_in_vain(self, place: Place) -> bool:
        return self._failures[place] >= MOST_STARTS

    def doubtful(self, node: str) -> list[Place]:
        """The free slots of a node that has lost one; they count as not having answered."""
        found = [slot for slot in self.slots.values() if slot.place[0] == node and slot.is_free]
        for slot in found:
            slot.answered = False
        return [slot.place for slot in found]

    def refuse(self, node: str, why: str) -> None:
        """Never use a node again; its slots have no jobs yet, because their first answer was bad."""
        self.refused[node] = why
        self.slots = {place: slot for place, slot in self.slots.items() if place[0] != node or slot.job}
