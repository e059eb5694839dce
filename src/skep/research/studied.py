"""`skep.study`: what `skep study` does, for a program or a notebook."""

from __future__ import annotations

import functools
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from skep.core.errors import InputError
from skep.experiments.study.choose import clusters_of, variation
from skep.experiments.study.outcome import file_digest
from skep.experiments.study.page import render_study
from skep.experiments.study.recommend import Recommendation
from skep.experiments.study.study import Study, StudyQuestion, run_study
from skep.experiments.study.tables import run_rows, summary_rows, tested_rows, write_study
from skep.experiments.study.words import advice, advice_text
from skep.files.text import write_aside
from skep.research.frames import frame
from skep.research.runs import Plot
from skep.research.simulated import Named, RunOptions, Traced, experiments_of, spec_of


class StudyResult:
    """The results of a study as frames, and in words."""

    def __init__(self, made: Study) -> None:
        self.made = made

    @functools.cached_property
    def runs(self) -> Any:
        """A frame with a row for each run; repetition 0 is the trace as it is."""
        return framed(run_rows(self.made))

    @functools.cached_property
    def summary(self) -> Any:
        """A frame with a row for each policy and cluster: every measure, and the ends of its interval (`_low`,
        `_high`)."""
        return framed(summary_rows(self.made))

    @functools.cached_property
    def tests(self) -> Any:
        """A frame with a row for each policy that could be used: how it differs from the best one, and by chance or
        not."""
        return framed(tested_rows(self.made))

    @property
    def recommendation(self) -> Recommendation:
        """Of the first cluster."""
        return self.made.recommendations[0]

    @property
    def recommendations(self) -> dict[str, Recommendation]:
        """By cluster."""
        return {each.cluster: each for each in self.made.recommendations}

    @property
    def left_out(self) -> dict[str, str]:
        """Policies that were not run, with the reason."""
        return self.made.left_out

    @property
    def failed(self) -> dict[str, str]:
        """Policies that raised, with the error."""
        return self.made.failed

    def plot(self) -> Plot:
        """The page, for a notebook."""
        return Plot(render_study(self.made))

    def save(self, file: str | Path) -> None:
        """Write the page."""
        write_aside(Path(file), render_study(self.made))

    def __repr__(self) -> str:
        return advice_text(self.made).rstrip()

    def _repr_html_(self) -> str:
        items = "".join(
            f"<dt><b>{html.escape(heading)}</b></dt><dd>{html.escape(text)}</dd>"
            for found in self.made.recommendations
            for heading, text in (("Cluster", found.cluster), *advice(found))
        )
        return f"<dl>{items}</dl>"


def framed(rows: Sequence[dict[str, object]]) -> Any:
    return frame({name: [row[name] for row in rows] for name in rows[0]} if rows else {})


def study(
    trace: Traced,
    *,
    cluster: str | Sequence[str],
    policies: Sequence[Named] = (),
    vary: str | None = None,
    seeds: int = 10,
    bootstrap: bool = True,
    by: str = "jct_avg_s",
    profile: str | Path | None = None,
    parallel: int = 1,
    out: str | Path | None = None,
    **options: Unpack[RunOptions],
) -> StudyResult:
    """Every policy that the trace and the profile can serve (or those given), repeated on bootstraps of the trace.

    `cluster` may be a range (`8..20x8`), `vary` several values of a knob (`tiresias-l:queues=1000,3250`); `by` is the
    measure that decides. With `out`, runs are kept in that folder and not run again.
    """
    if parallel < 1:
        raise InputError(f"parallel is {parallel}, expected 1 or more")
    specs = tuple(spec_of(policy) for policy in policies)
    varied = variation(vary) if vary is not None else None
    clusters = clusters_of([cluster] if isinstance(cluster, str) else cluster)
    if not clusters:
        raise InputError("study needs a cluster")
    named = [*specs, *(varied.policies if varied is not None else ())]
    worlds = experiments_of(trace, clusters, named, profile, [0], options)
    question = StudyQuestion(tuple(worlds), specs, varied, seeds, bootstrap, by, file_digest(profile))
    folder = None if out is None else Path(out)
    made = run_study(question, parallel=parallel, folder=folder)
    if folder is not None:
        write_study(made, folder)
    return StudyResult(made)
