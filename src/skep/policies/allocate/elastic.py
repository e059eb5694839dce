"""The sizes of an elastic job that are worth considering, and the gain of each step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from skep.core.model import JobSpec, Shape
from skep.core.view import View

Scaling = Callable[[JobSpec, Shape], float | Fraction]
"""Work per second of a job in this shape, alone and well placed."""


def in_proportion(spec: JobSpec, shape: Shape) -> Fraction:
    """Without measurements: speed in proportion to the GPUs."""
    return Fraction(milli_of(shape), milli_of(spec.shapes[0])) if shape.gpus else Fraction(1)


def known_scaling(view: View) -> Scaling:
    """On the first GPU type for which a speed is known, else in proportion."""

    def scaling(spec: JobSpec, shape: Shape) -> float | Fraction:
        pools = view.cluster.pools_for(shape.gpu_types)
        rates = (view.knowledge.rate(spec, shape, pool.gpu_type) for pool in pools)
        known = next((rate for rate in rates if rate is not None), None)
        return in_proportion(spec, shape) if known is None else known

    return scaling


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

    def __init__(self, scaling: Scaling = in_proportion, most: int = 1_000_000, *, can_resize: bool = True) -> None:
        self.scaling = scaling
        self.can_resize = can_resize
        self.most = most
        self.known: dict[object, Ladder] = {}

    def use(self, view: View) -> None:
        """Up to the number of GPUs that exist, at speeds that are known there."""
        self.most = view.cluster.gpu_total
        self.scaling = known_scaling(view)
        self.known = {}

    def ladder(self, spec: JobSpec) -> Ladder:
        kind = kind_of(spec)
        found = self.known.get(kind)
        if found is None:
            found = self.known[kind] = make_ladder(self._steps(spec))
        return found

    def _steps(self, spec: JobSpec) -> list[tuple[int, Shape, Fraction]]:
        """(GPUs, shape, speed), leaving out sizes that are no faster than a smaller one."""
        bounds = spec.gpu_range if self.can_resize else None
        asked = spec.shapes[0]
        if bounds is None:
            return [(asked.gpus, asked, Fraction(self.scaling(spec, asked)))]
        low, high = bounds
        found: list[tuple[int, Shape, Fraction]] = []
        for gpus in range(low, max(min(high, self.most), low) + 1, asked.roles[spec.elastic_role].gpus):
            shape = spec.resized(gpus)
            speed = Fraction(self.scaling(spec, shape))
            if not found or speed > found[-1][2]:
                found.append((gpus, shape, speed))
        return found


def kind_of(spec: JobSpec) -> tuple[object, ...]:
    """Jobs of one kind have the same ladder."""
    return (spec.model, spec.shapes, spec.min_gpus, spec.max_gpus)


def make_ladder(steps: list[tuple[int, Shape, Fraction]]) -> Ladder:
    sizes, shapes, speeds = zip(*steps, strict=True)
    gains, parts = [float("inf")], [1.0]
    for before, after in itertools.pairwise(speeds):
        gains.append(float((after - before) / before) if before else float("inf"))
        parts.append(float((after - before) / after))
    milli = tuple(milli_of(shape) for shape in shapes)
    return Ladder(sizes, shapes, milli, speeds, (*gains, 0.0), (*parts, 0.0))
