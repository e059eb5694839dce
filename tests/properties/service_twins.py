"""Naive twins of the preemptive policies that go by attained service, in continuous time.

Whole GPUs of one type on equal nodes, everything saved. Numbers are fractions, so that ties are ties. At every instant
at which anything could change, each pending job in turn looks at all running ones, with keys that are worked out then.
Two rules beyond those of the policies: keys pass each other at the first tick at which they have, and a preempted job
is in the queue again after the decision in which it was stopped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

Number = Fraction | float
Picks = dict[int, int] | None
"""How many GPUs of which node."""

RUNS, RETURNED, WAITS, DEMOTED = range(4)

TICKS = 2**24
"""Parts of a second at which keys pass each other, so that jobs that end together end at one moment."""

EARLY_S = 0.05 / TICKS
"""A key that passes another so shortly after a tick passes it at that tick: it may be only rounding. Without this rule,
one tick too many, and then keys that are rounded to another step, add up to hundredths of a second in hundreds of
preemptions (`e-las product`, seed 249)."""


def tick(moment: Number) -> Number:
    return moment if moment == math.inf else Fraction(math.ceil(moment * TICKS), TICKS)


class Twin:
    """A job. `since`: what it had when its present run began."""

    def __init__(self, seq: int, submit: int, work: int, size: int, epochs: int = 0) -> None:
        self.seq, self.submit, self.work, self.size, self.epochs = seq, submit, work, size, epochs
        self.run: Number = Fraction(0)
        """Seconds on its GPUs up to the start of the present run."""
        self.done: Number = Fraction(0)
        """Of its work, up to then."""
        self.began: Number | None = None
        self.restart = 0
        """Seconds of the present run without progress."""
        self.picks: dict[int, int] = {}
        self.preemptions = 0
        self.start: Number | None = None
        self.finish: Number | None = None
        self.part, self.time = WAITS, Fraction(submit)
        self.promoted: tuple[Number, Number] = (Fraction(0), Fraction(0))

    def run_at(self, now: Number) -> Number:
        return self.run if self.began is None else self.run + now - self.began

    def service_at(self, now: Number) -> Number:
        return self.run_at(now) * self.size

    def done_at(self, now: Number) -> Number:
        return self.done if self.began is None else self.done + max(now - self.began - self.restart, 0)

    def in_floats(self) -> Twin:
        """The same at moments that are floats, and quicker."""
        found = copy.copy(self)
        found.run, found.done = float(self.run), float(self.done)
        found.began = None if self.began is None else float(self.began)
        return found


class Rule:
    """Who goes before whom. `passes`: when anything about that changes next."""

    def key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        raise NotImplementedError

    def running_key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return self.key(one, now)

    def is_behind(self, running: Twin, pending: Twin, now: Number) -> bool:
        return self.running_key(running, now) > self.key(pending, now)

    def passes(self, world: World, now: Number) -> Iterator[Number]:
        yield from ()

    def look(self, world: World, now: Number) -> bool:
        """Demote and promote; whether anything changed."""
        return False

    def started(self, one: Twin, now: Number) -> None: ...

    def left(self, one: Twin, now: Number) -> None: ...

    def settle(self, world: World, now: Number) -> None: ...


class World:
    """The jobs on equal nodes; `outages` are (node, lost at, back at)."""

    def __init__(
        self,
        jobs: list[Twin],
        nodes: int,
        size: int,
        fit: Callable[[list[int], int, int], Picks],
        rule: Rule,
        outages: tuple[tuple[int, float, float], ...] = (),
        restart: int = 0,
    ) -> None:
        self.jobs, self.nodes, self.size, self.fit, self.rule = jobs, nodes, size, fit, rule
        self.outages = [(node, Fraction(lost), Fraction(back)) for node, lost, back in outages]
        self.restart = restart
        self.finished: list[Twin] = []
        self.pending: list[Twin] = []
        self.running: list[Twin] = []
        self.down: set[int] = set()

    def free(self) -> list[int]:
        used = [sum(one.picks.get(node, 0) for one in self.running) for node in range(self.nodes)]
        return [0 if node in self.down else self.size - used[node] for node in range(self.nodes)]

    def go(self) -> None:
        now: Number = Fraction(-1)
        coming = [one for one in self.jobs if self.fit([self.size] * self.nodes, self.size, one.size) is not None]
        changes = [moment for _, *moments in self.outages for moment in moments]
        for _ in range(5000):
            moments: list[Number] = [one.submit for one in coming if one.submit > now]
            moments += [end_of(one) for one in self.running]
            moments += [moment for moment in changes if moment > now]
            moments += [moment for moment in self.rule.passes(self, now) if moment > now]
            if not moments:
                return
            now = min(moments)
            self._happen(now, [one for one in coming if one.submit == now])
            while self._decide(now) or self.rule.look(self, now):
                pass
        raise AssertionError("no end")

    def _happen(self, now: Number, arrived: list[Twin]) -> None:
        for one in sorted([one for one in self.running if end_of(one) <= now], key=lambda one: one.seq):
            self._leave(one, now)
            one.finish = now
            self.finished.append(one)
        for node, lost, back in self.outages:
            if lost == now:
                self.down.add(node)
                for one in [one for one in self.running if one.picks.get(node)]:
                    self._leave(one, now)
                    self.rule.left(one, now)
                    self.pending.append(one)
            if back == now:
                self.down.discard(node)
        self.pending += arrived
        self.rule.look(self, now)

    def _leave(self, one: Twin, now: Number) -> None:
        one.done, one.run = one.done_at(now), one.run_at(now)
        one.began, one.picks = None, {}
        self.running.remove(one)

    def _decide(self, now: Number) -> bool:
        """One call of the planner: whoever it preempts is pending in the next."""
        fresh: list[Twin] = []
        out: list[Twin] = []
        while self._start_one(now, fresh, out):
            pass
        self.rule.settle(self, now)
        self.pending += out
        return bool(out)

    def _start_one(self, now: Number, fresh: list[Twin], out: list[Twin]) -> bool:
        for one in sorted(self.pending, key=lambda one: self.rule.key(one, now)):
            picks = self.fit(self.free(), self.size, one.size)
            victims: list[Twin] = []
            if picks is None:
                behind = [other for other in self.running if other not in fresh]
                behind = [other for other in behind if self.rule.is_behind(other, one, now)]
                behind.sort(key=lambda other: self.rule.running_key(other, now), reverse=True)
                picks, victims = self._room(one, behind)
            if picks is not None:
                for victim in victims:
                    self._leave(victim, now)
                    self.rule.left(victim, now)
                    victim.preemptions += 1
                out += victims
                self._start(one, picks, now)
                fresh.append(one)
                return True
        return False

    def _room(self, one: Twin, behind: list[Twin]) -> tuple[Picks, list[Twin]]:
        """The fewest from the end, and of these none that can be spared."""
        victims: list[Twin] = []
        picks = None
        before = list(self.running)
        for other in behind:
            self.running.remove(other)
            victims.append(other)
            picks = self.fit(self.free(), self.size, one.size)
            if picks is not None:
                break
        needed = []
        for victim in reversed(victims) if picks is not None else ():
            self.running.append(victim)
            again = self.fit(self.free(), self.size, one.size)
            if again is None:
                self.running.remove(victim)
                needed.append(victim)
            else:
                picks = again
        self.running = before
        return picks, needed[::-1]

    def _start(self, one: Twin, picks: dict[int, int], now: Number) -> None:
        self.pending.remove(one)
        one.began, one.picks = now, picks
        one.restart = 0 if one.start is None else self.restart
        one.start = now if one.start is None else one.start
        self.running.append(one)
        self.rule.started(one, now)


def end_of(one: Twin) -> Number:
    assert one.began is not None
    return one.began + one.restart + one.work - one.done


class Las(Rule):
    """Least attained service. A running job is ahead by what it gets in `lead` seconds, and no longer."""

    def __init__(self, lead: int, *, by_size: bool) -> None:
        self.lead, self.by_size = lead, by_size

    def speed(self, one: Twin) -> int:
        return one.size if self.by_size else 1

    def key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return (one.run_at(now) * self.speed(one), one.seq)

    def running_key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return (self.key(one, now)[0] - self.lead * self.speed(one), one.seq)

    def is_behind(self, running: Twin, pending: Twin, now: Number) -> bool:
        return self.running_key(running, now)[0] >= self.key(pending, now)[0]

    def passes(self, world: World, now: Number) -> Iterator[Number]:
        for pending in world.pending:
            for running in world.running:
                ahead = self.key(pending, now)[0] - self.running_key(running, now)[0]
                yield tick(now + Fraction(ahead) / self.speed(running))


class Queues(Rule):
    """Least attained service in queues; a pending job is promoted when it has waited `promote` times its run."""

    def __init__(self, limits: tuple[int, ...], *, by_size: bool, promote: int) -> None:
        self.limits, self.by_size, self.promote = limits, by_size, promote
        self.levels: dict[int, int] = {}

    def speed(self, one: Twin) -> int:
        return one.size if self.by_size else 1

    def attained(self, one: Twin, now: Number) -> Number:
        return (one.run_at(now) - one.promoted[0]) * self.speed(one)

    def level(self, one: Twin, now: Number) -> int:
        return sum(self.attained(one, now) >= limit for limit in self.limits)

    def key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return (self.level(one, now), one.part, one.time, one.seq)

    def promotion(self, one: Twin) -> Number:
        """When it has waited so often the time it ran, both since the last time."""
        ran = one.run - one.promoted[0]
        return one.submit + one.run + one.promoted[1] + self.promote * ran if self.promote and ran else math.inf

    def passes(self, world: World, now: Number) -> Iterator[Number]:
        for running in world.running:
            for limit in self.limits:
                yield tick(now + Fraction(limit - self.attained(running, now)) / self.speed(running))
        yield from (self.promotion(one) for one in world.pending)

    def look(self, world: World, now: Number) -> bool:
        promoted = [one for one in world.pending if self.promotion(one) <= now]
        for one in world.running:
            if self.levels[one.seq] != self.level(one, now):
                self.levels[one.seq] = self.level(one, now)
                one.part, one.time = DEMOTED, now
        for one in promoted:
            one.promoted = (one.run, now - one.submit - one.run)
            one.part, one.time = WAITS, now
        return bool(promoted)

    def started(self, one: Twin, now: Number) -> None:
        self.levels[one.seq] = self.level(one, now)
        one.part, one.time = RUNS, now

    def left(self, one: Twin, now: Number) -> None:
        one.part, one.time = (WAITS, now) if one.part == DEMOTED else (RETURNED, -now)

    def settle(self, world: World, now: Number) -> None:
        for one in world.running:
            if one.part == DEMOTED:
                one.part, one.time = RUNS, now


class Gittins(Queues):
    """Inside a queue running jobs go first, then those with the highest index, by the services of finished jobs. These
    are counted again when they are a twentieth more."""

    def __init__(self, limits: tuple[int, ...]) -> None:
        super().__init__(limits, by_size=True, promote=0)
        self.finished: list[Twin] = []

    def key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        level = self.level(one, now)
        return (level, one.part != RUNS, -self.index(one, level, now), one.seq)

    def index(self, one: Twin, level: int, now: Number) -> Number:
        attained, counted = self.attained(one, now), 0
        while counted + max(math.ceil(counted / 20), 1) <= len(self.finished):
            counted += max(math.ceil(counted / 20), 1)
        left = [ended.run * ended.size - attained for ended in self.finished[:counted]]
        alive = [rest for rest in left if rest > 0]
        within = self.limits[level] - attained if level < len(self.limits) else math.inf
        ending = sum(rest <= within for rest in alive)
        return Fraction(ending) / sum(min(rest, within) for rest in alive) if ending else 0

    def look(self, world: World, now: Number) -> bool:
        self.finished = world.finished
        return super().look(world, now)


class Elas(Rule):
    """Service and progress. When a key passes another is found by halving, not by algebra, and then goes to the next
    tick (see `EARLY_S`), but not to one that is over."""

    def __init__(self, form: str, lead: float, *, weight: float = 0.5, scale: float = 7200.0) -> None:
        self.form, self.weight, self.scale = form, weight, scale
        self.lead = lead if form == "sum" else lead * scale
        self.step = self.lead / 1_000_000
        """To which keys are rounded, so that jobs preempted at one level are level."""

    def value(self, one: Twin, now: Number) -> float:
        service, done = float(one.service_at(now)), float(one.done_at(now)) / one.work
        if one.epochs:
            done = math.floor(done * one.epochs + 1e-9) / one.epochs
        if self.form == "sum":
            return self.weight * service / (service + self.scale) + (1 - self.weight) * (1 - done)
        return service * (1 - done) / (done if self.form == "remaining" and done else 1)

    def key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return (round(self.value(one, now) / self.step) * self.step, one.seq)

    def running_key(self, one: Twin, now: Number) -> tuple[Number, ...]:
        return ((math.floor((self.value(one, now) - self.lead) / self.step + 0.01) + 0.5) * self.step, one.seq)

    def passes(self, world: World, now: Number) -> Iterator[Number]:
        if self.form == "remaining":
            return  # looked at only when jobs come and go
        keys = [float(self.key(pending, now)[0]) for pending in world.pending]
        for running in world.running:
            goals = [key for key in keys if key >= self.running_key(running, now)[0]]
            at = self._passes(running, min(goals), float(now)) if goals else math.inf
            if at < math.inf:
                yield max(tick(at - EARLY_S), tick(now) + Fraction(1, TICKS))

    def _passes(self, one: Twin, goal: float, now: float) -> float:
        end, one = float(end_of(one)), one.in_floats()
        works = float(one.began or 0) + one.restart
        marks = [works, end]
        if one.epochs:
            begin = works - float(one.done)
            epochs = [begin + one.work * number / one.epochs for number in range(one.epochs + 1)]
            marks = [works, *(mark for mark in epochs if mark > works)]
        low = now
        for mark in [mark for mark in marks if mark > now]:
            top = mark - 1e-6 if one.epochs else self._top(one, low, mark)
            if self._is_beyond(one, goal, top):
                return self._halve(one, goal, low, top)
            low = mark
        return math.inf

    def _is_beyond(self, one: Twin, goal: float, at: float) -> bool:
        return self.value(one, at) - self.lead + self.step * 0.005 >= goal

    def _top(self, one: Twin, low: float, high: float) -> float:
        """Where the key, which first rises and then falls, is highest."""
        for _ in range(80):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if self.value(one, left) < self.value(one, right) else (low, right)
        return low

    def _halve(self, one: Twin, goal: float, low: float, high: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self._is_beyond(one, goal, middle) else (middle, high)
        return high
