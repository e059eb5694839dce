"""What a forecast costs: 1,000 running and 1,000 pending jobs on 1,000 GPUs, 24 hours ahead, lengths drawn.

    python -m bench.forecast            all of it, about two minutes
    python -m bench.forecast --quick    one policy, 8 samples

CPU seconds of one sample and of 32, forks included, with the limits that the decision gives. Exits with 1 if one is
exceeded.
"""

from __future__ import annotations

import argparse

from skep.core.chance import draw
from skep.core.events import ClusterChanged, PolicyChanged
from skep.core.model import JobSpec, gpu_shape
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.samples import foresee
from skep.experiments.trial import BoundedWorld
from skep.service.copy import KeptCopy
from skep.service.loop import run
from skep.service.planning import Ground
from skep.service.store import StoredJob
from skep.traces.trace import TraceJob

JOBS, NODES, VCS = 2000, 125, 10
POLICIES = ("fifo", "tiresias-l", "yarn-cs", "srsf")
ONE_S, ALL_S, SAMPLES = 2.0, 20.0, 32


def cluster_text(vcs: int) -> str:
    nodes = f"nodes: [{{count: {NODES}, name: n, gpus: 8}}]\n"
    share = {f"vc{number}": f"{NODES * 8 // vcs} gpus" for number in range(vcs)} if vcs else {}
    return nodes + (f"vcs: {{{', '.join(f'{name}: {text}' for name, text in share.items())}}}\n" if vcs else "")


def length_s(number: int) -> float:
    """From 10 minutes to 10 hours, about 100 minutes in the middle."""
    return 600.0 * 60 ** ((draw(1, number) >> 11) * 2.0**-53)


def jobs(vcs: int) -> list[TraceJob]:
    return [
        TraceJob(
            number * 0.1,
            length_s(number),
            JobSpec(
                str(number + 1),
                (gpu_shape(1),),
                vc=f"vc{number % vcs}" if vcs else "default",
                user=f"user{number % 40}",
                expect_s=length_s(number),
            ),
        )
        for number in range(JOBS)
    ]


def crowded(policy: str, vcs: int) -> KeptCopy:
    """A state soon after all jobs were submitted."""
    ground = Ground()
    cluster = ground.follow([ClusterChanged("bench", cluster_text(vcs)), PolicyChanged(policy)])
    assert cluster is not None
    state = State(cluster)
    scheduler = Scheduler(state, ground.planner(cluster))
    run(scheduler, BoundedWorld(Simulator(jobs(vcs), cluster), JOBS * 0.1 + 60.0))
    rows = [
        StoredJob(int(job.id), "", job.spec.user, job.spec.vc, job.state, 0, 1.0, 0.0) for job in state.jobs.values()
    ]
    return KeptCopy(state, ground, {job.id: row for job, row in zip(state.jobs.values(), rows, strict=True)})


def measure(policy: str, vcs: int, samples: int) -> tuple[str, bool]:
    kept = crowded(policy, vcs)
    counts = [sum(job.state == name for job in kept.state.jobs.values()) for name in ("running", "pending")]
    one_s = foresee(kept, {}, now_s=kept.state.now_s, count=1).cpu_s
    found = foresee(kept, {}, now_s=kept.state.now_s, count=samples)
    ended = sum(job.end.p90_s is not None for job in found.jobs.values())
    line = f"{policy:12} {vcs or '-':>4} {counts[0]:8,} {counts[1]:8,} {one_s:8.2f} {found.cpu_s:8.2f} {ended:8,}"
    return line, one_s <= ONE_S and found.cpu_s <= ALL_S * samples / SAMPLES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    samples = 8 if quick else SAMPLES
    print(f"{'policy':12} {'VCs':>4} {'running':>8} {'pending':>8} {'1, s':>8} {f'{samples}, s':>8} {'ended':>8}")
    held = True
    for policy in POLICIES[:1] if quick else POLICIES:
        for vcs in (0,) if quick else (0, VCS):
            line, is_within = measure(policy, vcs, samples)
            held &= is_within
            print(line, "" if is_within else f"over the limit of {ONE_S:g} and {ALL_S:g} s", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
