"""How much work comes? The next hour is expected to be like the last one."""

from __future__ import annotations

from typing import NamedTuple

from skep.core.view import View

WINDOW_S = 3600.0
PERIOD_S = 600.0


class Load(NamedTuple):
    """What is expected to be submitted in ten minutes, on average."""

    jobs: float
    gpus: float


def forecast(view: View) -> Load:
    shapes = list(view.knowledge.requests.since(view.now_s - WINDOW_S))
    periods = WINDOW_S / PERIOD_S
    return Load(len(shapes) / periods, sum(shape.gpus for shape in shapes) / periods)
