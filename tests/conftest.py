"""Hypothesis draws the same examples in every run; `pytest tests/properties --hypothesis-profile=search` draws others,
SKEP_EXAMPLES=20 twenty times as many."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from tests.doors import guarded
from tests.support.kube_plane import ControlPlane, control_plane

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, database=None, suppress_health_check=QUIET
)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=QUIET)
settings.register_profile("quick", settings.get_profile("search"), phases=[Phase.explicit, Phase.generate])
settings.register_profile("few", settings.get_profile("ci"), max_examples=10)  # for mutants: the first of those of "ci"
settings.load_profile("ci")


@pytest.hookimpl(trylast=True)  # after Hypothesis has loaded the profile of the command line
def pytest_configure() -> None:
    # Hypothesis also draws constants of the modules that happen to be loaded. With them the examples of a test would
    # depend on which other tests run, on edits elsewhere, and on how the package is installed.
    if settings.default.derandomize:
        HypothesisProvider._local_constants = Constants()


GUARDED = ("unit/core", "unit/service", "golden", "properties/test_kernel.py", "properties/test_turns.py")


@pytest.fixture(autouse=True)
def doors_of_the_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """In these tests every write to a state must come through one of its doors."""
    where = request.path.relative_to(Path(__file__).parent).as_posix()
    if not where.startswith(GUARDED):
        yield
        return
    with guarded():
        yield


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    """A server inside a test makes all later files of this process private, and some commands switch the collector off
    because they are short. For other tests neither holds."""
    os.umask(0o022)
    gc.enable()
    gc.unfreeze()


# Tests neither see nor touch the logins and servers of whoever runs them, nor those of other tests' processes.
for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ[name] = tempfile.mkdtemp(prefix="skep-tests-")
for name in ("SKEP_URL", "SKEP_TOKEN"):
    os.environ.pop(name, None)

# Tests start hundreds of processes, which should not all compile the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server; tests that use it are skipped where its binaries are missing."""
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        yield made
