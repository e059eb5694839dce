"""How fast is the environment for agents? `python -m bench.agents`: steps per second of CPU time, beside the jobs per
second of the bare simulator on the same trace."""

from __future__ import annotations

import time

import skep.gym
from skep.experiments.simulate import Experiment
from skep.traces.synth import synthesize

CLUSTER, GPUS, JOBS, ROUNDS = "2x4", 8, 1000, 5


def steps_per_s(env: skep.gym.ClusterEnv) -> float:
    began_s, steps, is_over = time.process_time(), 0, False
    _, info = env.reset(seed=1)
    while not is_over:
        mask = info["action_mask"]
        _, _, is_over, _, info = env.step(next((action for action in range(1, len(mask)) if mask[action]), 0))
        steps += 1
    return steps / (time.process_time() - began_s)


def main() -> None:
    trace = synthesize(jobs=JOBS, load=1.0, gpus=GPUS, vcs=1, seed=1)
    env = skep.gym.ClusterEnv(CLUSTER, trace=trace)
    bare = Experiment(trace, env.cluster)
    steps, jobs = [], []
    for _ in range(ROUNDS):
        steps.append(steps_per_s(env))
        began_s = time.process_time()
        bare.run("fifo:walk=skip")
        jobs.append(JOBS / (time.process_time() - began_s))
    best, rate = max(steps), max(jobs)
    print(f"{best:,.0f} steps/s; {rate:,.0f} jobs/s of the bare simulator; {best / rate:.2f} steps for a job")


if __name__ == "__main__":
    main()
