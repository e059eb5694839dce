"""Loss curves: how the loss of a job goes on, from what it has reported.

    sublinear  loss(k) = 1 / (a k + b) + c            Optimus (EuroSys'18)
    quadratic  loss(k) = 1 / (a k^2 + b k + c) + d    SLAQ (SoCC'17), for methods of first order
    geometric  loss(k) = mu^(k - b) + c               SLAQ, for those that converge faster

Steps are scaled by the last one and losses by the largest, so that parameters of all jobs have the same size. Errors
are relative, and later points count more. A point that is far off its neighbours is left out; of the others one that is
far off the curve counts little, because its error grows with the distance and not with the square.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Points = tuple[tuple[float, float], ...]
"""(step, loss)"""

POINTS_LEAST = 3
OUTLIER = 0.2
OFF = 3.0
"""So many times the usual distance is far off."""


class Family(NamedTuple):
    """A formula: `value` of the parameters at scaled steps, and `start`, parameters near those of some points."""

    name: str
    value: Callable[[Array, Array], Array]
    slopes: Callable[[Array, Array], Array]
    start: Callable[[Array, Array, float], Array | None]
    """For a given limit of the loss."""
    low: tuple[float, ...]
    high: tuple[float, ...]


class LossFit(NamedTuple):
    family: Family
    parameters: Array
    step_scale: float
    loss_scale: float
    spread: float
    """The usual relative distance of a point."""
    covariance: Array

    def at(self, step: float) -> float:
        return self.loss_scale * float(self.family.value(self.parameters, np.array([step / self.step_scale]))[0])

    def interval(self, step: float) -> tuple[float, float]:
        """About 95 % of curves that fit as well are within it."""
        slopes = self.family.slopes(self.parameters, np.array([step / self.step_scale]))[0]
        off = 2 * self.loss_scale * math.sqrt(max(float(slopes @ self.covariance @ slopes), 0.0))
        return self.at(step) - off, self.at(step) + off


# Families -----------------------------------------------------------------------------------------------------------


def _sublinear(p: Array, k: Array) -> Array:
    return np.asarray(1 / (p[0] * k + p[1]) + p[2])


def _sublinear_slopes(p: Array, k: Array) -> Array:
    square = (p[0] * k + p[1]) ** -2
    return np.stack((-k * square, -square, np.ones_like(k)), axis=1)


def _quadratic(p: Array, k: Array) -> Array:
    return np.asarray(1 / (p[0] * k**2 + p[1] * k + p[2]) + p[3])


def _quadratic_slopes(p: Array, k: Array) -> Array:
    square = (p[0] * k**2 + p[1] * k + p[2]) ** -2
    return np.stack((-(k**2) * square, -k * square, -square, np.ones_like(k)), axis=1)


def _geometric(p: Array, k: Array) -> Array:
    """mu^(k - b) as exp(-rate k + height)."""
    return np.asarray(np.exp(p[1] - p[0] * k) + p[2])


def _geometric_slopes(p: Array, k: Array) -> Array:
    power = np.exp(p[1] - p[0] * k)
    return np.stack((-k * power, power, np.ones_like(k)), axis=1)


def _inverse_start(degree: int) -> Callable[[Array, Array, float], Array | None]:
    def start(k: Array, loss: Array, limit: float) -> Array | None:
        """1 / (loss - limit) is a polynomial. Its error counts as much as that of the loss."""
        from scipy.optimize import nnls

        above = loss - limit
        used = above > 1e-6
        if used.sum() < degree + 1:
            return None
        basis = np.stack([k[used] ** power for power in range(degree, -1, -1)], axis=1)
        weights = above[used] ** 2
        found, _ = nnls(basis * weights[:, None], weights / above[used])
        return np.array([*found[:-1], max(found[-1], 1e-6), limit])

    return start


def _geometric_start(k: Array, loss: Array, limit: float) -> Array | None:
    above = loss - limit
    used = above > 1e-6
    if used.sum() < 2 or np.ptp(k[used]) == 0:
        return None
    rate, height = np.polyfit(k[used], np.log(above[used]), 1, w=above[used])
    return np.array([max(-rate, 0.0), height, limit])


SUBLINEAR = Family(
    "sublinear", _sublinear, _sublinear_slopes, _inverse_start(1), (0.0, 1e-6, 0.0), (np.inf, np.inf, 1.0)
)
QUADRATIC = Family(
    "quadratic", _quadratic, _quadratic_slopes, _inverse_start(2), (0.0, 0.0, 1e-6, 0.0), (np.inf, np.inf, np.inf, 1.0)
)
GEOMETRIC = Family(
    "geometric", _geometric, _geometric_slopes, _geometric_start, (0.0, -np.inf, 0.0), (np.inf, np.inf, 1.0)
)
SLAQ_FAMILIES = (QUADRATIC, GEOMETRIC)


# Fitting ------------------------------------------------------------------------------------------------------------


def by_thirds(count: int) -> Array:
    """Optimus: the points of the second third count 4 times, those of the last one 16 times as much."""
    return np.asarray(4.0 ** (np.arange(count) * 3 // count))


def by_age(count: int) -> Array:
    """SLAQ: the older half counts half as much, and so on."""
    return np.asarray(2.0 ** (2 * np.arange(count) / count))


def without_outliers(steps: Array, losses: Array) -> tuple[Array, Array]:
    """Without points that differ from the median of five by more than `OUTLIER`; in a falling curve none does."""
    if len(losses) < 5:
        return steps, losses
    medians = np.median(np.lib.stride_tricks.sliding_window_view(losses, 5), axis=1)
    kept = np.ones(len(losses), dtype=bool)
    kept[2:-2] = np.abs(losses[2:-2] / medians - 1) <= OUTLIER
    return steps[kept], losses[kept]


@functools.lru_cache(maxsize=4096)
def fit_loss(points: Points, families: tuple[str, ...] = ("sublinear",)) -> LossFit | None:
    """The curve of these families that is nearest; None if there are too few points, or losses that are no numbers
    above 0."""
    if len(points) < POINTS_LEAST or not all(0 < loss < math.inf for _, loss in points) or points[-1][0] <= 0:
        return None
    chosen = [family for family in FAMILIES if family.name in families]
    steps, losses = without_outliers(*(np.array(column, dtype=float) for column in zip(*points, strict=True)))
    step_scale, loss_scale = float(steps[-1]), float(losses.max())
    k, loss = steps / step_scale, losses / loss_scale
    weights = np.sqrt(by_thirds(len(k)) if families == ("sublinear",) else by_age(len(k))) / loss
    found = [fit for family in chosen if (fit := _nearest(family, k, loss, weights)) is not None]
    if not found:
        return None
    _, family, parameters = min(found, key=lambda each: each[0])
    off = (family.value(parameters, k) - loss) / loss
    spread = float(1.4826 * np.median(np.abs(off)))
    slopes = family.slopes(parameters, k) / loss[:, None]
    covariance = np.asarray(spread**2 * np.linalg.pinv(slopes.T @ slopes), dtype=np.float64)
    return LossFit(family, parameters, step_scale, loss_scale, spread, covariance)


def _nearest(family: Family, k: Array, loss: Array, weights: Array) -> tuple[float, Family, Array] | None:
    """Starts at several limits of the loss; the best of these is improved."""
    from scipy.optimize import least_squares

    if len(k) < len(family.low):
        return None
    least = float(np.min(loss))
    starts = [family.start(k, loss, least * part) for part in (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 0.999)]
    usable = [each for each in starts if each is not None]
    if not usable:
        return None

    def errors(parameters: Array) -> Array:
        return np.asarray(weights * (family.value(parameters, k) - loss))

    def slopes(parameters: Array) -> Array:
        return np.asarray(weights[:, None] * family.slopes(parameters, k))

    start = np.clip(min(usable, key=lambda each: float(np.abs(errors(each)).sum())), family.low, family.high)
    usual = float(np.median(np.abs(errors(start)))) or 1e-9
    found = least_squares(
        errors,
        start,
        slopes,
        bounds=(family.low, family.high),
        loss="soft_l1",
        f_scale=OFF * usual,
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
        max_nfev=100,
    )
    return float(np.abs(errors(found.x)).sum()), family, found.x


FAMILIES = (SUBLINEAR, QUADRATIC, GEOMETRIC)


# What follows -------------------------------------------------------------------------------------------------------


def steps_to_converge(fit: LossFit, now: float, window: float, threshold: float, most: float) -> float:
    """Steps from now to where the loss falls by less than `threshold` of the largest within `window` steps; at most
    `most`."""

    def falls(step: float) -> float:
        return (fit.at(step) - fit.at(step + window)) / fit.loss_scale

    if falls(now) < threshold:
        return 0.0
    if falls(now + most) >= threshold:
        return most
    low, high = 0.0, most
    while high - low > 1e-3 * max(window, 1e-9):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(now + middle) >= threshold else (low, middle)
    return high
