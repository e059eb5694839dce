"""Results of simulations: summaries, frames and plots.

The tables of what happened during a run (`timeline`, `decisions`) and its plots take memory and time, so they are made
when they are first read, by running the simulation once more: it is deterministic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.core.plan import Decision
from skep.experiments.output import summary_dict
from skep.experiments.simulate import Experiment
from skep.files.text import write_aside
from skep.metrics.run import JobRow, Run, RunHistory, Summary
from skep.report.html import render_report
from skep.research.frames import columns_of, frame

DECISION_COLUMNS = ("at_s", "job_id", "kind", "gpus_before", "gpus_after", "nodes", "cause")


class SimulatedRun:
    """One policy on one trace and one cluster."""

    def __init__(self, experiment: Experiment, policy: str, run: Run) -> None:
        self.experiment = experiment
        self.policy = policy
        self.run = run

    @property
    def summary(self) -> Summary:
        """The fields of summary.json."""
        return self.run.summary

    @functools.cached_property
    def jobs(self) -> Any:
        """A frame with the rows of jobs.csv."""
        return frame(columns_of(JobRow, self.run.rows))

    @functools.cached_property
    def timeline(self) -> Any:
        """A frame of `at_s`, `pending_jobs` and `busy_gpus`; a row is valid until the next."""
        history = self.with_history.history or RunHistory()
        return frame({"at_s": history.at_s, "pending_jobs": history.pending_jobs, "busy_gpus": history.busy_gpus})

    @functools.cached_property
    def decisions(self) -> Any:
        """A frame of every decision of the policy, in order."""
        rows: list[tuple[object, ...]] = []
        names = self.run.node_names

        def note(at_s: float, decisions: Sequence[Decision]) -> None:
            rows.extend(decision_row(at_s, decision, names) for decision in decisions)

        self.experiment.run(self.policy, on_decisions=note)
        return frame({name: [row[at] for row in rows] for at, name in enumerate(DECISION_COLUMNS)})

    @functools.cached_property
    def with_history(self) -> Run:
        options = msgspec.structs.replace(self.experiment.options, keep_history=True)
        return msgspec.structs.replace(self.experiment, options=options).run(self.policy)

    def plot(self) -> Plot:
        """Distributions, queue and GPUs over time: the report of `skep compare`, for a notebook."""
        return ComparedRuns({self.policy: self}).plot()

    def __repr__(self) -> str:
        summary = self.summary
        jct = "" if summary.jct_avg_s is None else f", average JCT {summary.jct_avg_s:,.0f} s"
        return f"<{self.policy} on {summary.cluster}: {summary.finished:,} of {summary.jobs:,} jobs finished{jct}>"


class ComparedRuns(Mapping[str, SimulatedRun]):
    """Several runs by their labels: the policy, and the cluster and the seed where there are several."""

    def __init__(self, runs: Mapping[str, SimulatedRun], failed: Mapping[str, Exception] | None = None) -> None:
        self.runs = runs
        self.failed = failed or {}
        """Labels of runs that raised, with the error."""

    def __getitem__(self, label: str) -> SimulatedRun:
        return self.runs[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @functools.cached_property
    def summary(self) -> Any:
        """A frame with a row for each run."""
        rows = [summary_dict(each.run) for each in self.runs.values()]
        names = Summary.__struct_fields__
        return frame({"label": list(self.runs)} | {name: [row[name] for row in rows] for name in names})

    def plot(self) -> Plot:
        return Plot(self.page())

    def page(self) -> str:
        """The report of `skep compare` as HTML."""
        runs = [each.with_history.named(label) for label, each in self.runs.items()]
        summaries = [each.summary for each in self.runs.values()]
        clusters = ", ".join(dict.fromkeys(summary.cluster for summary in summaries))
        return render_report(runs, title=f"{summaries[0].trace} on {clusters}" if summaries else "No runs")

    def save(self, file: str | Path) -> None:
        """Write the report."""
        write_aside(Path(file), self.page())

    def __repr__(self) -> str:
        lines = [repr(each) for each in self.runs.values()]
        return "\n".join([*lines, *(f"<{label} failed: {error}>" for label, error in self.failed.items())])


class Plot:
    """A page that a notebook shows in a frame of its own, so that its styles and scripts stay inside."""

    HEIGHT_PX = 900

    def __init__(self, page: str) -> None:
        self.page = page

    def _repr_html_(self) -> str:
        inside = self.page.replace("&", "&amp;").replace('"', "&quot;")
        style = f"width:100%;height:{self.HEIGHT_PX}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{inside}"></iframe>'


def decision_row(at_s: float, decision: Decision, names: Sequence[str]) -> tuple[object, ...]:
    before, after = (0 if each is None else each.gpu_count() for each in (decision.before, decision.after))
    nodes = () if decision.after is None else sorted({names[piece.node] for piece in decision.after.slices})
    return at_s, decision.job_id, decision.kind, before, after, "+".join(nodes), decision.cause
