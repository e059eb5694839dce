"""DistributedDataParallel on generated data. Run as it is, under torchrun, or as a Skep job (ddp.yaml).

    python ddp.py                                        one process
    torchrun --standalone --nproc-per-node=2 ddp.py      two

The lines marked with `# skep` are all that Skep needs. With --curve FILE every loss is appended there exactly
(float.hex), to compare an interrupted run with an uninterrupted one.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from skep import train  # skep


def generated(samples: int) -> TensorDataset:
    """Noisy classes of points, the same in every process."""
    chance = torch.Generator().manual_seed(7)
    points = torch.randn(samples, 16, generator=chance)
    return TensorDataset(points, (points[:, :4].sum(dim=1) > points[:, 4:8].sum(dim=1)).long())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds added to every step, to make it last")
    parser.add_argument("--workers", type=int, default=0, help="processes that load the data")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between checkpoints")
    parser.add_argument("--curve", default="", help="append every loss to this file")
    options = parser.parse_args()

    is_many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_many:
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
    if is_many:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    data = generated(options.samples)
    sampler = DistributedSampler(data, seed=3) if is_many else None
    loader = DataLoader(data, batch_size=64, sampler=sampler, shuffle=sampler is None, num_workers=options.workers)

    job = train.join(model=model, optimizer=optimizer, schedule=schedule, every_s=options.every)  # skep
    for _epoch in job.epochs(options.epochs):  # skep: was range(options.epochs)
        for points, labels in job.batches(loader):  # skep: was loader
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.report(loss=loss, samples=len(points))  # skep
            if options.curve:
                with open(f"{options.curve}.{job.rank}", "a", encoding="utf-8") as file:
                    file.write(f"{job.step} {loss.item().hex()}\n")
            time.sleep(options.sleep)
        schedule.step()
    if job.rank == 0:
        print(f"done after {job.step} steps", flush=True)
    if is_many:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
