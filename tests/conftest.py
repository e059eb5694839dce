"""Hypothesis draws the same examples on every machine; `--hypothesis-profile=search` looks for new ones."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, database=None, suppress_health_check=QUIET
)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=QUIET)
settings.register_profile("quick", settings.get_profile("search"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("ci")
