"""The solver of Pollux: fits, the speed-ups that follow from them, and the search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skep.policies.estimate.goodput import BatchBounds, BestGoodputs, GradientNoise, best_goodputs, fit_steps
from skep.policies.pollux.problem import GivenPlace, GoodputAnswer, GoodputProblem, SoughtJob
from skep.policies.pollux.search import DivisionLimits, DivisionScores, GoodputSearch, Ints


def solve(problem: GoodputProblem) -> GoodputAnswer:
    if not problem.nodes:
        return GoodputAnswer({job.seq: GivenPlace({}) for job in problem.jobs})
    known = [goodputs_of(job) for job in problem.jobs]
    now = table_of(problem)
    limits = limits_of(problem)
    gpus = max(sum(node.gpus for node in problem.nodes), 1)
    kept = np.array([job.kept if job.now else 1.0 for job in problem.jobs])
    scores = DivisionScores(speedups_of(problem, known), now, kept, len(problem.nodes) / gpus, problem.power)
    search = GoodputSearch(limits, scores, problem.seed, problem.population)
    found, score = search.best(now, problem.generations)
    jobs = {}
    for job, best, row in zip(problem.jobs, known, found, strict=True):
        tasks = {problem.nodes[place].index: int(count) for place, count in enumerate(row) if count}
        batch = 0
        if best is not None and tasks:
            batch = int(best.batch[int(len(tasks) > 1), int(row.sum()) * job.task_gpus - 1])
        jobs[job.seq] = GivenPlace(tasks, batch)
    return GoodputAnswer(jobs, score, float(scores.of(now[None])[0]))


def goodputs_of(job: SoughtJob) -> BestGoodputs | None:
    """None: it has shown nothing."""
    shown = job.shown
    if not shown.steps or job.batches is None:
        return None
    bounds = BatchBounds(*job.batches, *shown.samples)
    return best_goodputs(fit_steps(shown.steps), GradientNoise(shown.sqr, shown.var), bounds, job.most * job.task_gpus)


def speedups_of(problem: GoodputProblem, known: list[BestGoodputs | None]) -> npt.NDArray[np.float64]:
    """Against one GPU, by job, on one node or several, and tasks. A job that has shown nothing is taken to be as many
    times faster as it has GPUs."""
    found = np.zeros((len(problem.jobs), 2, max(job.most for job in problem.jobs) + 1))
    for row, (job, best) in enumerate(zip(problem.jobs, known, strict=True)):
        gpus = np.arange(1, job.most + 1) * job.task_gpus
        if best is None:
            found[row, :, 1 : job.most + 1] = gpus
        else:
            found[row, :, 1 : job.most + 1] = best.goodput[:, gpus - 1] / best.goodput[0, 0]
    return found


def table_of(problem: GoodputProblem) -> Ints:
    """The present division."""
    now = np.zeros((len(problem.jobs), len(problem.nodes)), dtype=np.int64)
    for row, job in enumerate(problem.jobs):
        for place, tasks in job.now.items():
            now[row, place] = tasks
    return now


def limits_of(problem: GoodputProblem) -> DivisionLimits:
    jobs, nodes = problem.jobs, problem.nodes
    kinds = np.array([node.kind for node in nodes])
    return DivisionLimits(
        room=np.array([node.gpus for node in nodes]),
        kinds=kinds,
        spread=np.array([node.has_spread for node in nodes]),
        task_gpus=np.array([job.task_gpus for job in jobs]),
        least=np.array([job.least for job in jobs]),
        most=np.array([job.most for job in jobs]),
        allowed=np.array([[kind in job.kinds for kind in kinds] for job in jobs]),
    )
