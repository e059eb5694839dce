"""The speeds that a server is given in a profile."""

from __future__ import annotations

import functools

from skep.service.progress import Measure, nobody_measured


def measure_of(profile: str) -> Measure:
    """The speeds of a profile on any cluster; without a profile speeds are unknown."""
    if not profile:
        return nobody_measured
    from skep.experiments.known import Known
    from skep.profiles.read import read_profile

    return functools.partial(Known, read_profile(profile).speed)
