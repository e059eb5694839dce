"""The environment: Gymnasium's checker, the same episode for a seed, rewards that add up, masks that are true."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import skep
from skep.core.errors import InputError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

import skep.gym  # noqa: E402
from skep.gym.observe import scores  # noqa: E402
from skep.traces.synth import synthesize  # noqa: E402

LEARNED = Path(__file__).parents[3] / "examples" / "gym" / "learned.py"


def first(mask: Any) -> int:
    return next((action for action in range(1, len(mask)) if mask[action]), 0)


def episode(env: Any, seed: int, pick: Any = first) -> tuple[list[Any], list[float], dict[str, Any]]:
    seen, info = env.reset(seed=seed)
    observed, rewards, is_over = [seen], [], False
    while not is_over:
        seen, reward, is_over, _, info = env.step(pick(info["action_mask"]))
        observed.append(seen)
        rewards.append(reward)
    return observed, rewards, info


@pytest.mark.parametrize("reward", ["jct", "slowdown", "utilization"])
def test_the_checker_of_gymnasium_passes(reward: str) -> None:
    check_env(gymnasium.make("skep/Cluster-v0", jobs=20, reward=reward).unwrapped)


def test_a_seed_gives_the_same_episode_and_another_seed_another() -> None:
    env = skep.gym.ClusterEnv(jobs=40)
    one, again, other = episode(env, 1), episode(env, 1), episode(env, 2)
    assert all((a == b).all() for a, b in zip(one[0], again[0], strict=True))
    assert one[1] == again[1]
    assert one[1] != other[1]


def test_the_oldest_that_fits_is_the_simulator_s_own_first_come_first_served() -> None:
    """With slots for all jobs: the same starts, so the same JCT, which is the sum of the rewards."""
    trace = synthesize(jobs=60, load=1.2, gpus=8, vcs=1, seed=3)
    env = skep.gym.ClusterEnv("2x4", trace=trace, slots=60)
    _, rewards, info = episode(env, 0)
    run = skep.simulate(trace, cluster="2x4", policy="fifo:walk=skip,patience=0").summary
    assert run.jct_avg_s is not None
    assert info["jct_s"] == pytest.approx(run.jct_avg_s * 60)
    assert -3600 * sum(rewards) == pytest.approx(info["jct_s"])


def test_what_the_mask_allows_starts_a_job_and_what_it_forbids_waits() -> None:
    env = skep.gym.ClusterEnv(jobs=30, load=2.0)
    _, info = env.reset(seed=1)
    for _ in range(40):
        mask = info["action_mask"]
        assert mask[0] == 1
        before = set(env.world.planner.pending)
        forbidden = next((action for action in range(1, len(mask)) if not mask[action]), None)
        if forbidden is not None:
            seq = list(before)[forbidden - 1] if forbidden <= len(before) else None
            _, _, is_over, _, info = env.step(forbidden)
            assert seq is None or seq in env.world.planner.pending
        else:
            job = env.world.choice.jobs[0]
            _, _, is_over, _, info = env.step(1)
            assert job.start_s is not None
        if is_over:
            break


def test_several_at_once() -> None:
    envs = gymnasium.make_vec("skep/Cluster-v0", num_envs=2, vectorization_mode="sync", jobs=10)
    seen, _ = envs.reset(seed=1)
    assert seen.shape == (2, 35)
    seen, rewards, *_ = envs.step([1, 1])
    assert rewards.shape == (2,)
    envs.close()


@pytest.mark.parametrize("given", [{"reward": "speed"}, {"slots": 0}])
def test_wrong_settings(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        skep.gym.ClusterEnv(**given)


def test_the_trained_policy_runs_everywhere_and_does_what_the_agent_does() -> None:
    trace = synthesize(jobs=60, load=1.2, gpus=8, vcs=1, seed=4)
    spec = importlib.util.spec_from_file_location("learned", LEARNED)
    assert spec is not None
    assert spec.loader is not None
    learned = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(learned)
    env = skep.gym.ClusterEnv("2x4", trace=trace)
    seen, info = env.reset(seed=0)
    is_over = False
    while not is_over:
        rated = scores(seen, learned.WEIGHTS)
        allowed = [slot for slot in range(len(rated)) if info["action_mask"][slot + 1]]
        action = 1 + max(allowed, key=lambda slot: (rated[slot], -slot)) if allowed else 0
        seen, _, is_over, _, info = env.step(action)
    run = skep.simulate(trace, cluster="2x4", policy=f"{LEARNED}:Learned").summary
    assert run.finished == 60
    assert run.jct_avg_s is not None
    assert info["jct_s"] == pytest.approx(run.jct_avg_s * 60)
