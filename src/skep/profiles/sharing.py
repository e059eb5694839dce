"""The speed of jobs that share a GPU: a rate model for each share mode of `core/share.py`.

Each model gives, for one tenant among those with compute on a GPU, the part of its speed that is left and the part of
the GPU's time that it gets. These are closed forms: no turn is played. If two jobs were not measured together, they are
assumed to saturate the GPU: `slow = max(1, sum of all uses)`, for the resource with the largest sum. A job whose use is
unknown is assumed to use all of the compute that it requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from skep.core.cluster import WHOLE, Slice
from skep.core.knowledge import GpuUse
from skep.core.model import JobSpec
from skep.core.share import MODES
from skep.profiles.speed import Speed


class Costs(msgspec.Struct, frozen=True):
    """Costs of sharing, if a plan does not state them. Seconds."""

    quantum_s: float = 60.0
    """A turn in mode `slice` (Gandiva's)."""
    switch_s: float = 0.1
    """The cost of a switch from one member to the next, once in every turn."""
    tolerance: float = 0.05
    """A guaranteed job in mode `lend` is slowed down by at most this part."""
    instant_s: float = 0.02
    """Mode `instant`: the time until another job has the GPU; 5 to 35 ms were measured (PipeSwitch)."""
    splice: float = 0.03
    """The overhead of a gang whose workers take turns on its GPUs, relative to the turns themselves (Singularity)."""


class Party(NamedTuple):
    """A job and the terms under which it has a GPU."""

    job: JobSpec
    terms: Slice
    tasks: int = 1
    """The number of tasks of the job on this GPU: the terms are those of all of them."""

    @property
    def asked(self) -> float:
        """The part of a GPU that is its reference."""
        return self.tasks * self.job.shapes[0].roles[self.terms.role].gpu_milli / WHOLE

    def rate_with(self, share: float) -> float:
        """The part of its speed with this part of a GPU. It is never faster than recorded unless its trace says how
        much of a GPU it had then: the record may be of a whole GPU."""
        rate = share / self.asked
        return rate if rate <= 1 or self.is_measured else 1.0

    @property
    def is_measured(self) -> bool:
        return self.job.share is not None and self.job.share.measured_milli > 0


class SharedRate(NamedTuple):
    """What a job gets on a shared GPU."""

    rate: float
    """The part of its speed that is left; above 1 if it gets more than it requested."""
    share: float
    """The part of the GPU that it holds: of its time, or of its compute. Those of all tenants add up to 1 at most."""


class Sharing:
    """The rate models with the known speeds and costs."""

    def __init__(self, speed: Speed | None = None, costs: Costs | None = None) -> None:
        self.speed = speed
        self.costs = costs or Costs()
        self.models: dict[str, Callable[[Party, Sequence[Party], str], SharedRate]] = {
            "alone": self.alone,
            "together": self.together,
            "turns": self.turns,
            "tokens": self.tokens,
            "leftovers": self.leftovers,
            "lanes": self.lanes,
            "part": self.alone,
            "instant": self.instant,
        }

    def part_of(self, me: Party, all_there: Sequence[Party], gpu_type: str = "") -> SharedRate:
        """What one of the tenants with compute on a GPU gets there. They are all in its mode."""
        return self.models[MODES[me.terms.mode].rate](me, all_there, gpu_type)

    def spliced(self, depth: int) -> float:
        """The speed of a gang that has one GPU for this many of its workers (replica splicing): its world size stays,
        so `t_iter · n/k · (1 + splice)` for n workers on k GPUs."""
        return 1 / (depth * (1 + self.costs.splice)) if depth > 1 else 1.0

    # The models ------------------------------------------------------------------------------------------------

    def alone(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """A fixed part, independent of the other tenants."""
        share = me.terms.milli / WHOLE
        return SharedRate(me.rate_with(share), share)

    def together(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        others = [(other, 1.0) for other in all_there if other is not me]
        return SharedRate(self.beside(me, others, gpu_type), 1 / len(all_there))

    def turns(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """In a round every member has one turn of its weight times the quantum; a switch is lost at its beginning."""
        most = (me.terms.limit or me.terms.milli) / WHOLE
        if len(all_there) == 1:
            return SharedRate(me.rate_with(most), most)
        total = sum(party.terms.weight for party in all_there)
        share = me.terms.weight / total
        useful = share - self.costs.switch_s / (self.quantum_s(all_there) * total)
        return SharedRate(me.rate_with(max(min(useful, most), 0.0)), share)

    def quantum_s(self, members: Iterable[Party]) -> float:
        given = [party.terms.quantum_ms for party in members if party.terms.quantum_ms]
        return min(given) / 1000 if given else self.costs.quantum_s

    def tokens(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """Its request, and a part of the rest by max-min fairness, up to its limit, or to what it can use."""
        bounds = [(party.terms.milli / WHOLE, self._most(party)) for party in all_there]
        level = water_level(bounds, 1.0)
        low, high = bounds[all_there.index(me)]
        share = min(max(low, level), high)
        return SharedRate(me.rate_with(share), share)

    def _most(self, party: Party) -> float:
        limit = party.terms.limit / WHOLE
        return limit if party.is_measured else min(limit, max(party.asked, party.terms.milli / WHOLE))

    def leftovers(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """Guaranteed jobs are slowed down within the tolerance, the others get the rest, in equal parts. What no job
        uses is held by the guaranteed ones; without any, by the others."""
        owners = [party for party in all_there if party.terms.milli]
        guests = [party for party in all_there if not party.terms.milli]
        uses = {id(party): max(self.use(party)) for party in all_there}
        wanted = sum(uses.values())
        slow = min(max(wanted, 1.0), 1 + self.costs.tolerance) if guests and owners else max(wanted, 1.0)
        used = sum(uses[id(party)] for party in owners) / slow
        left = max(1 - used, 0.0)
        level = water_level([(0.0, uses[id(party)]) for party in guests], left) if guests else 0.0
        lent = {id(party): min(level, uses[id(party)]) for party in guests}
        if me.terms.milli:
            held = sum(party.terms.milli for party in owners)
            return SharedRate(1 / slow, (1 - sum(lent.values())) * me.terms.milli / held)
        share = lent[id(me)]
        return SharedRate(share / uses[id(me)], share if owners else share / sum(lent.values()))

    def lanes(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """One job of a lane at a time, lanes together: the jobs of its lane take turns with it, each job of another
        lane is present for its part of the time."""
        weights: dict[str, int] = {}
        for party in all_there:
            weights[party.terms.group] = weights.get(party.terms.group, 0) + party.terms.weight
        mine = me.terms.weight / weights[me.terms.group]
        others = [
            (party, party.terms.weight / weights[party.terms.group])
            for party in all_there
            if party.terms.group != me.terms.group
        ]
        return SharedRate(mine * self.beside(me, others, gpu_type), mine / len(weights))

    def instant(self, me: Party, all_there: Sequence[Party], gpu_type: str) -> SharedRate:
        """The tenant with the highest priority (the first of several) runs when it has work; a quantum says how often
        that is. An interrupted tenant loses the time of the switch."""
        left, all_used, mine = 1.0, 0.0, 0.0
        for party in sorted(all_there, key=lambda each: -each.job.priority):
            used = min(max(self.use(party)), left)
            all_used += used
            if party is me:
                mine = used
            every_s = party.terms.quantum_ms / 1000
            left = max(left - used - (self.costs.instant_s / every_s if every_s else 0.0), 0.0)
        return SharedRate(mine / max(self.use(me)), mine / all_used)

    # Interference ------------------------------------------------------------------------------------------------

    def use(self, party: Party) -> GpuUse:
        """For a job whose use is unknown: all of the compute that it requested."""
        return self._known_use(party) or GpuUse(party.asked, 0.0, 0.0)

    def _known_use(self, party: Party) -> GpuUse | None:
        return None if self.speed is None else self.speed.use(party.job.model)

    def beside(self, me: Party, others: Sequence[tuple[Party, float]], gpu_type: str) -> float:
        """The part of a job's speed that is left beside others, each present for a part of the time: by the measured
        pairs, else by saturation if all uses are known, else by the default factor, else by saturation."""
        if not others:
            return 1.0
        pairs = [self._pair(me, other, gpu_type) for other, _ in others]
        is_used = all(self._known_use(party) is not None for party in (me, *(other for other, _ in others)))
        usual = None if self.speed is None else self.speed.usual_beside(me.job.model)
        if None in pairs and (is_used or usual is None):
            return 1 / saturation(self.use(me), [(self.use(other), part) for other, part in others])
        left = 1.0
        for pair, (_, part) in zip(pairs, others, strict=True):
            factor = usual if pair is None else pair
            left *= 1 - part * (1 - (1.0 if factor is None else factor))
        return left

    def _pair(self, me: Party, other: Party, gpu_type: str) -> float | None:
        return None if self.speed is None else self.speed.beside(me.job.model, other.job.model, gpu_type)


def saturation(mine: GpuUse, others: Iterable[tuple[GpuUse, float]]) -> float:
    """How many times longer a job takes if all together need more than there is of some resource."""
    total = list(mine)
    for use, part in others:
        total = [sum_ + part * each for sum_, each in zip(total, use, strict=True)]
    return max(1.0, *total)


def water_level(bounds: Sequence[tuple[float, float]], amount: float) -> float:
    """The level at which `min(max(low, level), high)` of all adds up to this amount; if all reach their upper bound
    before that, the highest of these."""
    edges = sorted({edge for bound in bounds for edge in bound})
    level = edges[0]
    for edge in edges[1:]:
        at_edge = sum(min(max(low, edge), high) for low, high in bounds)
        if at_edge > amount:
            filled = sum(min(max(low, level), high) for low, high in bounds)
            rising = sum(low <= level < high for low, high in bounds)
            return level + max(amount - filled, 0.0) / rising if rising else level
        level = edge
    return level
