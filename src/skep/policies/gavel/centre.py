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
    """Slacks and their prices, each as one vector: of the shares, the rows, the types and the needs of the rows. Shares
    are types × rows here, so that a row's numbers are summed along the first axis."""

    def __init__(self, program: Program) -> None:
        self.program = program
        rows, types = program.gain.shape
        self.size = types, rows
        cells = rows * types
        self.cells, self.rows = slice(0, cells), slice(cells, cells + rows)
        self.types, self.needs = slice(cells + rows, cells + rows + types), slice(cells + rows + types, None)
        counts = program.counts
        self.demand = counts * program.gpus
        self.squares = self.demand * self.demand
        self.gain = gain = np.ascontiguousarray(program.gain.T)
        self.rewards: Array | float = counts * program.reward.T if isinstance(program.reward, np.ndarray) else 0.0
        self.has_t = program.late is not None or bool(program.slope.any())
        self.weights = np.concatenate([np.tile(counts, types), counts, np.ones(types), counts])
        self.floor: Array | float = 0.0
        """What the products of slacks and prices tend to: 0 but for the needs of a Nash product."""
        if program.is_nash:
            self.floor = np.where(np.arange(len(self.weights)) >= self.needs.start, self.weights, 0.0)
        self.behind = np.zeros(rows) if program.late is None else program.late.max() - program.late
        self.ones = np.ones(types)
        """Summing by a product with it is much faster than by `sum` for so few types."""
        apart = gain[None] - gain[:, None]
        alike = np.stack([np.ones_like(gain), gain, gain * gain], 1)
        self.factors = np.concatenate([alike, gain[:, None] * apart, apart, 0.5 * apart * apart], 1)
        """What each type's part is multiplied by in the sums of `_Elimination`."""
        self._start()

    def _start(self) -> None:
        """Inside all limits, with prices that agree: both stay true up to rounding."""
        program, gain, demand = self.program, self.gain, self.demand
        types = len(gain)
        if program.start is None:
            x = np.full(self.size, min(0.5 / types, float((0.5 * program.width / demand.sum()).min())))
        else:
            x = np.ascontiguousarray(program.start.T)
        reached = self.ones @ (gain * x)
        self.t = 0.0
        if program.late is not None:
            self.t = 0.8 * float((reached / np.maximum(1 - self.behind * reached, 1e-12)).min())
        elif self.has_t:
            rising = program.slope > 0
            least = float(((reached - program.base)[rising] / program.slope[rising]).min())
            self.t = least - max(0.2 * abs(least), 0.1 * float(gain.max()))
        self.x = x
        self.evaluate()
        self.slack = np.concatenate([x.ravel(), 1 - self.ones @ x, program.width - x @ demand, reached - self.need])
        if self.slack[self.needs].min() <= 0:
            raise Unsolved("no shares satisfy the needs of all jobs")
        price = self.weights / self.slack
        slopes = float(price[self.needs] @ self.slope)
        scale = 1 / slopes if slopes else 1.0
        price *= 1.0 if program.is_nash else scale
        pull = gain * price[self.needs] + self.rewards
        price[self.types] = np.maximum(price[self.types], (2 * pull / demand).max(1))
        price[self.cells] = (price[self.rows] + price[self.types][:, None] * demand - pull).ravel()
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
            self.slack[self.needs] = self.ones @ (self.gain * self.x) - self.need
            self.price /= self.slope @ self.price[self.needs]


class _Elimination:
    """The rows of one step eliminated; what is left are the types and `t`."""

    def __init__(self, point: _Point) -> None:
        types, rows = point.size
        price, gain, ones = point.price, point.gain, point.ones
        self.point = point
        by_need, slope, demand, squares = price[point.needs], point.slope, point.demand, point.squares
        bought = np.outer(price[point.types], demand) + price[point.rows]
        self._misfit = bought - price[point.cells].reshape(types, rows) - (gain * by_need + point.rewards)
        """By how much the prices do not agree: rounding."""
        self._misfit_t = float(slope.dot(by_need)) - 1.0
        self.ratio = ratio = point.slack / price
        self.theta = theta = ratio[point.cells].reshape(types, rows)
        row, need, by_type = ratio[point.rows], ratio[point.needs], ratio[point.types]
        sums = ones.dot((point.factors * theta[:, None]).reshape(types, -1)).reshape(-1, rows)
        det = row * sums[2] + need * sums[0] + row * need + ones.dot(theta * sums[3 + 2 * types :])
        over = theta / det
        self.of_row = of_row = over * (need - sums[3 : 3 + types])
        self.of_need = of_need = over * (sums[3 + types : 3 + 2 * types] + gain * row)
        self.first, self.second, self.third = sums[1] / det, (sums[0] + row) / det, (sums[2] + need) / det
        weighed = theta * squares
        left = np.empty((types + 1, types + 1))
        left[:types, :types] = -(weighed.dot(of_row.T) + (weighed * gain).dot(of_need.T))
        left.ravel()[: types * (types + 1) : types + 2] += theta.dot(squares) + by_type
        # The last type stands for all of them together: what jobs gain by all types is nearly the same for each.
        last, together = types - 1, of_row.dot(squares * row) + by_type
        left[last, :types] = left[:types, last] = together
        left[last, last] = together.dot(ones)
        rising = demand * slope
        left[types, :types] = of_need.dot(rising)
        left[types, last] = (rising * row).dot(self.first)
        left[:types, types] = -left[types, :types]
        left[types, types] = self.second.dot(slope * slope) if point.has_t else 1.0
        self.left = left

    def direction(self, target: Array) -> tuple[Array, float, Array, Array]:
        """The change of shares, `t`, slacks and prices that brings the products of slacks and prices to this."""
        point, theta = self.point, self.theta
        (types, rows), gain, demand, slope, ones = point.size, point.gain, point.demand, point.slope, point.ones
        wanted = target / point.slack
        scaled = self.ratio * wanted
        by_row, by_need, by_type = scaled[point.rows], scaled[point.needs], scaled[point.types]
        pull = wanted[point.cells].reshape(types, rows) - self._misfit
        row = -self.third * by_row - self.first * by_need - ones.dot(self.of_row * pull)
        need = self.first * by_row + self.second * by_need - ones.dot(self.of_need * pull)
        right = np.empty(types + 1)
        right[:types] = (theta * (pull + row + gain * need)).dot(demand) + by_type
        right[types - 1] = by_type.dot(ones) - demand.dot(by_row + self.ratio[point.rows] * row)
        right[types] = -self._misfit_t - slope.dot(need) if point.has_t else 0.0
        found = np.linalg.solve(self.left, right)
        types_up, t_up = found[:types], float(found[types])
        types_up[:-1] += types_up[-1]
        rising = slope * t_up
        row += demand * types_up.dot(self.of_row) - self.first * rising
        need += demand * types_up.dot(self.of_need) + self.second * rising
        up = theta * (pull + row + gain * need - np.outer(types_up, demand))
        slacks = np.concatenate([up.ravel(), -ones.dot(up), -up.dot(demand), ones.dot(gain * up) - rising])
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
            return Centre(point.x.T, point.t)
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
