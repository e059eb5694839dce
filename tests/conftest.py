"""Hypothesis draws the same examples on every machine; `--hypothesis-profile=search` looks for new ones."""

from __future__ import annotations

import os
import signal
import tempfile

from hypothesis import HealthCheck, Phase, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, database=None, suppress_health_check=QUIET
)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=QUIET)
settings.register_profile("quick", settings.get_profile("search"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("ci")

# Tests neither see nor touch the logins and servers of whoever runs them, nor those of other tests' processes.
for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ[name] = tempfile.mkdtemp(prefix="skep-tests-")
for name in ("SKEP_URL", "SKEP_TOKEN"):
    os.environ.pop(name, None)

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
