"""Training that may be resized: stopped with four ranks, started again with two, and back. The batch of a step holds
the same samples whatever the number of ranks, so a resize changes the losses by rounding only.

    torchrun --standalone --nproc-per-node=4 elastic.py

As a Skep job: elastic.yaml. The lines marked with `# skep` are all that Skep needs.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from skep import train  # skep

BATCH = 96  # of all ranks together: can be split among 1, 2, 3, 4, 6 and 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds added to every step, to make it last")
    parser.add_argument("--curve", default="", help="append every loss to this file")
    options = parser.parse_args()

    is_many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_many:
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    points = torch.randn(4800, 8, generator=torch.Generator().manual_seed(7))
    targets = points.square().sum(dim=1, keepdim=True)
    model: nn.Module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    if is_many:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    job = train.join(model=model, optimizer=optimizer)  # skep
    for step in job.steps(options.steps):  # skep: was range(options.steps)
        mine = job.indices(step, of=len(points), batch=BATCH, seed=3)  # skep
        loss = nn.functional.mse_loss(model(points[mine]), targets[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss, samples=len(mine))  # skep
        if options.curve:
            with open(f"{options.curve}.{job.rank}", "a", encoding="utf-8") as file:
                file.write(f"{step} {loss.item().hex()}\n")
        time.sleep(options.sleep)
    if job.rank == 0:
        print(f"done after {job.step} steps with {job.world_size} ranks at the end", flush=True)
    if is_many:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
