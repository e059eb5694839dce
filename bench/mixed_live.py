"""Policies for mixed clusters with real jobs: `python -m bench.mixed_live [POLICY …]`.

Two virtual GPU types, one of them slower, by how much depends on the model. Jobs of two users train small networks at a
given pace with PyTorch and `skep.train`; no profile says how fast they are, so policies measure. All jobs must succeed,
no step may be lost, and the log must lead to the state of the server; the table shows which speeds were learned.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.snapshot import snapshot

from skep.core.needs import offered_needs
from skep.engines.local.engine import LocalEngine, local_capabilities
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.recover import recover
from skep.service.store import JobFilter, Store

CLUSTER = """
nodes:
- {name: f, gpus: 2, gpu_type: fast}
- {name: s, gpus: 2, gpu_type: slow, speed: {heavy: 0.3, light: 0.8}}
"""
POLICIES = (
    "gavel-las:round_s=4,probe=8",
    "allox:probe=8",
    "themis:lease=8,probe=8",
    "gandiva-fair:quantum=3,cool_down=10,probe=8",
)
SCRIPT = """
import sys, time
import skep.train

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
kept = {}
if "torch" in sys.argv:
    import torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    kept = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.01)}
job = skep.train.join(every_s=2.0, **kept)
for step in job.steps(steps):
    until_s = time.process_time() + step_s
    if kept:
        loss = (model(torch.ones(4, 8)) - 1).pow(2).mean()
        kept["optimizer"].zero_grad()
        loss.backward()
        kept["optimizer"].step()
    while time.process_time() < until_s:  # the rest of the pace: work, not sleep, so that a slow GPU matters
        pass
    job.report(loss=float(loss.detach()) if kept else 0.0)
"""
STATES = ("pending", "launching", "running", "suspended", "stopping")


class LiveFound(NamedTuple):
    policy: str
    states: dict[str, int]
    starts: int
    speeds: dict[tuple[str, str], float]
    """Steps per second by model and GPU type."""
    is_same: bool
    """Whether the log alone leads to the state."""
    seconds: float


def requests(steps: int, step_s: float, *, torch: bool) -> list[Request]:
    """Two users with three jobs each; the last job of each is a gang of two GPUs."""
    found = []
    for user, model in (("ann", "heavy"), ("ben", "light")):
        for gpus in (1, 1, 2):
            more = ["torch"] if torch else []
            line = (sys.executable, "-c", SCRIPT, str(steps), str(step_s), *more)
            tasks = {"main": TaskRole(gpus=gpus, argv=line, env={"OMP_NUM_THREADS": "1"})}
            found.append(Request("job", tasks, user=user, model=model, expect_s=2 * steps * step_s, grace_s=30.0))
    return found


def run(folder: Path, policy: str, *, steps: int = 400, step_s: float = 0.01, torch: bool = True) -> LiveFound:
    store = Store(folder / "skep.db")

    def engine(live: Live) -> LocalEngine:
        return LocalEngine(folder, live.writer.state.cluster.blank(), live.request_of, live.tell)

    offers = offered_needs(local_capabilities())
    began_s = time.monotonic()
    live = Live(store, engine, time.time, cluster=("lab.yaml", CLUSTER), policy=policy, offers=offers)
    try:
        for request in requests(steps, step_s, torch=torch):
            live.submit([request], request.user).result(60)
        while any(live.stats()["jobs"].get(state, 0) for state in STATES) and time.monotonic() - began_s < 900:
            time.sleep(0.2)
    finally:
        for row in [row for row in store.jobs(JobFilter(all=True), 100, None) if row.finish_s is None]:
            live.stop(str(row.seq), "root").result(60)
        rows = store.jobs(JobFilter(all=True), 100, None)
        live.close()
    seconds = time.monotonic() - began_s
    again = Store(folder / "skep.db")
    state, _ = recover(again, from_start=True)
    again.close()
    is_same = snapshot(state)["jobs"] == snapshot(live.writer.state)["jobs"]
    speeds = {
        (key.model, key.gpu_type): tally.mean for key, tally in live.writer.state.known.speeds.items() if key.gpus == 1
    }
    states = {each: sum(row.state == each for row in rows) for each in {row.state for row in rows}}
    return LiveFound(policy, states, sum(row.attempts for row in rows), speeds, is_same, seconds)


def main() -> None:
    is_good = True
    print(f"{'policy':44} {'ended':>18} {'starts':>6} {'slow / fast, heavy':>18} {'light':>6} {'replay':>7} {'s':>5}")
    for policy in sys.argv[1:] or POLICIES:
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), policy)
        ratios = [ratio(found, model) for model in ("heavy", "light")]
        replay = "same" if found.is_same else "OTHER"
        ended = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items()))
        print(
            f"{policy:44} {ended:>18} {found.starts:6} {ratios[0]:>18} {ratios[1]:>6} {replay:>7} {found.seconds:5.0f}"
        )
        is_good = is_good and found.is_same and found.states == {"succeeded": 6}
    sys.exit(not is_good)


def ratio(found: LiveFound, model: str) -> str:
    both = [found.speeds.get((model, gpu_type)) for gpu_type in ("slow", "fast")]
    return f"{both[0] / both[1]:.2f}" if both[0] and both[1] else "-"


if __name__ == "__main__":
    main()
