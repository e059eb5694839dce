"""Step times on several GPU types, from what a job has shown on some of them (Sia, SOSP'23).

On a type on which it has run on one GPU only, it exchanges gradients as long as on a type where it has run on several,
in proportion to the time in which it computes them on each: it is then as many times faster on n GPUs as there.
"""

from __future__ import annotations

import functools

import numpy as np

from skep.core.knowledge import StepFigures
from skep.policies.estimate.goodput import StepParameters, fit_steps

TypeSteps = tuple[tuple[str, tuple[StepFigures, ...]], ...]
"""What was shown on each type."""


@functools.lru_cache(maxsize=10_000)
def fits_by_type(shown: TypeSteps) -> dict[str, StepParameters]:
    fits = {name: fit_steps(steps) for name, steps in shown}
    several = {name: sum(step.gpus > 1 for step in steps) for name, steps in shown}
    most = max(several, key=lambda name: several[name])
    if several[most]:
        for name, steps in shown:
            if not several[name]:
                fits[name] = transferred(fits[name], fits[most], [step.samples for step in steps])
    return fits


def transferred(own: StepParameters, other: StepParameters, samples: list[int]) -> StepParameters:
    """The gradient times of the one; the exchange of the other, in proportion to the gradient times of both."""
    middle = float(np.exp(np.mean(np.log(samples))))
    part = (own.grad_base + own.grad_sample * middle) / (other.grad_base + other.grad_sample * middle)
    exchange = (other.node_base, other.node_gpu, other.net_base, other.net_gpu)
    scaled = [part * each for each in exchange]
    return StepParameters._make([own.grad_base, own.grad_sample, *scaled, other.gamma])
