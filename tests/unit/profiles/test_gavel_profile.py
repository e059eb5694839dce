"""Gavel's table of throughputs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from skep.clusters import read_cluster
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InputError
from skep.core.model import JobSpec, gpu_shape
from skep.profiles import Profile, read_profile
from skep.profiles.profile import MeasuredSpeed

PUBLISHED = Path(__file__).parents[3] / ".." / "shared/data/gavel/simulation_throughputs.json"
published = pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"no public data at {PUBLISHED}")

TABLE: dict[str, dict[str, dict[str, Any]]] = {
    "v100": {
        "('A', 1)": {"null": 10.0, "('B', 1)": [5.0, 2.0], "('C', 1)": [0.0, 0.0]},
        "('A', 4)": {"null": 32.0, "('B', 4)": [0.0, 0.0]},
        "('B', 1)": {"null": 4.0, "('A', 1)": [2.0, 5.0]},
        "('B', 4)": {"null": 16.0, "('A', 4)": [0.0, 0.0]},
        "('C', 1)": {"null": 2.0, "('A', 1)": [0.0, 0.0]},
    },
    "v100_unconsolidated": {
        "('A', 1)": {"null": 10.0},
        "('A', 4)": {"null": 16.0},
        "('C', 1)": {"null": 2.0},
    },
    "k80": {"('A', 1)": {"null": 2.5}, "('A', 4)": {"null": 0.0}, "('B', 1)": {"null": 1.0}},
    "k80_unconsolidated": {"('A', 1)": {"null": 2.5}},
}
# Nodes 0 and 1 have v100, 2 and 3 k80, 4 a type that the table does not have.
CLUSTER = read_cluster("2x8:v100+2x8:k80+1x8:a100")


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return read_profile(written(tmp_path, TABLE))


def written(tmp_path: Path, table: object) -> Path:
    path = tmp_path / "throughputs.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return path


def job(model: str, gpus: int, *gpu_types: str) -> JobSpec:
    return JobSpec("j", (gpu_shape(gpus, gpu_types=gpu_types),), model=model)


def on(**gpus: int) -> Allocation:
    slices = tuple(Slice(int(name[1:]), (1 << count) - 1) for name, count in gpus.items())
    return Allocation(slices, sum(gpus.values()))


@pytest.mark.parametrize(
    ("spec", "allocation", "neighbours", "rate"),
    [
        (job("A", 4), on(n0=4), [], 1.0),
        (job("A", 4), on(n0=2, n1=2), [], 0.5),
        (job("A", 1), on(n2=1), [], 0.25),
        (job("A", 1, "k80"), on(n2=1), [], 1.0),
        (job("A", 1, "k80", "v100"), on(n0=1), [], 4.0),
        (job("A", 4), on(n0=1), [], 10 / 32),
        (job("A", 8), on(n0=8), [], 1.0),
        (job("A", 4), on(n0=8), [], 2.0),
        (job("A", 1), on(n0=2), [], 2.0),
        (job("C", 2), on(n0=1, n1=1), [], 1.0),
        (job("B", 1), on(n0=1, n2=1), [], 0.5),
        (job("A", 4), on(n4=4), [], 1.0),
        (job("Z", 4), on(n0=2, n2=2), [job("A", 1)], 1.0),
        (job("A", 4), on(n2=4), [], 0.0),
        (job("A", 4, "k80"), on(n0=4), [], 1.0),
        (job("A", 1), on(n0=1), [job("B", 1)], 0.5),
        (job("A", 1), on(n0=1), [job("B", 1), job("B", 1)], 0.25),
        (job("A", 4), on(n0=4), [job("B", 4)], 0.5),
        (job("A", 4), on(n0=4), [job("B", 1)], 0.5),
        (job("A", 1), on(n0=1), [job("C", 1)], 0.0),
        (job("A", 1), on(n0=1), [job("Z", 1)], 1.0),
    ],
    ids=[
        "the reference is 1",
        "a gang on two nodes takes the unconsolidated figure",
        "a slower type",
        "the first type a job names is its reference",
        "the second type it names is relative to the first",
        "fewer gpus than asked",
        "an unknown number of gpus is its own reference",
        "an unknown number of gpus goes by the nearest per gpu",
        "of two equally near numbers the smaller",
        "the unconsolidated figure of one gpu says nothing about gangs",
        "mixed types run as the slowest",
        "an unknown type counts as the reference type",
        "an unknown model runs at 1",
        "where a model does not fit it makes no progress",
        "a reference it does not fit on is replaced",
        "a neighbour",
        "two neighbours",
        "gangs that share take the pair on one gpu",
        "gangs of different sizes too",
        "a pair that does not fit makes no progress",
        "an unknown neighbour costs nothing",
    ],
)
def test_rates(profile: Profile, spec: JobSpec, allocation: Allocation, neighbours: list[JobSpec], rate: float) -> None:
    assert profile.speed(CLUSTER).rate(spec, allocation, neighbours, 0.0) == pytest.approx((rate, math.inf))


def test_steps_per_s_is_exactly_what_was_measured(profile: Profile) -> None:
    assert profile.steps_per_s("A", 4, "v100") == 32.0
    assert profile.steps_per_s("A", 2, "v100") is None
    assert profile.steps_per_s("A", 4, "a100") is None
    assert profile.steps_per_s("Z", 1, "v100") is None


HEAD = '{"v100": {"(\'A\', 1)": '
FAULTS = {
    "a cut file": (HEAD, "is not a table of throughputs"),
    "no throughput alone": (HEAD + "{}}}", "v100 ('A', 1): \"null\" is missing"),
    "a negative throughput": (HEAD + '{"null": -1}}}', "v100 ('A', 1): is -1, expected a number of steps/s"),
    "a throughput that is text": (HEAD + '{"null": "1"}}}', "v100 ('A', 1): is '1'"),
    "a pair that is one number": (
        HEAD + '{"null": 1, "(\'B\', 1)": 2}}}',
        "beside ('B', 1): expected two throughputs",
    ),
    "a key that is no job type": (
        HEAD + '{"null": 1}, "__import__(\'os\')": {"null": 1}}}',
        "__import__('os') is not a job type",
    ),
    "no reference type": ('{"k80": {"(\'A\', 1)": {"null": 1}}}', "has no GPU type v100"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_profile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_rate_is_worked_out_once(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    work_out = type(profile).rate

    def counted(self: Profile, situation: Any, levels: Any) -> float:
        calls.append(situation)
        return work_out(self, situation, levels)

    monkeypatch.setattr(type(profile), "rate", counted)
    speed = profile.speed(CLUSTER)
    for allocation in (on(n0=4), on(n1=4), on(n0=2, n1=2), on(n1=2, n0=2)):
        speed.rate(job("A", 4), allocation, [], 0.0)
    assert len(calls) == 2


@published
def test_the_published_table_is_read_quickly_and_whole() -> None:
    started_s = process_time()
    profile = read_profile(PUBLISHED)
    # 0.02 s where it was written; the limit is what starting a simulation may spend on it.
    assert process_time() - started_s < 0.3
    assert profile.steps_per_s("ResNet-18 (batch size 32)", 4, "v100") == 114.73342037584995
    assert profile.steps_per_s("ResNet-50 (batch size 128)", 2, "k80") == 0.0


@published
@pytest.mark.parametrize(
    ("spec", "allocation", "neighbours", "rate"),
    [
        (job("ResNet-18 (batch size 32)", 4), on(n0=2, n1=2), [], 38.1152034064521 / 114.73342037584995),
        (
            job("A3C", 1),
            on(n0=1),
            [job("ResNet-18 (batch size 16)", 1)],
            5.573234466541688 / 7.175767179667988,
        ),
        (job("ResNet-50 (batch size 128)", 2), on(n2=2), [], 0.0),
    ],
    ids=["spread over nodes", "beside another", "where it does not fit"],
)
def test_published_rates(spec: JobSpec, allocation: Allocation, neighbours: list[JobSpec], rate: float) -> None:
    speed = read_profile(PUBLISHED).speed(CLUSTER)
    assert speed.rate(spec, allocation, neighbours, 0.0)[0] == pytest.approx(rate)


@published
def test_every_entry_of_the_published_table_has_a_rate() -> None:
    profile = read_profile(PUBLISHED)
    speed = profile.speed(CLUSTER)
    assert isinstance(speed, MeasuredSpeed)
    models = {key.split("'")[1] for key in json.loads(PUBLISHED.read_text())["v100"]}
    for model in sorted(models):
        for gpus in (1, 2, 3, 4, 8):
            assert speed.rate(job(model, gpus), on(n0=gpus), [], 0.0)[0] == 1.0
            # Not below 1: the recommendation models were measured faster on the k80 machines.
            assert 0 <= speed.rate(job(model, gpus), on(n2=gpus), [], 0.0)[0] < 2
