"""Five shapes that the literature and our pages show, each made from Python in a few lines: python shapes.py"""

import skep
from skep.traces.synth import synthesize

JOBS = synthesize(jobs=600, load=1.1, gpus=64, vcs=3, seed=1)
CLUSTER = "5x8"


def order_of_policies() -> dict[str, float]:
    """First come first served is far behind; attained service comes near to known durations (Tiresias; our README)."""
    compared = skep.compare(JOBS, cluster=CLUSTER, policies=["fifo", "fifo:walk=skip", "tiresias-l", "srsf"])
    return {policy: run.summary.jct_avg_s for policy, run in compared.items()}


def short_jobs_gain() -> dict[str, float]:
    """Half of the jobs hardly wait under attained service; the longest pay for it."""
    found = {}
    for policy in ("fifo:walk=skip", "las"):
        jobs = skep.simulate(JOBS, cluster=CLUSTER, policy=policy).run.rows
        slow = sorted(row.jct_s / max(row.run_s, 10.0) for row in jobs if row.jct_s is not None)
        found[policy] = slow[int(len(slow) * 0.9)]
    return found


def more_nodes() -> dict[str, float]:
    """Waiting falls faster than the cluster grows, and then stays: where to stop buying."""
    clusters = [f"{nodes}x8" for nodes in (5, 6, 9, 18)]
    compared = skep.compare(JOBS, cluster=clusters, policies=["fifo:walk=skip"])
    return {cluster: run.summary.queue_avg_s for cluster, run in zip(clusters, compared.values(), strict=True)}


def wrong_estimates() -> dict[float, float]:
    """Shortest first suffers from wrong estimates, little at first."""
    errors = (0.0, 0.5, 3.0)
    return {
        error: skep.simulate(JOBS, cluster=CLUSTER, policy="srsf", estimate_error=error).summary.jct_avg_s
        for error in errors
    }


def dear_restarts() -> dict[float, float]:
    """A policy that preempts pays for restarts with GPU time that is held and not busy."""
    found = {}
    for restart_s in (0.0, 60.0, 600.0):
        summary = skep.simulate(JOBS, cluster=CLUSTER, policy="las", restart_s=restart_s).summary
        found[restart_s] = summary.utilization - summary.busy
    return found


SHAPES = (order_of_policies, short_jobs_gain, more_nodes, wrong_estimates, dear_restarts)

if __name__ == "__main__":
    for shape in SHAPES:
        print(shape.__doc__, *(f"  {name}: {value:,.3g}" for name, value in shape().items()), sep="\n")
