"""A training script for the demo: logistic regression on made-up points, with the standard library only.

The GPUs are virtual, so the script sleeps for the time they would take: a step takes as long as the largest share of
its batch. With several tasks the first one trains; the others compute their shares for it, and exit when it exits.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import socket
import time
from collections.abc import Sequence

from skep import train

FEATURES, POINTS, BATCH, RATE, SEED = 8, 4800, 240, 0.1, 7
STEP_S = 0.1
CHECKPOINT_S = 1.0
CONNECT_S = 30.0

Point = tuple[list[float], float]
Slope = tuple[float, list[float]]
"""Loss and gradient, summed over a share of the batch."""


def make_points() -> list[Point]:
    """Labels follow a hidden direction, one in fifty is wrong: the model can learn, and the loss has a limit."""
    draw = random.Random(SEED)
    hidden = [draw.gauss(0, 1) for _ in range(FEATURES)]
    made = []
    for _ in range(POINTS):
        x = [draw.gauss(0, 1) for _ in range(FEATURES)]
        is_above = sum(a * b for a, b in zip(x, hidden, strict=True)) > 0
        made.append((x, float(is_above != (draw.random() < 0.02))))
    return made


def slope(weights: Sequence[float], share: Sequence[Point]) -> Slope:
    loss, gradient = 0.0, [0.0] * FEATURES
    for x, label in share:
        guess = 1 / (1 + math.exp(-sum(w * a for w, a in zip(weights, x, strict=True))))
        loss -= math.log(guess if label else 1 - guess)
        for at, a in enumerate(x):
            gradient[at] += (guess - label) * a
    return loss, gradient


def descend(weights: list[float], slopes: Sequence[Slope]) -> float:
    """One step, in place; the loss before it."""
    for at in range(FEATURES):
        weights[at] -= RATE * sum(gradient[at] for _, gradient in slopes) / BATCH
    return sum(loss for loss, _ in slopes) / BATCH


def share_of(points: Sequence[Point], step: int, rank: int, world_size: int) -> list[Point]:
    mine = train.indices(step, of=POINTS, batch=BATCH, seed=SEED, rank=rank, world_size=world_size)
    return [points[at] for at in mine]


def undisturbed(steps: int) -> list[float]:
    """The loss of every step of one task without interruptions."""
    points, weights = make_points(), [0.0] * FEATURES
    return [descend(weights, [slope(weights, share_of(points, step, 0, 1))]) for step in range(steps)]


def lead(steps: int) -> None:
    """The first task, the only one with something to save."""
    points, weights = make_points(), [0.0] * FEATURES
    job = train.join(weights=weights, every_s=CHECKPOINT_S)
    others = meet(job.world_size)
    is_first = True
    for step in job.steps(steps):
        if is_first:
            print(f"{'goes on' if step else 'starts'} at step {step}, tasks: {job.world_size}", flush=True)
        is_first = False
        for other in others:
            tell(other, {"step": step, "weights": weights})
        mine = compute(points, weights, step, 0, job.world_size)
        slopes = [mine, *(hear(other) for other in others)]
        loss = descend(weights, slopes)
        job.report(loss=loss, samples=BATCH)
        print(f"step {step} loss {loss!r}", flush=True)
    print("done", flush=True)


def help_out(rank: int, world_size: int) -> None:
    """When asked to stop, this task continues: the first task finishes its step, and closes the connection when it
    exits."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    points, first = make_points(), call()
    while asked := first.readline():
        step, weights = (json.loads(asked)[key] for key in ("step", "weights"))
        try:
            tell(first, compute(points, weights, step, rank, world_size))
        except OSError:
            return


def compute(points: Sequence[Point], weights: Sequence[float], step: int, rank: int, world_size: int) -> Slope:
    time.sleep(STEP_S / world_size)  # the GPU at work
    return slope(weights, share_of(points, step, rank, world_size))


class RankLink:
    """Lines of JSON, in both directions."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = connection.makefile("rwb")

    def readline(self) -> bytes:
        try:
            return self._file.readline()
        except OSError:
            return b""

    def write(self, text: str) -> None:
        self._file.write(text.encode() + b"\n")
        self._file.flush()


def tell(line: RankLink, value: object) -> None:
    line.write(json.dumps(value))


def hear(line: RankLink) -> Slope:
    loss, gradient = json.loads(line.readline())
    return loss, gradient


def meet(world_size: int) -> list[RankLink]:
    """The connections to the other tasks, in the order of arrival: sums differ by rounding at most."""
    if world_size == 1:
        return []
    with socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))) as door:
        door.settimeout(CONNECT_S)
        return [RankLink(door.accept()[0]) for _ in range(world_size - 1)]


def call() -> RankLink:
    by_s = time.monotonic() + CONNECT_S
    while True:
        try:
            return RankLink(socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))))
        except OSError:
            if time.monotonic() > by_s:
                raise
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if rank:
        help_out(rank, world_size)
    else:
        lead(steps)


if __name__ == "__main__":
    main()
