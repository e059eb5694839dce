"""`skep demo`: a small cluster with real jobs, explained step by step; with `--simulate` a comparison of schedulers."""

from __future__ import annotations

from pathlib import Path

import click

HTML = "skep-demo.html"


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server up at the end, to try things.")
@click.option("--simulate", is_flag=True, help="Compare five schedulers on a synthetic week instead, with a report.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help=f"The report of --simulate.  [default: {HTML}]"
)
def demo(keep: bool, simulate: bool, html: Path | None) -> None:
    """Watch a small cluster at work: three teams, real training jobs, preemption, a lost node, an elastic job.

    It takes less than a minute and needs neither GPUs nor the network: the GPUs are virtual, the jobs small but real.
    At the end nothing is left, unless --keep. If a step fails, the exit code is 1.

    \b
    Examples:
      skep demo
      skep demo --keep
      skep demo --simulate --html week.html
    """
    if simulate and keep:
        raise click.UsageError("--keep leaves a server up, and --simulate has none")
    if html is not None and not simulate:
        raise click.UsageError("--html is for the report of --simulate")
    if simulate:
        from skep.cli.demo.simulated import simulate as run

        run(html or Path(HTML))
        return
    from skep.cli.demo.story import play

    play(is_kept=keep)
