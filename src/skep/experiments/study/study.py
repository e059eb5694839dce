"""Plans the runs of a study, runs those that are not in its journal, and puts the results together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import msgspec

from skep.core.errors import InputError, did_you_mean
from skep.core.model import told
from skep.experiments.parallel import as_they_end
from skep.experiments.simulate import Experiment
from skep.experiments.study.analyse import Side, sides_of
from skep.experiments.study.choose import Candidate, Variation, candidates
from skep.experiments.study.outcome import MEASURES, RunOutcome, StudyJournal, digest
from skep.experiments.study.recommend import Recommendation, recommend
from skep.policies.own import NOTEBOOK
from skep.policies.registry import files_of
from skep.traces.bootstrap import Blocks, blocks_of, bootstrap
from skep.traces.trace import Trace

Report = Callable[[int, int], None]
"""Called with the number of runs that are done, and of all."""


class StudyQuestion(msgspec.Struct, frozen=True):
    """What is studied."""

    experiments: tuple[Experiment, ...]
    """One for each cluster, on the same trace."""
    policies: tuple[str, ...] = ()
    """Empty: all that the trace and the profile can serve."""
    variation: Variation | None = None
    repetitions: int = 10
    is_drawn: bool = True
    """Each repetition has a bootstrap of the trace and a seed of its own; False: a seed alone."""
    measure: str = "jct_avg_s"
    profile: str = ""
    """The digest of the profile's file."""

    def check(self) -> StudyQuestion:
        if not 1 <= self.repetitions <= 1000:
            raise InputError(f"seeds is {self.repetitions}, expected 1 to 1,000")
        if self.measure not in MEASURES:
            raise InputError(f"'{self.measure}' is not a measure", hint=did_you_mean(self.measure, MEASURES, most=3))
        options = self.experiments[0].options
        if not (self.is_drawn or self.repetitions == 1 or options.failures or options.estimate_error):
            raise InputError(
                "without bootstraps every repetition would be the same run: nothing in it depends on the seed",
                hint="give failures or an estimate error, or leave the bootstraps on",
            )
        return self


class RepeatedRun(msgspec.Struct, frozen=True):
    """One run that is planned."""

    key: str
    experiment: Experiment
    policy: str
    repetition: int
    blocks: Blocks | None

    def __call__(self) -> RunOutcome:
        named = RunOutcome(self.key, self.policy, self.experiment.cluster.name, self.repetition)
        try:
            summary = repeated(self.experiment, self.blocks, self.repetition).run(self.policy).summary
        except Exception as error:  # of one policy: the others go on, and the study shows it
            return msgspec.structs.replace(named, error=f"{type(error).__name__}: {error}"[:500])
        values = {name: rounded(getattr(summary, name)) for name in MEASURES}
        ms = summary.decision_avg_ms
        return msgspec.structs.replace(named, oracle=summary.oracle, values=values, decision_ms=ms)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


@functools.lru_cache(maxsize=1)
def drawn_trace(trace_id: int, blocks: Blocks, repetition: int) -> Trace:
    return bootstrap(_traces[trace_id], blocks, repetition)


_traces: dict[int, Trace] = {}
"""By their ids: a trace is no key of a cache, and it lives as long as its study."""


def repeated(experiment: Experiment, blocks: Blocks | None, repetition: int) -> Experiment:
    """Repetition 0 of a study by bootstraps is the trace as it is."""
    options = msgspec.structs.replace(experiment.options, seed=experiment.options.seed + repetition)
    if blocks is None or repetition == 0:
        return msgspec.structs.replace(experiment, options=options)
    _traces[id(experiment.trace)] = experiment.trace
    trace = drawn_trace(id(experiment.trace), blocks, repetition)
    return msgspec.structs.replace(experiment, options=options, trace=trace)


class Study:
    """The results of a study."""

    def __init__(
        self,
        question: StudyQuestion,
        found: Sequence[Candidate],
        left_out: dict[str, str],
        outcomes: Sequence[RunOutcome],
    ) -> None:
        self.question = question
        self.candidates = list(found)
        self.left_out = left_out
        """Policies that were not run, with the reason."""
        self.outcomes = list(outcomes)
        self.failed = {each.policy: each.error for each in outcomes if each.error}
        known = {each.policy: (each.needs, each.group) for each in found}
        self.sides = sides_of(
            [each for each in outcomes if each.policy not in self.failed], known, is_drawn=self.is_drawn
        )

    @property
    def is_drawn(self) -> bool:
        return self.question.is_drawn

    @property
    def trace(self) -> Trace:
        return self.question.experiments[0].trace

    @property
    def clusters(self) -> list[str]:
        return [each.cluster.name for each in self.question.experiments]

    def on(self, cluster: str) -> list[Side]:
        return [side for side in self.sides if side.cluster == cluster]

    @functools.cached_property
    def recommendations(self) -> list[Recommendation]:
        """One for each cluster."""
        return [recommend(self.on(cluster), self.question.measure) for cluster in self.clusters]

    @property
    def method(self) -> str:
        """How the repetitions were made, in a sentence."""
        count = self.question.repetitions
        if not self.is_drawn:
            return f"{count} runs of each policy with different seeds"
        blocks = blocks_of(self.trace)
        what = f"by {blocks.name}s ({blocks.count:,} of them)"
        return f"the trace as it is, and {count} bootstraps of it {what}"


def plan_study(question: StudyQuestion) -> tuple[list[RepeatedRun], list[Candidate], dict[str, str]]:
    """All runs, those of one repetition together. What cannot be built is refused before anything runs."""
    varied = tuple(question.variation.policies) if question.variation is not None else ()
    found, left_out = candidates(question.experiments[0], (*question.policies, *varied))
    if not found:
        raise InputError("no policy can be served by this trace", hint="name some with --policy")
    for experiment in question.experiments:
        for each in found:
            experiment.planner(each.policy)
    blocks = blocks_of(question.experiments[0].trace) if question.is_drawn else None
    numbers = range(question.repetitions + 1) if question.is_drawn else range(question.repetitions)
    trace = trace_digest(question.experiments[0].trace)
    return (
        [
            RepeatedRun(
                key_of(question, trace, experiment, each.policy, number), experiment, each.policy, number, blocks
            )
            for number in numbers
            for experiment in question.experiments
            for each in found
        ],
        found,
        left_out,
    )


def trace_digest(trace: Trace) -> str:
    return digest([(job.submit_s, job.work_s, told(job.spec)) for job in trace.jobs], trace.groups)


def key_of(question: StudyQuestion, trace: str, experiment: Experiment, policy: str, number: int) -> str:
    """Of everything that determines a run."""
    options = msgspec.structs.asdict(experiment.options)
    cluster = (experiment.cluster.name, experiment.cluster.specs, experiment.layout, experiment.sharing)
    own = {path: experiment.texts.by_path.get(path, "") for path in files_of(policy)}
    return digest(
        version("skep"), trace, digest(cluster), options, question.profile, question.is_drawn, policy, own, number
    )


def run_study(
    question: StudyQuestion, *, parallel: int = 1, folder: Path | None = None, report: Report | None = None
) -> Study:
    """`folder`: where runs are kept, and found by the next study."""
    runs, found, left_out = plan_study(question.check())
    journal = StudyJournal(folder)
    left = [run for run in runs if run.key not in journal.known or run.policy.startswith(NOTEBOOK)]
    done = len(runs) - len(left)
    with closing(as_they_end(left, parallel)) as results:
        for _, outcome in results:
            journal.add(outcome)
            done += 1
            if report is not None:
                report(done, len(runs))
    return Study(question, found, left_out, [journal.known[run.key] for run in runs])
