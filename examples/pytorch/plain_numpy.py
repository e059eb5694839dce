"""The same without torch: a small network in numpy, one process. Run as it is or as a Skep job (numpy.yaml).

Objects without state_dict are kept as they are: dicts, lists, arrays and random generators.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from skep import train  # skep

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds added to every step, to make it last")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between checkpoints")
    parser.add_argument("--curve", default="", help="append every loss to this file")
    options = parser.parse_args()

    points = np.random.default_rng(7).normal(size=(4096, 8))
    targets = np.sin(points[:, :3].sum(axis=1))
    noise = np.random.default_rng(1)
    hidden, out = noise.normal(size=(8, 32)) / 3, noise.normal(size=32) / 6

    job = train.join(hidden=hidden, out=out, noise=noise, every_s=options.every)  # skep
    for step in job.steps(options.steps):  # skep: was range(options.steps)
        mine = job.indices(step, of=len(points), batch=BATCH * job.world_size, seed=3)  # skep
        x = points[mine] + noise.normal(scale=0.01, size=(BATCH, 8))
        active = np.tanh(x @ hidden)
        error = active @ out - targets[mine]
        loss = float((error**2).mean())
        slope = np.outer(error, out) * (1 - active**2)
        out -= 0.1 * active.T @ error / BATCH
        hidden -= 0.1 * x.T @ slope / BATCH
        job.report(loss=loss, samples=BATCH)  # skep
        if options.curve:
            with open(f"{options.curve}.{job.rank}", "a", encoding="utf-8") as file:
                file.write(f"{step} {loss.hex()}\n")
        time.sleep(options.sleep)
    print(f"done after {job.step} steps", flush=True)


if __name__ == "__main__":
    main()
