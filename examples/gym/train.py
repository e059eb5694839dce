"""Train the three weights of learned.py by the cross-entropy method: python train.py

Each generation draws weights, plays the same episodes with each, and goes on from the best quarter.
"""

import re
from pathlib import Path

import numpy

import skep.gym
from skep.gym.observe import scores

GENERATIONS, DRAWN, KEPT, EPISODES, JOBS = 8, 16, 4, 3, 120


def play(env: skep.gym.ClusterEnv, weights: list[float], seed: int) -> float:
    """The return of one episode of an agent that always starts the job with the highest score."""
    seen, info = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        rated = scores(seen, weights)
        allowed = [slot for slot in range(len(rated)) if info["action_mask"][slot + 1]]
        action = 1 + max(allowed, key=lambda slot: (rated[slot], -slot)) if allowed else 0
        seen, reward, is_over, _, info = env.step(action)
        total += reward
    return total


def train(seed: int = 0) -> list[float]:
    draw = numpy.random.default_rng(seed)
    env = skep.gym.ClusterEnv("4x8", jobs=JOBS, load=1.2, reward="slowdown")
    mean, spread = numpy.zeros(3), numpy.ones(3)
    for generation in range(GENERATIONS):
        drawn = draw.normal(mean, spread, (DRAWN, 3))
        drawn[:, 2] = 0.0  # only jobs that fit are compared
        episodes = range(generation * EPISODES, (generation + 1) * EPISODES)
        returns = [sum(play(env, list(weights), episode) for episode in episodes) for weights in drawn]
        best = drawn[numpy.argsort(returns)[-KEPT:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
        print(f"generation {generation}: best {max(returns):,.0f}, weights {mean.round(3)}")
    return [round(float(weight), 3) for weight in mean / max(abs(mean).max(), 1e-9)]


if __name__ == "__main__":
    file = Path(__file__).with_name("learned.py")
    weights = ", ".join(str(weight) for weight in train())
    file.write_text(re.sub(r"WEIGHTS = \(.*\)", f"WEIGHTS = ({weights})", file.read_text()))
    print(f"wrote {file}: {weights}")
