"""Measured goodput: step times, learning curves and gradient noise of whole training runs.

The tables that were published with Pollux (Qiao et al., OSDI'21) and Sia (Jayaram Subramanya et al., SOSP'23), read as
they are: a folder with one folder per model. `placements-KIND.csv` and `scalability-KIND.csv` have the seconds of a
step on a kind of node, which is the GPU type; `validation-BATCH.csv` has a line per epoch at that batch size.

    progress per second = gain / seconds of a step
    gain = (var + sqr) / (var / scale + sqr),  scale = batch size / smallest batch size

Progress counts steps at the smallest batch size. A larger batch makes more progress a step, but not in proportion.
Rates change at the end of an epoch, which falls on a whole second, as in the simulators of these papers.
"""

from __future__ import annotations

import bisect
import csv
import functools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skep.core.errors import InputError
from skep.files.text import load_text

SMALLEST_STEP = 1e-8
"""Against rounding in a division whose result is a whole number."""
GPUS_MAX = 64
NODES_MAX = 16
"""The largest placements that were measured."""
NODE_GPUS = 4
"""GPUs of a node that a step time without a placement assumes."""


class TrainingFacts(NamedTuple):
    """What the papers say of a model beside its tables."""

    epochs: int
    samples_max: int = 0
    """The most samples a GPU takes at once, if that is less than what was measured."""
    gpus_max: int = GPUS_MAX
    batch: int = 0
    """The only batch size for policies that choose one; 0: all that were measured."""


TRAININGS = {
    "bert": TrainingFacts(2),
    "cifar10": TrainingFacts(100),
    "deepspeech2": TrainingFacts(80),
    "imagenet": TrainingFacts(90),
    "ncf": TrainingFacts(10, gpus_max=1, batch=32768),
    "yolov3": TrainingFacts(50, samples_max=8),
}


class StepTime(NamedTuple):
    step_s: float
    sync_s: float
    """The part of it in which gradients are exchanged."""


class Micro(NamedTuple):
    """How a batch is divided: samples a GPU takes at once, and how often it does so before gradients are exchanged."""

    samples: int
    parts: int


class Epoch(NamedTuple):
    """A line of a learning curve."""

    progress: float
    steps: float
    sqr: float
    var: float


Placement = tuple[int, ...]
"""GPUs on each node, in the order of ranks."""


class StepTimes:
    """Step times of a model on one kind of node. Those of a placement that was measured lie on a line between the
    measured samples. Others are interpolated over nodes, GPUs and samples; outside of what was measured the nearest
    point counts."""

    def __init__(self, placements: dict[Placement, dict[int, StepTime]], scalability: list[tuple[float, ...]]) -> None:
        self.placements = {each: sorted(times.items()) for each, times in placements.items()}
        self.scalability = scalability
        measured = [samples for times in placements.values() for samples in times]
        self.samples = min(measured), max(measured)
        """The fewest and the most samples a GPU that were measured."""
        self.at = functools.cache(self._at)

    def _at(self, placement: Placement, samples: int) -> StepTime:
        rotations = [placement[number:] + placement[:number] for number in range(len(placement))]
        measured = self.placements.get(min(rotations))
        if measured is None:
            return self._between(len(placement), sum(placement), samples)
        upper = min(max(bisect.bisect_left(measured, (samples,)), 1), len(measured) - 1)
        low, high = measured[upper - 1], measured[upper]
        part = min(max((samples - low[0]) / (high[0] - low[0]), 0.0), 1.0)
        return StepTime(*(one + part * (other - one) for one, other in zip(low[1], high[1], strict=True)))

    def _between(self, nodes: int, gpus: int, samples: int) -> StepTime:
        inside, nearest = self._interpolators
        point = [min(nodes, NODES_MAX), min(gpus, GPUS_MAX), samples]
        found = inside(point)[0]
        if math.isnan(found[0]):
            found = nearest(point)[0]
        return StepTime(float(found[0]), float(found[1]))

    @functools.cached_property
    def _interpolators(self):  # type: ignore[no-untyped-def]
        try:
            from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
        except ImportError:
            raise InputError("tables of goodput need scipy", hint="pip install 'skep[solvers]'") from None

        means = sorted(self._means())
        rows = [*means, *self.scalability]
        points, values = [row[:3] for row in rows], [row[3:] for row in rows]
        return LinearNDInterpolator(points, values), NearestNDInterpolator(points, values)

    def _means(self) -> Iterator[tuple[float, ...]]:
        """Placements with as many nodes and GPUs count as one."""
        groups: dict[tuple[int, int, int], list[StepTime]] = {}
        for placement, times in self.placements.items():
            for samples, time in times:
                groups.setdefault((len(placement), sum(placement), samples), []).append(time)
        for key, each in groups.items():
            yield (*key, *(math.fsum(column) / len(each) for column in zip(*each, strict=True)))


class GoodputModel:
    """A model: its step times by kind of node, and its learning curves by batch size."""

    def __init__(self, name: str, kinds: dict[str, StepTimes], curves: dict[int, list[Epoch]]) -> None:
        self.kinds = kinds
        self.curves = dict(sorted(curves.items()))
        self.batches = list(self.curves)
        rows = min(map(len, curves.values()))
        training = TRAININGS.get(name, TrainingFacts(rows))
        self.epochs = min(training.epochs, rows)
        self.samples_max = training.samples_max
        least, most = (training.batch, training.batch) if training.batch in curves else (min(curves), max(curves))
        self.batch_range = least, most
        smallest = min(times.samples[0] for times in kinds.values())
        self.gpus_max = min(training.gpus_max, max(self.batches[-1] // smallest, 1))
        self.ends = [min(curve[epoch].progress for curve in curves.values()) for epoch in range(self.epochs)]
        """The progress at the end of each epoch."""
        self.goodput = functools.cache(self._goodput)

    def micro(self, batch: int, gpus: int, kind: str, least: int = 1) -> Micro:
        """In at least so many parts. A single GPU with more than the smallest batch takes it in two or more, because
        gradient noise cannot be measured otherwise."""
        most = self.samples_max or self.kinds[kind].samples[1]
        local = math.ceil(batch / gpus - SMALLEST_STEP)
        count = max(math.ceil(local / most - SMALLEST_STEP), least)
        if gpus == 1 and batch > self.batches[0]:
            count = max(count, 2)
        samples = math.ceil(local / count - SMALLEST_STEP)
        return Micro(max(min(samples, self.batches[-1] // (gpus * count)), 1), count)

    def step_s(self, batch: int, placement: Placement, kind: str, least: int = 1) -> float:
        micro = self.micro(batch, sum(placement), kind, least)
        time = self.kinds[kind].at(placement, micro.samples)
        return time.step_s + (micro.parts - 1) * (time.step_s - time.sync_s)

    def _goodput(self, batch: int, placement: Placement, kind: str, epoch: int) -> float:
        """Progress per second."""
        gpus = sum(placement)
        micro = self.micro(batch, gpus, kind)
        used = gpus * micro.samples * micro.parts
        noise = self.noise(used, epoch)
        gain = (noise.var + noise.sqr) / (noise.var * self.batches[0] / used + noise.sqr)
        return gain / self.step_s(batch, placement, kind)

    def steps_between(self, batch: int, first: int, last: int) -> float:
        """Steps from the end of one epoch to that of another; epochs count from 0."""
        return self.noise(batch, last).steps - self.noise(batch, first).steps

    def noise(self, batch: int, epoch: int) -> Epoch:
        """On a line between the two nearest batch sizes."""
        upper = min(max(bisect.bisect_left(self.batches, batch), 1), len(self.batches) - 1)
        low, high = self.batches[max(upper - 1, 0)], self.batches[upper]
        part = min(max((batch - low) / (high - low), 0.0), 1.0) if high > low else 0.0
        pairs = zip(self.curves[low][epoch], self.curves[high][epoch], strict=True)
        return Epoch(*(one + part * (other - one) for one, other in pairs))


# Reading -----------------------------------------------------------------------------------------------------------

WHAT = "a table of goodput"
TABLE = re.compile(r"(placements|scalability|validation)-([A-Za-z0-9-]+)\.csv")


def read_models(folder: Path) -> dict[str, GoodputModel]:
    models = {}
    for each in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = {match.groups(): path for path in each.iterdir() if (match := TABLE.fullmatch(path.name))}
        kinds = sorted(kind for what, kind in files if what == "placements")
        batches = [batch for what, batch in files if what == "validation" and batch.isdigit()]
        if kinds and batches:
            times = {kind: _step_times(files["placements", kind], files.get(("scalability", kind))) for kind in kinds}
            curves = {int(batch): _curve(files["validation", batch]) for batch in batches}
            models[each.name] = GoodputModel(each.name, times, curves)
    if not models:
        hint = "a folder of goodput tables has a folder per model with placements-KIND.csv and validation-BATCH.csv"
        raise InputError(f"{folder}: has no tables of goodput", hint=hint)
    return models


def _step_times(placements: Path, scalability: Path | None) -> StepTimes:
    found: dict[Placement, dict[int, StepTime]] = {}
    for line, (placement, samples, step_s, sync_s) in _rows(
        placements, ("placement", "local_bsz", "step_time", "sync_time")
    ):
        gpus = tuple(int(digit) for digit in str(int(placement)))
        if 0 in gpus:
            raise InputError(f"{placements}:{line}: placement {placement:g}, expected GPUs on each node as digits")
        if not samples or not step_s:
            raise InputError(f"{placements}:{line}: expected local_bsz and step_time above 0")
        found.setdefault(gpus, {})[int(samples)] = StepTime(step_s, sync_s)
    if not all(len(times) > 1 for times in found.values()) or not found:
        raise InputError(f"{placements}: expected at least two numbers of samples for each placement")
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    return StepTimes(found, [row for _, row in _rows(scalability, columns)] if scalability else [])


def _curve(path: Path) -> list[Epoch]:
    rows = []
    for line, row in _rows(path, ("progress", "iteration", "grad_sqr", "grad_var")):
        rows.append(Epoch(*row))
        if not rows[-1].progress or not rows[-1].sqr + rows[-1].var:
            raise InputError(f"{path}:{line}: expected progress, and grad_sqr or grad_var, above 0")
    if not rows:
        raise InputError(f"{path}: has no epochs")
    return rows


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """The lines of a table with their numbers, these columns."""
    reader = csv.DictReader(load_text(path, what=WHAT).splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path}:1: column {missing[0]} is missing, expected {','.join(columns)}")
    for row in reader:
        values = tuple(_number(path, reader.line_num, column, row[column]) for column in columns)
        yield reader.line_num, values


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise InputError(f"{path}:{line}: {column}: expected a number >= 0")
    return value
