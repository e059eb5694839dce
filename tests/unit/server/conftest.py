"""One server for the tests of a file; each test finds it without jobs and tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_world import VCS, World, maker


@pytest.fixture(scope="module")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("open")) as made:
        yield made


@pytest.fixture(scope="module")
def guarded_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("guarded"), maker(VCS), auth="token") as made:
        yield made


@pytest.fixture
def world(open_world: World) -> World:
    open_world.clear()
    return open_world


@pytest.fixture
def guarded(guarded_world: World) -> World:
    """The same, asking for tokens."""
    guarded_world.clear()
    return guarded_world
