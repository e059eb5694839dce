"""Faults of a cluster under load, shorter than `python -m bench.crash.pods` has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.crash.pods import SHORT, run_pod_trial
from tests.support.kube_plane import ControlPlane

pytestmark = pytest.mark.slow


def test_kill_the_server_its_api_server_and_a_node(plane: ControlPlane, tmp_path: Path) -> None:
    faults = ["server", "api-away", "server", "node-silent", "server"]
    seen = run_pod_trial(plane, tmp_path, faults, 1, SHORT)
    assert seen.jobs > 8


def test_a_server_that_was_replaced_while_it_was_stopped_does_nothing_more(plane: ControlPlane, tmp_path: Path) -> None:
    seen = run_pod_trial(plane, tmp_path, ["server", "two-servers"], 2, SHORT)
    assert seen.jobs > 4
