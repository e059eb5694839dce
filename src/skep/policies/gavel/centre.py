"""Time shares by an interior-point method made for their one kind of program.

Rows are jobs, or classes of equal jobs; columns are GPU types. The shares `x` maximise `t` plus a reward of the shares,
where every row needs `gain · x >= base + slope * t`, no row is used more than all of the time, and no type more than it
has GPUs. With `late`, what a row needs is concave in `t`: each step uses its tangents, which demand too much and never
too little. These programs have many optima. The method follows the central path, so it ends in the middle of them: the
answer is unique, equal jobs get equal shares, and a class of `count` equal jobs gets what each of them would.

Only rows share no variable, so each step eliminates them one by one, in closed form, and solves for the types and `t`:
its cost grows with the number of rows alone. Differences of nearly equal numbers are avoided throughout (a determinant
as a sum of squares): at the end of the path the steps would drown in rounding otherwise.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skep.core.solving import Unsolved

Array = NDArray[np.float64]

TOLERANCE = 9e-7
"""Of the optimum, relative to it or to 1."""
STALLED = 5e-5
"""A step that gains less than half ends the search if the answer is at least this good."""
STEPS_MAX = 80
REACH = 0.98
"""How far a step goes towards the boundary."""


class Program(NamedTuple):
    gain: Array
    """Rows × types."""
    gpus: Array
    """Of each row."""
    counts: Array
    """How many equal jobs a row stands for."""
    width: Array
    """GPUs of each type."""
    base: Array
    slope: Array
    """Without any slope there is no `t`."""
    reward: Array | float = 0.0
    """Rows × types, for each of the equal jobs."""
    start: Array | None = None
    """Shares inside all limits, if equal ones are not."""
    is_nash: bool = False
    """Maximise the product of `gain · x` over all jobs instead; base and slope are 0."""
    late: Array | None = None
    """If given, the ratio `r = max(late) + 1 / t` is sought: a row needs `gain · x >= 1 / (r - late)`, not base and
    slope."""


class Centre(NamedTuple):
    shares: Array
    t: float


class _Point:
    """Slacks and their prices, each as one vector: of the shares, the rows, the types and the needs of the rows."""

    def __init__(self, program: Program) -> None:
        self.program = program
        rows, types = self.size = program.gain.shape
        cells = rows * types
        self.cells, self.rows = slice(0, cells), slice(cells, cells + rows)
        self.types, self.needs = slice(cells + rows, cells + rows + types), slice(cells + rows + types, None)
        counts = program.counts
        self.demand = counts * program.gpus
        self.squares = self.demand * self.demand
        self.rewards = counts[:, None] * program.reward
        self.has_t = program.late is not None or bool(program.slope.any())
        self.weights = np.concatenate([np.repeat(counts, types), counts, np.ones(types), counts])
        self.floor: Array | float = 0.0
        """What the products of slacks and prices tend to: 0 but for the needs of a Nash product."""
        if program.is_nash:
            self.floor = np.where(np.arange(len(self.weights)) >= self.needs.start, self.weights, 0.0)
        self.pairs = [
            (one, other, program.gain[:, one] - program.gain[:, other])
            for one, other in itertools.combinations(range(types), 2)
        ]
        self.behind = np.zeros(rows) if program.late is None else program.late.max() - program.late
        self.ones = np.ones(types)
        """Summing by a product with it is much faster than by `sum` for so few types."""
        self.apart = program.gain[:, :, None] - program.gain[:, None, :]
        self._start()

    def _start(self) -> None:
        """Inside all limits, with prices that agree: both stay true up to rounding."""
        program, (rows, types) = self.program, self.size
        x = program.start
        if x is None:
            x = np.full((rows, types), min(0.5 / types, float((0.5 * program.width / self.demand.sum()).min())))
        reached = (program.gain * x).sum(1)
        self.t = 0.0
        if program.late is not None:
            self.t = 0.8 * float((reached / np.maximum(1 - self.behind * reached, 1e-12)).min())
        elif self.has_t:
            rising = program.slope > 0
            least = float(((reached - program.base)[rising] / program.slope[rising]).min())
            self.t = least - max(0.2 * abs(least), 0.1 * float(program.gain.max()))
        self.x = x
        self.evaluate()
        self.slack = np.concatenate([x.ravel(), 1 - x.sum(1), program.width - self.demand @ x, reached - self.need])
        if self.slack[self.needs].min() <= 0:
            raise Unsolved("no shares satisfy the needs of all jobs")
        price = self.weights / self.slack
        slopes = float((price[self.needs] * self.slope).sum())
        scale = 1 / slopes if slopes else 1.0
        price *= 1.0 if program.is_nash else scale
        pull = program.gain * price[self.needs][:, None] + self.rewards
        price[self.types] = np.maximum(price[self.types], (2 * pull / self.demand[:, None]).max(0))
        around = price[self.rows][:, None] + self.demand[:, None] * price[self.types]
        price[self.cells] = (around - pull).ravel()
        self.price = price

    def evaluate(self) -> None:
        """What the rows need with the present `t`, and how fast it rises with it."""
        program = self.program
        if program.late is None:
            self.slope = program.slope
            self.need = program.base + self.slope * self.t
        else:
            part = 1 / (1 + self.behind * self.t)
            self.slope = part * part
            self.need = part * self.t

    def blunt(self) -> float:
        """How much of `t` there is in a tenth of the ratio: if that is near the latest job's, `t` may be anything."""
        return 0.0 if self.program.late is None else 0.1 * self.t**2 * float(self.program.late.max())

    def move(self, far: float, near: float, up: Array, t_up: float, slacks: Array, prices: Array) -> None:
        """So far towards these changes of shares, `t`, slacks and prices."""
        program = self.program
        if program.is_nash:
            far = near = min(far, near)
        if program.late is not None and t_up < 0:
            far = min(far, -0.5 * self.t / t_up)  # what is needed is concave only for positive `t`
        self.x = self.x + far * up
        self.t += far * t_up
        self.slack = self.slack + far * slacks
        self.slack[self.cells] = self.x.ravel()
        self.price = self.price + near * prices
        if program.late is not None:
            self.evaluate()
            self.slack[self.needs] = (program.gain * self.x) @ self.ones - self.need
            self.price /= self.slope @ self.price[self.needs]


class _Elimination:
    """The rows of one step eliminated; what is left are the types and `t`."""

    def __init__(self, point: _Point) -> None:
        program, (rows, types) = point.program, point.size
        slack, price, gain = point.slack, point.price, program.gain
        self.point = point
        by_need, slope, demand = price[point.needs], point.slope, point.demand
        bought = price[point.rows][:, None] + demand[:, None] * price[point.types]
        earned = gain * by_need[:, None] + point.rewards
        self._misfit = bought - earned - price[point.cells].reshape(rows, types)
        """By how much the prices do not agree: rounding."""
        self._misfit_t = float(slope @ by_need) - 1.0
        self.ratio = ratio = slack / price
        self.theta = theta = ratio[point.cells].reshape(rows, types)
        self.row, self.need = row, need = ratio[point.rows], ratio[point.needs]
        scaled = theta * gain
        ones = point.ones
        self.sums = sums = theta @ ones, scaled @ ones, (scaled * gain) @ ones
        self.spread = [theta[:, one] * theta[:, other] * apart for one, other, apart in point.pairs]
        det = row * sums[2] + need * sums[0] + row * need
        for (_, _, apart), spread in zip(point.pairs, self.spread, strict=True):
            det += spread * apart
        self.det = det
        over = theta / det[:, None]
        self.of_row = over * (need[:, None] - (point.apart @ scaled[:, :, None])[:, :, 0])
        self.of_need = over * ((point.apart @ theta[:, :, None])[:, :, 0] + gain * row[:, None])
        self.first, self.second = -sums[1] / det, (sums[0] + row) / det
        squares = point.squares[:, None] * theta
        left = np.empty((types + 1, types + 1))
        left[:types, :types] = -(squares.T @ self.of_row + (squares * gain).T @ self.of_need)
        left.ravel()[: types * (types + 1) : types + 2] += point.squares @ theta + ratio[point.types]
        # The last type stands for all of them together: what jobs gain by all types is nearly the same for each.
        last, together = types - 1, (point.squares * row) @ self.of_row + ratio[point.types]
        left[last, :types] = left[:types, last] = together
        left[last, last] = together @ ones
        rising = demand * slope
        left[types, :types] = rising @ self.of_need
        left[types, last] = float((rising * row) @ (sums[1] / det))
        left[:types, types] = -left[types, :types]
        left[types, types] = float(self.second @ (slope * slope)) if point.has_t else 1.0
        self.left = left

    def direction(self, target: Array) -> tuple[Array, float, Array, Array]:
        """The change of shares, `t`, slacks and prices that brings the products of slacks and prices to this."""
        point = self.point
        program, (rows, types) = point.program, point.size
        theta, gain, demand, slope, ones = self.theta, program.gain, point.demand, point.slope, point.ones
        wanted = target / point.slack
        pull = wanted[point.cells].reshape(rows, types) - self._misfit
        weighted = theta * pull
        by_row, by_need = self.row * wanted[point.rows], self.need * wanted[point.needs]
        need = self.sums[1] * by_row + self.sums[0] * by_need + self.row * (by_need - (gain * weighted) @ ones)
        row = -self.sums[2] * by_row - self.need * (by_row + weighted @ ones) - self.sums[1] * by_need
        for (one, other, _), spread in zip(point.pairs, self.spread, strict=True):
            need += spread * (pull[:, other] - pull[:, one])
            row += spread * (gain[:, other] * pull[:, one] - gain[:, one] * pull[:, other])
        row /= self.det
        need /= self.det
        right = np.empty(types + 1)
        right[:types] = demand @ (weighted + theta * (row[:, None] + gain * need[:, None]))
        by_type = wanted[point.types] * self.ratio[point.types]
        right[:types] += by_type
        right[types - 1] = by_type @ ones - demand @ (by_row + self.row * row)
        right[types] = -self._misfit_t - float(slope @ need) if point.has_t else 0.0
        found = np.linalg.solve(self.left, right)
        types_up, t_up = found[:types], float(found[types])
        types_up[:-1] += types_up[-1]
        row += demand * (self.of_row @ types_up) + self.first * slope * t_up
        need += demand * (self.of_need @ types_up) + self.second * slope * t_up
        up = theta * (pull + row[:, None] + gain * need[:, None] - demand[:, None] * types_up)
        slacks = np.concatenate([up.ravel(), -(up @ ones), -(demand @ up), (gain * up) @ ones - slope * t_up])
        cells = point.cells
        prices = np.concatenate([wanted[cells] - slacks[cells] / self.ratio[cells], -row, types_up, need])
        return up, t_up, slacks, prices


def centre(program: Program) -> Centre:
    """Raises `Unsolved` if there is no answer, or none is found."""
    point = _Point(program)
    floor = point.floor
    total, before = float(point.weights.sum()), np.inf
    for _ in range(STEPS_MAX):
        products = point.slack * point.price
        gap = float(np.abs(products - floor).sum() if program.is_nash else point.slack @ point.price)
        size = max(1.0, abs(point.t))
        if gap <= TOLERANCE * max(size, point.blunt()) or (gap > 0.5 * before and gap <= STALLED * size):
            return Centre(point.x, point.t)
        if not np.isfinite(gap):
            break
        before = gap
        _advance(point, products, gap, gap / total)
    raise Unsolved(f"no shares found in {STEPS_MAX} steps")


def _advance(point: _Point, products: Array, gap: float, mean: float) -> None:
    """A step along the central path, by Mehrotra's prediction and correction."""
    left = _Elimination(point)
    floor = point.floor
    _, _, slacks, prices = left.direction(floor - products)
    far, near = _reach(point.slack, slacks), _reach(point.price, prices)
    after = (point.slack + far * slacks) * (point.price + near * prices) - floor
    aim = (min(max(float(np.abs(after).sum()) / gap, 0.0), 1.0)) ** 3 * mean
    up, t_up, slacks, prices = left.direction(aim * point.weights + floor - products - slacks * prices)
    far, near = _reach(point.slack, slacks), _reach(point.price, prices)
    point.move(min(REACH * far, 1.0), min(REACH * near, 1.0), up, t_up, slacks, prices)


def _reach(values: Array, changes: Array) -> float:
    """How much of the change leaves all values positive, at most a little more than all of it."""
    return 1 / max(-float((changes / values).min()), 1 / 1.02)
