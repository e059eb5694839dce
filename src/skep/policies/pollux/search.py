"""The genetic search of Pollux: a population of divisions of the GPUs, each a table of tasks by job and node.

Every generation pairs good divisions (one part of the jobs from each), changes some rows at random, repairs what
cannot be and keeps the best of parents and children: the best division found is never worse than the present one. All
chance comes from the seed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Divisions = Ints
"""Tasks by division, job and node."""

NOTHING = 1e-3
"""Added to every speed-up: a job without GPUs counts little in a mean with a negative power, but not as infinitely
bad."""
SUM_KEPT = 0.9
"""The part of a changed job's speed-up that counts in a sum, as in AdaptDL."""
PATIENCE = 20
"""Generations without a better division after which the search ends."""


class DivisionLimits:
    """What every division must keep to."""

    def __init__(
        self,
        room: Ints,
        kinds: Ints,
        spread: npt.NDArray[np.bool_],
        task_gpus: Ints,
        least: Ints,
        most: Ints,
        allowed: npt.NDArray[np.bool_],
    ) -> None:
        self.room, self.kinds, self.spread = room, kinds, spread
        self.task_gpus, self.least, self.most = task_gpus, least, most
        self.allowed = allowed
        """By job and node."""
        self.largest = np.minimum(np.where(allowed, room[None, :] // task_gpus[:, None], 0), most[:, None])
        """Tasks of each job that a node can take."""

    def repair(self, tasks: Divisions, order: Ints) -> Divisions:
        """The nearest divisions that can be: one GPU type for each job, at most so many tasks of it, one job of several
        nodes on a node, no more than a node has. Jobs that come first in the order keep what they have."""
        tasks = np.minimum(tasks, self.largest)
        if len(set(self.kinds)) > 1:
            first = self.kinds[(tasks > 0).argmax(axis=2)]
            tasks = np.where(self.kinds == first[..., None], tasks, 0)
        tasks = clipped(tasks, self.most[None, :, None], axis=2)
        tasks = tasks[:, order]
        is_spread = ((tasks > 0).sum(axis=2) > 1)[..., None] & (tasks > 0)
        tasks = np.where(is_spread & (is_spread.cumsum(axis=1) + self.spread > 1), 0, tasks)
        width = self.task_gpus[order][None, :, None]
        tasks = clipped(tasks * width, self.room[None, None, :], axis=1) // width
        tasks = np.where(tasks.sum(axis=2, keepdims=True) >= self.least[order][None, :, None], tasks, 0)
        repaired = np.empty_like(tasks)
        repaired[:, order] = tasks
        return repaired


def clipped(values: Ints, most: Ints, axis: int) -> Ints:
    """The same with sums of at most so much: the last ones lose."""
    sums = np.minimum(values.cumsum(axis=axis), most)
    return np.asarray(np.diff(sums, axis=axis, prepend=0))


class DivisionScores:
    """How good a division is."""

    def __init__(self, speedups: Floats, now: Ints, kept: Floats, scale: float, power: float) -> None:
        self.speedups = speedups
        """By job, whether it is on several nodes, and tasks."""
        self.now, self.scale, self.power = now, scale, power
        self.kept = kept if power else np.where(kept < 1, SUM_KEPT, 1.0)
        self.rows = np.arange(len(now))[None, :]

    def of(self, tasks: Divisions) -> Floats:
        is_spread = ((tasks > 0).sum(axis=2) > 1).astype(np.int64)
        found = self.speedups[self.rows, is_spread, tasks.sum(axis=2)] * self.scale
        found = np.where((tasks == self.now).all(axis=2), found, found * self.kept)
        if not self.power:
            return np.asarray(found.sum(axis=1))
        return np.asarray(((found + NOTHING) ** self.power).mean(axis=1) ** (1 / self.power))


class GoodputSearch:
    def __init__(self, limits: DivisionLimits, scores: DivisionScores, seed: int, population: int) -> None:
        self.limits, self.scores, self.population = limits, scores, population
        self.chance = np.random.default_rng(seed)

    def best(self, start: Ints, generations: int) -> tuple[Ints, float]:
        """The best division found, and its score."""
        kept = start[None]
        scores = self.scores.of(kept)
        since = 0
        for _ in range(generations):
            before = scores[0]
            children = self._repaired(self._changed(self._paired(kept)))
            kept, scores = self._chosen(np.concatenate((kept, children)), scores, children)
            since = 0 if scores[0] > before else since + 1
            if since == PATIENCE:
                break
        return kept[0], float(scores[0])

    def _chosen(self, all_of: Divisions, scores: Floats, children: Divisions) -> tuple[Divisions, Floats]:
        """The best, of equally good ones the first."""
        scores = np.concatenate((scores, self.scores.of(children)))
        _, first = np.unique(-scores, return_index=True)
        first = first[: self.population]
        return all_of[first], scores[first]

    def _paired(self, kept: Divisions) -> Divisions:
        """Children that have the first jobs from one parent and the rest from another; the better of two is a
        parent."""
        size, jobs = self.population, kept.shape[1]
        # They are sorted: the smaller of two numbers is the better one.
        one, other = self.chance.integers(len(kept), size=(2, 2, size)).min(axis=1)
        cut = self.chance.integers(jobs + 1, size=size)
        is_first = (np.arange(jobs)[None, :] < cut[:, None])[..., None]
        return np.asarray(np.where(is_first, kept[one], kept[other]))

    def _repaired(self, tasks: Divisions) -> Divisions:
        return self.limits.repair(tasks, self.chance.permutation(tasks.shape[1]))

    def _changed(self, tasks: Divisions) -> Divisions:
        """About two jobs of each division get other places: another number on a node, one node only, a task more or
        less, or several whole nodes."""
        size, jobs, nodes = tasks.shape
        chance, largest = self.chance, self.limits.largest
        drawn = chance.random((size, jobs)) < min(2.0 / jobs, 0.5)
        which, row = np.nonzero(drawn)
        if not len(row):
            return tasks
        count, every = len(row), np.arange(len(row))
        before = tasks[which, row]
        node = chance.integers(nodes, size=count)
        held = before.argmax(axis=1)
        near = np.where((chance.random(count) < 0.5) & (before.max(axis=1) > 0), held, node)
        way = chance.integers(5, size=count)
        number = chance.integers(largest[row, node] + 1)
        after = before.copy()
        after[every[way == 0], node[way == 0]] = number[way == 0]
        alone, whole = way == 1, way >= 3
        after[alone | whole] = 0
        after[every[alone], node[alone]] = number[alone]
        step = way == 2
        after[every[step], near[step]] += np.where(chance.random(int(step.sum())) < 0.6, 1, -1)
        near[whole] = np.where(way[whole] == 4, held[whole], node[whole])
        several = (np.arange(nodes)[None, :] - near[:, None]) % nodes < chance.integers(1, 5, size=count)[:, None]
        after = np.where(whole[:, None] & several, largest[row], after)
        tasks = tasks.copy()
        tasks[which, row] = np.maximum(after, 0)
        return tasks
