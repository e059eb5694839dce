"""Goodput: how fast a job would learn on other GPUs and at other batch sizes, from what it has shown (Pollux, OSDI'21).

    seconds of a step = (parts - 1) x grad + (grad^gamma + sync^gamma)^(1/gamma)
    grad = a_c + b_c x samples of a GPU at once
    sync = 0 on one GPU, a_r + b_r x max(GPUs - 2, 0) on one node, a_n + b_n x max(GPUs - 2, 0) on several
    goodput = gain / seconds of a step
    gain = (var + sqr) / (var / scale + sqr), scale = batch size / smallest batch size

Progress counts steps at the smallest batch size. Where a job has shown nothing yet it is taken to be fast: so it is
tried.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skep.core.knowledge import StepFigures

Array = npt.NDArray[np.float64]

LEAST, MOST = 1e-8, 1e6
"""Of a parameter that is a time."""
GAMMA_MAX = 10.0
SAME = 1e-8
"""Against rounding in a division whose result is a whole number."""
POINTS = 50
"""Batch sizes that are tried."""


class StepParameters(NamedTuple):
    """The seven of the formula above, in seconds but for `gamma`."""

    grad_base: float
    grad_sample: float
    node_base: float
    node_gpu: float
    net_base: float
    net_gpu: float
    gamma: float


class BatchBounds(NamedTuple):
    least: int
    most: int
    samples_least: int
    samples_most: int
    """Samples that a GPU takes at once."""


class GradientNoise(NamedTuple):
    """Of gradients: the square of the mean, and the variance, at the smallest batch size."""

    sqr: float
    var: float


class BestGoodputs(NamedTuple):
    """By GPUs, from one on; on one node, and on several."""

    goodput: Array
    batch: npt.NDArray[np.int64]


# Step times ---------------------------------------------------------------------------------------------------------


def step_times(parameters: StepParameters, is_spread: Array, gpus: Array, samples: Array) -> tuple[Array, Array]:
    """Seconds in which gradients are computed, and of a whole step in one part."""
    grad = parameters.grad_base + parameters.grad_sample * samples
    more = np.maximum(gpus - 2, 0)
    on_node, on_net = (parameters.node_base, parameters.node_gpu), (parameters.net_base, parameters.net_gpu)
    inside, across = (base + each * more for base, each in (on_node, on_net))
    sync = np.where(gpus > 1, np.where(is_spread, across, inside), 0.0)
    # With the larger of the two set apart no power overflows.
    larger = np.maximum(grad, sync)
    return grad, larger * ((grad / larger) ** parameters.gamma + (sync / larger) ** parameters.gamma) ** (
        1 / parameters.gamma
    )


@functools.lru_cache(maxsize=10_000)
def fit_steps(shown: tuple[StepFigures, ...]) -> StepParameters:
    """The parameters with the smallest error in the logarithms of the times shown. What does not follow from them is
    set: nothing for GPUs that were not tried, half of the time if one number of samples was; several nodes are at
    least a tenth slower than one."""
    from scipy.optimize import minimize

    data = FitData(shown)
    start, bounds = data.start()
    # L-BFGS-B spends its time in threads of the library for linear algebra, and stops earlier where errors vanish.
    found = minimize(
        data.error, start, jac=True, method="SLSQP", bounds=bounds, options={"maxiter": 200, "ftol": 1e-10}
    )
    times = [float(each) for each in np.exp(found.x[:6])]
    if not data.is_spread.any():
        times[4], times[5] = max(times[4], 1.1 * times[2]), max(times[5], 1.1 * times[3])
    return StepParameters._make([*times, float(found.x[6])])


class FitData:
    """What a job has shown, as arrays. The times among the parameters are fitted as logarithms: they differ by orders
    of magnitude."""

    def __init__(self, shown: Sequence[StepFigures]) -> None:
        self.gpus = np.array([each.gpus for each in shown], dtype=float)
        self.is_spread = np.array([each.nodes > 1 for each in shown])
        self.samples = np.array([each.samples for each in shown], dtype=float)
        self.grad_s = np.array([each.grad_s for each in shown])
        self.step_s = np.array([each.step_s for each in shown])
        self.log_grad, self.log_step = np.log(self.grad_s), np.log(self.step_s)
        more = np.maximum(self.gpus - 2, 0)
        inside, across = (self.gpus > 1) & ~self.is_spread, (self.gpus > 1) & self.is_spread
        self.slopes = np.array([inside, inside * more, across, across * more], dtype=float)
        """Of the time to exchange gradients, by its four parameters."""

    def start(self) -> tuple[Array, list[tuple[float, float]]]:
        grad_s, sync_s = float(self.grad_s.mean()), float(max((self.step_s - self.grad_s).mean(), LEAST))
        values = [grad_s / 2, grad_s / 2 / float(self.samples.mean())]
        bounds = [(math.log(LEAST), math.log(MOST))] * 2
        if len(set(self.samples)) == 1:
            bounds[0] = (math.log(values[0]), math.log(values[0]))
        for number, slope in enumerate(self.slopes):
            values.append((sync_s if number % 2 == 0 else sync_s / 10) if slope.any() else LEAST)
            bounds.append((math.log(LEAST), math.log(MOST if slope.any() else LEAST)))
        return np.array([*np.log(values), 1.001]), [*bounds, (1.0, GAMMA_MAX)]

    def error(self, point: Array) -> tuple[float, Array]:
        """The error at these parameters, and its slopes."""
        times, gamma = np.exp(point[:6]), point[6]
        grad, sync = times[0] + times[1] * self.samples, times[2:] @ self.slopes
        larger = np.maximum(grad, sync)
        low, high = (grad / larger) ** gamma, (sync / larger) ** gamma
        both = low + high
        of_grad, grad_slopes = rmse(np.log(grad) - self.log_grad)
        of_step, step_slopes = rmse(np.log(larger) + np.log(both) / gamma - self.log_step)
        logs = low * np.log(grad / larger) + high * np.log(np.where(sync > 0, sync, larger) / larger)
        by_gamma = (logs / both - np.log(both) / gamma) / gamma
        by_grad = grad_slopes / grad + step_slopes * low / both / grad
        by_sync = step_slopes * high / both / np.where(sync > 0, sync, 1.0)
        slopes = np.array([by_grad.sum(), by_grad @ self.samples, *(self.slopes @ by_sync), step_slopes @ by_gamma])
        ratios = np.array([times[3] / times[2], times[5] / times[4]])
        slopes[:6] *= times
        slopes[[3, 5]] += 2e-2 * ratios**2
        slopes[[2, 4]] -= 2e-2 * ratios**2
        slopes[6] += 2e-3 * (gamma - 1)
        return float(of_grad + of_step + 1e-3 * (gamma - 1) ** 2 + 1e-2 * (ratios**2).sum()), slopes


def rmse(errors: Array) -> tuple[float, Array]:
    """The root of the mean square, and its slopes."""
    found = math.sqrt(float(errors @ errors) / len(errors))
    return found, errors / (len(errors) * max(found, 1e-12))


# Goodput ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=10_000)
def best_goodputs(parameters: StepParameters, noise: GradientNoise, bounds: BatchBounds, gpus_max: int) -> BestGoodputs:
    """For each number of GPUs the largest goodput over batch sizes, and the batch size with it; 0 where a GPU would get
    too few samples."""
    gpus = np.arange(1, gpus_max + 1, dtype=float)[:, None]
    least = np.maximum(bounds.least, bounds.samples_least * gpus)
    batch = np.minimum(least, bounds.most) * (bounds.most / np.minimum(least, bounds.most)) ** np.linspace(0, 1, POINTS)
    local = batch / gpus
    parts = np.maximum(np.ceil(local / bounds.samples_most - SAME), 1)
    # On one GPU gradient noise shows only between the parts of a step.
    parts = np.where((gpus == 1) & (batch > bounds.least + SAME), np.maximum(parts, 2), parts)
    samples = np.ceil(local / parts - SAME)
    samples = np.maximum(np.minimum(samples, np.floor(bounds.most / (gpus * parts))), 1)
    used = gpus * samples * parts
    gain = (noise.var + noise.sqr) / (noise.var * bounds.least / used + noise.sqr)
    found = []
    for is_spread in (False, True):
        grad, step = step_times(parameters, np.full_like(gpus, is_spread, dtype=bool), gpus, samples)
        goodput = gain / (step + (parts - 1) * grad)
        found.append(np.where(least <= bounds.most, goodput, 0.0))
    rows = np.arange(gpus_max)
    best = [goodput.argmax(axis=1) for goodput in found]
    return BestGoodputs(
        np.array([goodput[rows, at] for goodput, at in zip(found, best, strict=True)]),
        np.array([used[rows, at] for at in best]).round().astype(np.int64),
    )
