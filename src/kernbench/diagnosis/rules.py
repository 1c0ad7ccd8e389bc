"""Diagnoses a profile: one sentence that names the bound, the numbers that prove it, and what to try next. Pure.

Every rule checks one thing and returns a Clue with a weight between 0 and 1, or None. The heaviest clue is the
diagnosis. If an unrelated clue is nearly as heavy, the diagnosis calls the evidence mixed and names both. A rule whose
numbers are missing returns None: nothing is guessed. If arithmetic bounds the call (`bound` of its profile), moving
fewer bytes cannot help, so the rules about memory traffic are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from harness.shared import format as fmt
from kernbench.diagnosis.counters import Kernel, Profile
from kernbench.diagnosis.metrics import STALL_WORDS
from kernbench.diagnosis.techniques import Technique, pick

Bound = Literal[
    "registers",
    "occupancy",
    "instructions",
    "launch",
    "latency",
    "bandwidth",
    "shared memory",
    "spills",
    "synchronisation",
    "fusion",
    "at the limit",
    "unknown",
]
CEILING = 82.0
"""Percent of DRAM's peak that a plain copy reaches: 85 to 89 on an H200."""
NEARLY = 0.85
"""A second clue this close to the first makes the evidence mixed."""
RELATED: tuple[frozenset[str], ...] = (
    frozenset({"occupancy", "latency"}),
    frozenset({"registers", "latency"}),
    frozenset({"launch", "latency"}),
    frozenset({"launch", "instructions"}),
    frozenset({"spills", "bandwidth"}),
    frozenset({"spills", "latency"}),
    frozenset({"bandwidth", "latency"}),
    frozenset({"fusion", "bandwidth"}),
    frozenset({"fusion", "at the limit"}),
    frozenset({"shared memory", "latency"}),
    frozenset({"at the limit", "latency"}),
)
"""Pairs in which one causes the other: not a contradiction."""


@dataclass(frozen=True)
class Clue:
    bound: Bound
    weight: float
    sentence: str
    evidence: tuple[str, ...]
    tries: tuple[Technique, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    bound: Bound
    sentence: str
    evidence: tuple[str, ...] = ()
    """Two or three numbers that prove it."""
    tries: tuple[Technique, ...] = ()
    """At most three, the most promising first."""
    mixed: bool = False
    kernel: str = ""
    """The kernel it describes: the longest one."""
    share: float | None = None
    """This kernel's share of the call's time, if there are several."""


def diagnose(profile: Profile) -> Diagnosis:
    kernel = profile.main
    if kernel is None:
        return _without_counters(profile)
    clues = sorted(_clues(kernel, profile), key=lambda clue: -clue.weight)
    share = profile.share if len(profile.kernels) > 1 else None
    if not clues:
        known = _known(("DRAM", kernel.dram_pct), ("SM", kernel.sm_pct), ("issue slots", kernel.issue_pct))
        text = (
            "no clear limit: no unit is busy and no single stall dominates"
            if known
            else "not enough counters for a diagnosis"
        )
        return Diagnosis("unknown", text, known, pick("more in flight", "more rows"), True, kernel.name, share)
    first = clues[0]
    rival = next((clue for clue in clues[1:] if _contradicts(first, clue)), None)
    if rival is None:
        return Diagnosis(first.bound, first.sentence, first.evidence[:3], first.tries, False, kernel.name, share)
    return Diagnosis(
        first.bound,
        f"the evidence is mixed: {first.sentence}; also {rival.sentence}",
        (*first.evidence[:2], *rival.evidence[:1]),
        (*first.tries[:2], *rival.tries[:1]),
        True,
        kernel.name,
        share,
    )


def _contradicts(first: Clue, other: Clue) -> bool:
    pair = frozenset({first.bound, other.bound})
    return other.weight >= NEARLY * first.weight and len(pair) == 2 and pair not in RELATED


def _clues(kernel: Kernel, profile: Profile) -> Iterable[Clue]:
    for rule in RULES_OF_COMPUTE if profile.bound == "compute" else RULES:
        clue = rule(kernel, profile)
        if clue is not None:
            yield clue


def too_small(kernel: Kernel, profile: Profile) -> Clue | None:
    if kernel.duration_us is None or kernel.duration_us >= 5.0 or kernel.waves is None or kernel.waves >= 1.0:
        return None
    text = "too little work to fill the GPU: most of the time goes to launch and start-up"
    facts = [f"{fmt.microseconds(kernel.duration_us)} us", _blocks(kernel)]
    return Clue("launch", 1.0, text, tuple(facts), pick("fusion", "graph", "split"))


def few_blocks(kernel: Kernel, profile: Profile) -> Clue | None:
    if not kernel.grid or not kernel.sms or kernel.grid >= kernel.sms:
        return None
    idle = 1.0 - kernel.grid / kernel.sms
    text = f"too few blocks: {fmt.percent(idle)} of the SMs have nothing to do"
    facts = (_blocks(kernel), *_known(("DRAM", kernel.dram_pct), ("SM", kernel.sm_pct)))
    return Clue("launch", 0.4 + 0.6 * idle, text, facts, pick("split", "smaller blocks", "fewer rows"))


def last_wave(kernel: Kernel, profile: Profile) -> Clue | None:
    if kernel.waves is None or not 1.0 < kernel.waves < 8.0:
        return None
    waste = 1.0 - kernel.waves / math.ceil(kernel.waves)
    if waste < 0.2:
        return None
    text = f"the last wave is only partly full: {fmt.percent(waste)} of the launch's block slots go unused"
    facts = (f"{fmt.fixed(kernel.waves, 2)} waves", _blocks(kernel))
    return Clue("launch", 0.5 + waste, text, facts, pick("persistent", "smaller blocks", "balance"))


def spills(kernel: Kernel, profile: Profile) -> Clue | None:
    spilled, plain = kernel.spilled, (kernel.global_loads or 0.0) + (kernel.global_stores or 0.0)
    if not spilled:
        return None
    share = spilled / (spilled + plain)
    if share < 0.05:
        return None
    text = "local memory: values are spilled from registers, or an array is indexed at run time"
    facts = [f"{fmt.percent(share)} of the memory instructions access local memory"]
    facts += [f"{fmt.whole(kernel.registers)} registers per thread"] if kernel.registers is not None else []
    surplus = _surplus(profile)
    facts += [f"{fmt.factor(surplus)} the bytes needed"] if surplus is not None else []
    weight = min(1.0, 0.4 + share)
    return Clue("spills", weight, text, tuple(facts), pick("launch bounds", "shorter lives", "smaller tile"))


def scattered(kernel: Kernel, profile: Profile) -> Clue | None:
    """Loads or stores that use only part of each 32-byte sector."""
    loads, stores = kernel.global_loads or 0.0, kernel.global_stores or 0.0
    sides = [("loads", kernel.load_bytes_per_sector, loads), ("stores", kernel.store_bytes_per_sector, stores)]
    known = [(used, name) for name, used, count in sides if used and count > 0.05 * (loads + stores)]
    if not known or kernel.memory_pct is None:
        return None
    used, name = min(known)
    busy = max(kernel.memory_pct, kernel.l2_pct or 0.0)
    if used >= 24.0 or busy < 40.0:
        return None
    text = f"uncoalesced {name}: a warp's lanes are spread out, so part of every sector is wasted"
    facts = (
        f"{fmt.whole(used)} of 32 bytes used",
        f"L2 {fmt.percent(kernel.l2_pct or 0, of=100)}",
        f"DRAM {fmt.percent(kernel.dram_pct or 0, of=100)}",
    )
    weight = (1.0 - used / 60.0) * min(1.0, busy / 80.0)
    return Clue("bandwidth", weight, text, facts, pick("transpose", "through shared", "vector loads"))


def bandwidth(kernel: Kernel, profile: Profile) -> Clue | None:
    if kernel.dram_pct is None or kernel.dram_pct < 60.0 or scattered(kernel, profile) is not None:
        return None
    facts = [f"DRAM {fmt.percent(kernel.dram_pct, of=100)} of its peak"]
    facts += [fmt.terabytes(kernel.bandwidth)] if kernel.bandwidth else []
    surplus = _surplus(profile)
    if surplus is not None and len(profile.kernels) == 1:
        text = f"memory bandwidth, spent on too many bytes: {fmt.factor(surplus)} what the call must move"
        facts.append(f"{fmt.factor(surplus)} the bytes needed")
        return Clue("bandwidth", 0.97, text, tuple(facts), pick("one pass", "cache hints", "narrower"))
    if kernel.dram_pct < CEILING:
        text = "memory bandwidth, but below what a plain copy reaches: not enough loads in flight"
        facts += _stall_facts(kernel)
        keys = ("more in flight", "tma", "persistent") if _wide(kernel) else ("vector loads", "more in flight", "tma")
        return Clue("bandwidth", kernel.dram_pct / 100, text, tuple(facts), pick(*keys))
    text = "at the limit: data moves as fast as in a plain copy; nothing left to gain in this kernel"
    facts += ["no extra bytes"] if profile.needed_bytes is not None and len(profile.kernels) == 1 else []
    return Clue("at the limit", 0.96, text, tuple(facts), pick("fusion", "narrower"))


def several_kernels(kernel: Kernel, profile: Profile) -> Clue | None:
    surplus = _surplus(profile)
    if len(profile.kernels) < 2 or surplus is None:
        return None
    text = f"{len(profile.kernels)} kernels pass their results through memory: {fmt.factor(surplus)} the bytes needed"
    facts = [f"{len(profile.kernels)} kernels", f"{fmt.factor(surplus)} the bytes needed"]
    facts += [f"DRAM {fmt.percent(kernel.dram_pct, of=100)} of its peak"] if kernel.dram_pct is not None else []
    return Clue("fusion", min(1.0, 0.8 + 0.1 * surplus), text, tuple(facts), pick("fusion", "one pass", "graph"))


def arithmetic(kernel: Kernel, profile: Profile) -> Clue | None:
    if kernel.sm_pct is None or kernel.sm_pct < 65.0:
        return None
    pipes = {
        "integer and logic": kernel.alu_pct,
        "multiply-add": kernel.fma_pct,
        "double-precision": kernel.fp64_pct,
        "special-function": kernel.xu_pct,
        "tensor": kernel.tensor_pct,
    }
    busy, pipe = max((value or 0.0, name) for name, value in pipes.items())
    facts = [f"SM {fmt.percent(kernel.sm_pct, of=100)} busy", f"{pipe} pipe {fmt.percent(busy, of=100)}"]
    facts += [f"issue slots {fmt.percent(kernel.issue_pct, of=100)}"] if kernel.issue_pct is not None else []
    if pipe == "tensor" and busy >= CEILING:
        text = "at the limit: the tensor cores are busy nearly all the time"
        return Clue("at the limit", 0.96, text, tuple(facts), pick("lower precision"))
    if (kernel.issue_pct or 0.0) >= 80.0 and (kernel.issue_pct or 0.0) >= busy:
        text = "instruction count: the schedulers issue nearly every cycle, so only fewer instructions help"
        keys = ("fewer instructions", "packed", "fast math")
    else:
        text = f"arithmetic: the warps wait for the {pipe} pipe"
        keys = ("fast math", "packed", "tensor cores")
    return Clue("instructions", kernel.sm_pct / 100, text, tuple(facts), pick(*keys))


def idle_pipes(kernel: Kernel, profile: Profile) -> Clue | None:
    """Of a call that arithmetic bounds. Weighs little: whatever else is found explains it."""
    pipes = {"tensor": kernel.tensor_pct, "multiply-add": kernel.fma_pct, "double-precision": kernel.fp64_pct}
    known = [(value, name) for name, value in pipes.items() if value is not None]
    busy, pipe = max(known, default=(100.0, ""))
    if busy >= 65.0:
        return None
    text = "arithmetic bounds this call, but its pipes are often idle: the operands reach them too slowly"
    facts = (f"{pipe} pipe {fmt.percent(busy, of=100)}", *_known(("SM", kernel.sm_pct)), *_stall_facts(kernel))
    first = "tensor cores" if (kernel.tensor_pct or 0.0) < 1.0 else "tma"
    return Clue("instructions", 0.3, text, facts, pick(first, "pipeline", "larger tile"))


def bank_conflicts(kernel: Kernel, profile: Profile) -> Clue | None:
    if not kernel.shared_turns or kernel.shared_conflicts is None or kernel.l1_pct is None:
        return None
    share = kernel.shared_conflicts / kernel.shared_turns
    if share < 0.3 or kernel.l1_pct < 40.0:
        return None
    text = "shared-memory bank conflicts: lanes of a warp wait for one another in the same bank"
    facts = (
        f"{fmt.percent(share)} of the shared-memory wavefronts are bank conflicts",
        f"L1 {fmt.percent(kernel.l1_pct, of=100)} busy",
    )
    return Clue("shared memory", min(1.0, share * kernel.l1_pct / 95), text, facts, pick("swizzle", "shuffles", "tma"))


def low_occupancy(kernel: Kernel, profile: Profile) -> Clue | None:
    if kernel.possible_pct is None or kernel.possible_pct > 50.0 or not kernel.limits:
        return None
    if max(kernel.dram_pct or 0.0, kernel.sm_pct or 0.0, kernel.issue_pct or 0.0) >= 60.0:
        return None  # few warps, but they keep something busy
    limit = kernel.limits[0]
    possible = fmt.percent(kernel.possible_pct, of=100)
    verb = "limits" if limit == "shared memory" else "limit"
    text = f"occupancy: {limit} {verb} it to {possible} of the warps, too few to hide the latency"
    facts = [f"max occupancy {possible}"]
    facts += [f"{fmt.percent(kernel.occupancy_pct, of=100)} achieved"] if kernel.occupancy_pct is not None else []
    weight = 0.95 - 0.5 * kernel.possible_pct / 100
    if limit == "registers":
        facts.insert(1, f"{fmt.whole(kernel.registers or 0)} registers per thread")
        return Clue("registers", weight, text, tuple(facts), pick("register budget", "shorter lives", "smaller tile"))
    facts.insert(1, f"{fmt.whole((kernel.shared_bytes or 0) / 1024)} KB shared memory per block")
    return Clue("occupancy", weight, text, tuple(facts), pick("smaller tile", "smaller blocks", "pipeline"))


def barriers(kernel: Kernel, profile: Profile) -> Clue | None:
    share = kernel.stalls.get("barrier", 0.0) + kernel.stalls.get("membar", 0.0)
    if share < 0.35:
        return None
    text = "synchronization: warps wait at barriers for the slowest one in their block"
    facts = (f"{fmt.percent(share)} of the waiting is at barriers", *_known(("issue slots", kernel.issue_pct)))
    return Clue("synchronisation", 0.95 * share, text, facts, pick("shuffles", "fewer barriers", "more rows"))


def latency(kernel: Kernel, profile: Profile) -> Clue | None:
    share = kernel.stalls.get("long_scoreboard", 0.0)
    busy = max(kernel.memory_pct or 0.0, kernel.dram_pct or 0.0, kernel.sm_pct or 0.0)
    if share < 0.3 or busy >= 75.0 or kernel.dram_pct is None:
        return None
    text = "memory latency: warps wait for loads, and neither memory nor arithmetic is near its limit"
    facts = [*_stall_facts(kernel), f"DRAM {fmt.percent(kernel.dram_pct, of=100)}"]
    facts += (
        [f"{fmt.fixed(kernel.eligible_warps, 1)} warps ready per cycle"] if kernel.eligible_warps is not None else []
    )
    short = kernel.possible_pct is not None and kernel.possible_pct < 100.0 and kernel.limits[:1] == ["registers"]
    keys = (
        "more in flight",
        "pipeline" if _wide(kernel) else "vector loads",
        "register budget" if short else "more rows",
    )
    return Clue("latency", share * min(1.0, 1.3 - busy / 100), text, tuple(facts), pick(*keys))


RULES: tuple[Callable[[Kernel, Profile], Clue | None], ...] = (
    too_small,
    few_blocks,
    last_wave,
    spills,
    scattered,
    bandwidth,
    several_kernels,
    arithmetic,
    bank_conflicts,
    low_occupancy,
    barriers,
    latency,
)
MEMORY_TRAFFIC = (scattered, bandwidth, several_kernels)
RULES_OF_COMPUTE = (*(rule for rule in RULES if rule not in MEMORY_TRAFFIC), idle_pipes)


def _surplus(profile: Profile) -> float | None:
    """Bytes moved over bytes needed; None if unknown or negligible."""
    moved = [kernel.bytes_moved for kernel in profile.kernels]
    if not profile.needed_bytes or None in moved or profile.bound == "compute":
        return None
    times = sum(value for value in moved if value is not None) / profile.needed_bytes
    return times if times >= 1.3 else None


def _without_counters(profile: Profile) -> Diagnosis:
    """A diagnosis from the compiler's facts alone."""
    spilled = next((fact for fact in profile.facts if fact.spills), None)
    if spilled is not None:
        text = "too few registers: the compiler spills values to local memory"
        facts = (fmt.plural(spilled.spills or 0, "spill"), f"{spilled.registers} registers per thread")
        return Diagnosis(
            "spills", text, facts, pick("launch bounds", "shorter lives", "smaller tile"), False, spilled.name
        )
    low = next((fact for fact in profile.facts if fact.occupancy_pct is not None and fact.occupancy_pct <= 25), None)
    if low is not None:
        possible = fmt.percent(low.occupancy_pct, of=100)
        text = f"occupancy is limited to {possible} by {low.limit}; only counters can tell whether that hurts"
        return Diagnosis("occupancy", text, (f"{low.registers} registers per thread",), (), False, low.name)
    return Diagnosis("unknown", "no diagnosis: only counters show what this call waits for")


def _wide(kernel: Kernel) -> bool:
    """Whether the loads already have the maximum width."""
    return (kernel.load_bytes_per_lane or 0.0) >= 12.0


def _stall_facts(kernel: Kernel) -> list[str]:
    return [f"{fmt.percent(share)} {STALL_WORDS.get(name, name)}" for name, share in kernel.top_stalls[:1]]


def _blocks(kernel: Kernel) -> str:
    return f"{fmt.plural(round(kernel.grid or 0), 'block')} on {fmt.plural(round(kernel.sms or 0), 'SM')}"


def _known(*pairs: tuple[str, float | None]) -> tuple[str, ...]:
    return tuple(f"{name} {fmt.percent(value, of=100)}" for name, value in pairs if value is not None)
