from __future__ import annotations

import socket

import pytest

from skep.core.errors import InputError
from skep.engines.local import launches
from skep.engines.local.launches import Ports

ME = ("1", 1)
YOU = ("2", 1)


def test_labels_get_what_they_ask_for() -> None:
    given = Ports().take(ME, [{"a": 2, "b": 1}, {"a": 1}, {}])
    numbers = [port for task in given for label in task.values() for port in label]
    assert [{label: len(found) for label, found in task.items()} for task in given] == [{"a": 2, "b": 1}, {"a": 1}, {}]
    assert len(set(numbers)) == 4


def test_a_port_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setattr(launches, "FIRST_PORT", number)
        monkeypatch.setattr(launches, "END_PORT", number + 1)
        with pytest.raises(OSError, match="not enough free ports"):
            Ports().take(ME, [{"a": 1}])


def test_all_or_none_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "is_free", lambda port: port % 2 == 0)
    monkeypatch.setattr(launches, "END_PORT", launches.FIRST_PORT + 10)
    pool = Ports()
    with pytest.raises(OSError, match="not enough free ports"):
        pool.take(ME, [{"a": 4}, {"a": 2}])
    assert pool.in_use == set()
    pool.take(ME, [{"a": 5}])
    with pytest.raises(OSError, match="not enough free ports"):
        pool.take(YOU, [{"a": 1}])
    pool.give(ME)
    assert len(pool.take(YOU, [{"a": 5}])[0]["a"]) == 5


def test_the_ports_of_an_adopted_task_are_kept() -> None:
    pool = Ports()
    pool.keep(YOU, {"a": [launches.FIRST_PORT, launches.FIRST_PORT + 1]})
    assert not {launches.FIRST_PORT, launches.FIRST_PORT + 1} & set(pool.take(ME, [{"b": 20}])[0]["b"])


def test_more_than_there_are_is_refused_at_once() -> None:
    with pytest.raises(InputError):
        Ports().take(ME, [{"a": 10**9}])


def test_a_late_look_at_an_ended_launch_does_not_free_what_others_got() -> None:
    pool = Ports()
    pool.take(YOU, [{"a": 2}])
    pool.keep(ME, {"a": sorted(pool.in_use)})
    pool.give(ME)
    assert len(pool.in_use) == 2


def test_two_servers_do_not_begin_with_the_same_port() -> None:
    """Ports are free until tasks listen on them: the next one to look would find the same."""
    assert len({Ports().take(ME, [{"a": 1}])[0]["a"][0] for _ in range(5)}) > 1
