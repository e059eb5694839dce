"""The sizes of an elastic job that are worth considering, and the gain of each step."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from skep.core.model import JobSpec, Shape
from skep.core.standstill import NOWHERE
from skep.core.view import View

Rates = Callable[[JobSpec, Shape], float | Fraction | None]
"""Work per second of a job in this shape, alone and well placed; None: unknown."""


Suits = Callable[[JobSpec, Shape], Shape]
"""The shape without the GPU types on which the job makes no progress."""


def as_requested(spec: JobSpec, shape: Shape) -> Shape:
    return shape


def unknown(spec: JobSpec, shape: Shape) -> None:
    return None


def known_rates(view: View) -> Rates:
    """On the first GPU type for which a speed is known."""

    def rate(spec: JobSpec, shape: Shape) -> float | None:
        pools = view.cluster.pools_for(shape.gpu_types)
        rates = (view.knowledge.rate(spec, shape, pool.gpu_type) for pool in pools)
        return next((rate for rate in rates if rate is not None), None)

    return rate


def completed(spec: JobSpec, shapes: list[Shape], rates: Rates) -> list[Fraction]:
    """The speed in each shape, smallest first. Unknown ones are on a line between the nearest known ones, and in
    proportion to the GPUs beyond them; if none is known, all are in proportion."""
    found = [(milli_of(shape), rates(spec, shape)) for shape in shapes]
    points = [(milli, Fraction(rate)) for milli, rate in found if rate is not None]
    points = points or [(milli_of(spec.shapes[0]), Fraction(1))]
    return [speed_at(milli, points) for milli, _ in found]


def speed_at(milli: int, points: list[tuple[int, Fraction]]) -> Fraction:
    at = bisect.bisect_left(points, milli, key=lambda point: point[0])
    below, above = points[max(at - 1, 0)], points[min(at, len(points) - 1)]
    if milli == above[0]:
        return above[1]
    if below is above:
        return above[1] * Fraction(milli, above[0])
    return below[1] + (above[1] - below[1]) * Fraction(milli - below[0], above[0] - below[0])


def milli_of(shape: Shape) -> int:
    """Thousandths of GPUs of all roles."""
    return sum(role.count * role.gpus * role.gpu_milli for role in shape.roles)


class Ladder(NamedTuple):
    """The sizes of a job, each faster than the one below; the first is the smallest it accepts.

    `gains` is what a step adds relative to the speed before it, `parts` relative to the speed after it. The first step
    is an infinite gain and all of the speed then reached; above the last step there is no gain. Speeds are fractions,
    so that equal speeds compare as equal, which is common with proportional speeds.
    """

    sizes: tuple[int, ...]
    """GPUs of the elastic role."""
    shapes: tuple[Shape, ...]
    milli: tuple[int, ...]
    """Thousandths of GPUs of the whole job."""
    speeds: tuple[Fraction, ...]
    gains: tuple[float, ...]
    parts: tuple[float, ...]

    @property
    def is_rigid(self) -> bool:
        return len(self.sizes) == 1


class ElasticSizes:
    """Sizes up to `most` GPUs. A job without a range has only its requested size, and so has any job if nothing can be
    resized."""

    name = "elastic"

    def __init__(self, rates: Rates = unknown, most: int = 1_000_000, *, can_resize: bool = True) -> None:
        self.rates = rates
        self.can_resize = can_resize
        self.most = most
        self.suits: Suits = as_requested
        self.known: dict[object, Ladder] = {}

    def use(self, view: View) -> None:
        """Up to the number of GPUs that exist, at speeds that are known there."""
        self.most = view.cluster.gpu_total
        self.rates = known_rates(view)
        standstills, types = view.knowledge.standstills, tuple([pool.gpu_type for pool in view.cluster.pools])
        self.suits = lambda spec, shape: standstills.shape(spec, shape, types)
        self.known = {}

    def ladder(self, spec: JobSpec) -> Ladder:
        kind = kind_of(spec)
        found = self.known.get(kind)
        if found is None:
            found = self.known[kind] = make_ladder(self._steps(spec))
        return found

    def _steps(self, spec: JobSpec) -> list[tuple[int, Shape, Fraction]]:
        """(GPUs, shape, speed), leaving out sizes that are no faster than a smaller one."""
        sized = self._sized(spec)
        speeds = completed(spec, [shape for _, shape in sized], self.rates)
        found: list[tuple[int, Shape, Fraction]] = []
        for (gpus, shape), speed in zip(sized, speeds, strict=True):
            if not found or speed > found[-1][2]:
                found.append((gpus, shape, speed))
        return found

    def _sized(self, spec: JobSpec) -> list[tuple[int, Shape]]:
        """All sizes of its range in which it makes progress, smallest first; if there are none, the smallest."""
        bounds = spec.gpu_range if self.can_resize else None
        asked = spec.shapes[0]
        if bounds is None:
            return [(asked.gpus, self.suits(spec, asked))]
        low, high = bounds
        sizes = range(low, max(min(high, self.most), low) + 1, asked.roles[spec.elastic_role].gpus)
        found = [(gpus, self.suits(spec, spec.resized(gpus))) for gpus in sizes]
        return [(gpus, shape) for gpus, shape in found if shape.gpu_types != NOWHERE] or found[:1]


def kind_of(spec: JobSpec) -> tuple[object, ...]:
    """Jobs of one kind have the same ladder."""
    return (spec.model, spec.shapes, spec.min_gpus, spec.max_gpus, spec.batch_size)


def make_ladder(steps: list[tuple[int, Shape, Fraction]]) -> Ladder:
    sizes, shapes, speeds = zip(*steps, strict=True)
    gains, parts = [float("inf")], [1.0]
    for before, after in itertools.pairwise(speeds):
        gains.append(float((after - before) / before) if before else float("inf"))
        parts.append(float((after - before) / after))
    milli = tuple(milli_of(shape) for shape in shapes)
    return Ladder(sizes, shapes, milli, speeds, (*gains, 0.0), (*parts, 0.0))
