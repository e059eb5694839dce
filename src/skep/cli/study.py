"""`skep study`."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies
from skep.cli.say import say_note, warn
from skep.cli.simulate import WORLD, check_html, make_experiments, with_options
from skep.core.errors import InputError

if TYPE_CHECKING:
    from skep.experiments.study.study import Study, StudyQuestion

OUT = Path("study")


@click.command()
@with_options(
    click.argument("trace", metavar="TRACE"),
    click.option(
        "--cluster",
        "clusters",
        required=True,
        multiple=True,
        metavar="SPEC",
        help="As for simulate; 8..20x8 is a range of sizes, 8..20..4x8 one with a step.",
    ),
    click.option(
        "--policy",
        "policies",
        multiple=True,
        metavar="P",
        help="Compare only these; may be repeated.  [default: all that trace and profile can serve]",
        shell_complete=complete_policies,
    ),
    click.option(
        "--vary",
        metavar="P:KNOB=V,V,…",
        help="Compare values of one knob: tiresias-l:queues=1000,3250,3250+7200.",
    ),
    click.option("--seeds", default=10, show_default=True, metavar="N", help="Repetitions of every policy."),
    click.option(
        "--bootstrap/--no-bootstrap",
        default=True,
        help="Draw the trace anew for each repetition, by weeks (days or hours, if it is short).  [default: yes]",
    ),
    click.option("--by", default="jct_avg_s", show_default=True, metavar="MEASURE", help="What decides."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=OUT,
        show_default=True,
        metavar="DIR",
        help="Where the runs are kept: the same command goes on where it was interrupted.",
    ),
    click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON list."),
    click.option("--force", is_flag=True, help="Replace what --html names."),
    click.option("--seed", "first_seed", default=0, metavar="S", help="The first seed.  [default: 0]"),
    *WORLD,
    click.option("--parallel", type=int, metavar="N", help="Runs at the same time.  [default: one for each CPU]"),
)
def study(**given: Any) -> None:
    """Find the policy that fits a cluster: every policy that TRACE can serve, repeated, with intervals and tests.

    Ends with a recommendation: which policy, what it would need, and how sure that is. Policies that know durations
    are marked and never win. Runs are kept as they end: Ctrl-C loses none, and a study with more policies or seeds runs
    only what is new.

    \b
    Examples:
      skep study jobs.csv --cluster 8x8 --html study.html
      skep study jobs.csv --cluster 8..20x8 --policy fifo:walk=skip --policy tiresias-l
      skep study jobs.csv --cluster 8x8 --vary tiresias-l:queues=1000,3250,10000
    """
    gc.disable()
    from skep.experiments.study.study import run_study
    from skep.experiments.study.tables import write_study

    question = question_of(given)
    parallel = given["parallel"] if given["parallel"] is not None else len(os.sched_getaffinity(0))
    if parallel < 1:
        raise InputError(f"--parallel is {parallel}, expected 1 or more")
    if given["html"] is not None:
        check_html(given["html"], force=given["force"])
    with StudyProgress(given["out"]) as progress:
        made = run_study(question, parallel=parallel, folder=given["out"], report=progress)
    write_study(made, given["out"])
    if given["html"] is not None:
        from skep.experiments.study.page import render_study
        from skep.files.text import write_aside

        write_aside(given["html"], render_study(made, command=shlex.join(["skep", *sys.argv[1:]])))
    say_study(made, given)


def question_of(given: dict[str, Any]) -> StudyQuestion:
    from skep.experiments.study.choose import clusters_of, variation
    from skep.experiments.study.outcome import file_digest
    from skep.experiments.study.study import StudyQuestion

    varied = variation(given["vary"]) if given["vary"] else None
    clusters = clusters_of(given["clusters"])
    experiments = make_experiments(given | {"clusters": clusters, "seeds": (given["first_seed"],), "html": None})
    return StudyQuestion(
        experiments=tuple(experiments),
        policies=given["policies"],
        variation=varied,
        repetitions=given["seeds"],
        is_drawn=given["bootstrap"],
        measure=given["by"],
        profile=file_digest(given["profile"]),
    ).check()


class StudyProgress:
    """A bar, and what to do after Ctrl-C."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.bar: Any = None
        self.done = self.total = 0

    def __enter__(self) -> StudyProgress:
        return self

    def __call__(self, done: int, total: int) -> None:
        from skep.cli.progress import ProgressBar

        if self.bar is None:
            self.bar = ProgressBar("runs", total, unit="runs", since=done - 1)
        self.done, self.total = done, total
        self.bar(done)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
        if kind is KeyboardInterrupt and self.total:
            print(
                f"\n{self.done:,} of {self.total:,} runs are kept in {self.out}: the same command goes on",
                file=sys.stderr,
            )


def say_study(made: Study, given: dict[str, Any]) -> None:
    from skep.experiments.study.tables import study_table, summary_rows
    from skep.experiments.study.words import advice

    for policy, error in made.failed.items():
        warn(f"{policy} failed and is left out: {error}")
    for policy, why in made.left_out.items():
        say_note(f"{policy} is left out: {why}")
    if given["as_json"]:
        import json

        print(json.dumps(summary_rows(made), indent=2))
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 180)
    for cluster in made.clusters:
        console.print(study_table(made, cluster))
    for found in made.recommendations:
        where = f" on {found.cluster}" if len(made.clusters) > 1 else ""
        for number, (heading, text) in enumerate(advice(found)):
            console.print(f"[bold]{heading}{where if not number else ''}:[/] ", end="")
            console.print(text, markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())
        console.print()
    print(f"runs, summary and tests are in {given['out']}")
    if given["html"] is not None:
        print(f"page: {given['html']}")
