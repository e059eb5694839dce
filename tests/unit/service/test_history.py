"""The numbers of the cluster over time."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.service.history import DAY_S, Samples, step_of
from skep.service.present import Sample, VcBook
from skep.service.sight import EVERYTHING, Sight

NOW_S = 1_000_000_800.0


def sample(used: float, pending: int = 0) -> Sample:
    vcs = {"red": VcBook(4, "", used, 0, pending, pending), "blue": VcBook(4, "", 0, 1, 2, 2)}
    return Sample(gpus=8, used=used + 1, lent=1, bad=0, drained=0, vcs=vcs)


@pytest.fixture
def history(tmp_path: Path) -> Samples:
    return Samples(tmp_path / "history.db", lambda: sample(0), lambda: NOW_S, 30 * DAY_S)


def test_steps_are_means_and_gaps_are_gaps(history: Samples) -> None:
    for back_s, used in ((30, 2), (45, 4), (600, 1)):
        history.add(NOW_S - back_s, sample(used, pending=3))
    found = history.read(NOW_S - 660, NOW_S, 60, by_vc=True, sight=EVERYTHING)
    assert len(found["t"]) == len(found["used"]) == len(found["queue"])
    assert found["used"][-1] == 4
    assert found["used"].count(None) == len(found["used"]) - 2
    assert found["queue"][-1] == 5
    assert {vc["name"]: (vc["used"][-1], vc["borrowed"][-1]) for vc in found["vcs"]} == {"blue": (0, 1), "red": (3, 0)}


def test_who_sees_one_vc_sees_the_hardware_and_its_own_queue(history: Samples) -> None:
    history.add(NOW_S - 20, sample(2, pending=3))
    found = history.read(None, None, 0, by_vc=True, sight=Sight(frozenset({"red"})))
    assert [vc["name"] for vc in found["vcs"]] == ["red"]
    known = [number for number, value in enumerate(found["used"]) if value is not None]
    assert [(found["used"][at], found["queue"][at]) for at in known] == [(3, 3)]


def test_what_is_old_is_thinned_to_the_same_means(history: Samples) -> None:
    for number in range(0, 3 * DAY_S, 600):
        for late_s, used in ((0, 0), (15, 2), (30, 4)):
            history.add(NOW_S - number - 60 + late_s, sample(used))
    before = history.read(NOW_S - 3 * DAY_S, NOW_S, 3600, by_vc=False, sight=EVERYTHING)
    rows = count(history)
    history.thin(NOW_S)
    thinned = count(history)
    assert thinned < rows / 2
    after = history.read(NOW_S - 3 * DAY_S, NOW_S, 3600, by_vc=False, sight=EVERYTHING)
    for was, now in zip(before["used"], after["used"], strict=True):
        assert was == pytest.approx(now, abs=0.7)
    history.thin(NOW_S)
    assert count(history) == thinned


def count(history: Samples) -> int:
    found: int = history._db.execute("SELECT count(*) FROM samples").fetchone()[0]
    return found


def test_the_oldest_go(history: Samples) -> None:
    history.add(NOW_S - 31 * DAY_S, sample(1))
    history.add(NOW_S - 29 * DAY_S, sample(1))
    history.thin(NOW_S)
    found = history.read(0, NOW_S, 0, by_vc=False, sight=EVERYTHING)
    assert sum(value is not None for value in found["used"]) == 1
    assert found["since_s"] >= NOW_S - 31 * DAY_S


@pytest.mark.parametrize(
    ("age_s", "span_s", "asked_s", "step"),
    [
        (3600, 3600, 0, 30),
        (DAY_S, DAY_S, 0, 300),
        (10 * DAY_S, DAY_S, 1, 300),
        (3600, 3600, 1, 30),
        (3600, 3600, 100, 105),
    ],
)
def test_a_step_is_never_shorter_than_what_is_kept(age_s: float, span_s: float, asked_s: float, step: float) -> None:
    assert step_of(age_s, span_s, asked_s) == step


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 1000)
    history = Samples(path, lambda: sample(0), lambda: NOW_S, DAY_S)
    history.add(NOW_S - 1, sample(1))
    assert history.read(None, None, 0, by_vc=False, sight=EVERYTHING)["used"][-1] == 2
    assert (tmp_path / "history.damaged").exists()
