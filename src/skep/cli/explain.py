"""`skep explain`: why a job does not run, and what would let it start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from skep.cli.eta import eta_sentence, short
from skep.cli.live import connect, duration, job_argument, last_words, many, output_option, print_data, server_option
from skep.cli.plain import clean
from skep.cli.say import warn

if TYPE_CHECKING:
    from skep.client import Client

WITHIN_MAX_S = 30.0
HOUR_S = 3600.0


@click.command()
@job_argument
@click.option(
    "--within", type=duration, default="8s", help="Time for what lets it start sooner; 0: only now.  [default: 8s]"
)
@output_option
@server_option
def explain(job: str, within: float, output: str, url: str) -> None:
    """Explain why a job does not run now, and what would change that.

    A waiting job ends with changes that you may make and that were tried out on a copy of the cluster: first those that
    let it start now, then those that let it start sooner in at least 90 % of 16 simulations; each time those first that
    cost others least. What does not help is not named.

    \b
    Examples:
      skep explain 17
      skep explain 17 --within 0 -o json
    """
    if within > WITHIN_MAX_S:
        raise click.BadParameter(f"at most {WITHIN_MAX_S:g} s", param_hint="--within")
    with connect(url) as client:
        found = client.explain(job)
        if output == "table":
            speak(client, found)
        if found["state"] != "pending":
            changes: Iterator[dict[str, Any]] = iter(())
        else:
            changes = client.changes(found["job"], within)
        if output == "table":
            list_changes(changes)
            return
        every = list(changes)
        found["changes"] = [each for each in every if each["type"] == "fix"]
        found["tried"] = next((each for each in every if each["type"] == "tried"), None)
        print_data(found, output, name="code")


def speak(client: Client, found: dict[str, Any]) -> None:
    from skep.client import ENDED

    is_ended = found["state"] in ENDED
    job = client.job(found["job"]) if is_ended or found["state"] == "pending" else {}
    for said in sentences(found, last_words(job) if is_ended else found["reason"], is_ended=is_ended):
        click.echo(said)
    if expected := eta_sentence(found, time.time()):
        click.echo(f"Forecast: {expected}.")
    attempts = job.get("history") or [] if not is_ended else []
    if attempts and attempts[-1].get("phrase"):
        click.echo(f"Attempt {attempts[-1]['launch']} ended: {clean(attempts[-1]['phrase'])}.")
    for problem in found.get("problems", []):
        warn(clean(problem))


def list_changes(changes: Iterator[dict[str, Any]]) -> None:
    """As they come."""
    for count, each in enumerate(changes):
        if each["type"] == "tried":
            if each["changes"] or each["error"]:
                click.echo(last_line(each, count))
            return
        if not count:
            click.echo("Tried out, those first that cost others least:")
        click.echo(f"  {each['when']:6}  {clean(each['text'])}: {clean(each['effect'])}{price(each)}")
        if each["command"]:
            click.echo(f"          $ {clean(each['command'])}")


def price(fix: dict[str, Any]) -> str:
    """What it costs others."""
    said = []
    if fix["lost_gpu_s"]:
        said.append(f"{fix['lost_gpu_s'] / HOUR_S:.2g} GPU-hours are lost")
    if (fix["delay_s"] or 0.0) >= 1.0:
        said.append(f"other jobs start {short(fix['delay_s'])} later, all together")
    return "".join(f"; {each}" for each in said)


def last_line(tried: dict[str, Any], count: int) -> str:
    if tried["error"]:
        return f"Nothing could be tried out: {clean(tried['error'])}."
    what = f"{many(tried['changes'], 'change')} in {tried['seconds']:.1f} s"
    if tried["cut"]:
        return f"There was no time to try everything ({what}, {many(tried['samples'], 'sample')} of 16)."
    return f"Nothing else that you may do helps ({what})." if count else f"Nothing that you may do helps ({what})."


def sentences(found: dict[str, Any], why: str, *, is_ended: bool) -> list[str]:
    """The cause is shown for waiting jobs only."""
    is_waiting = found["state"] == "pending"
    said = [f"Job {found['job']} {'has' if is_ended and found['state'] != 'stopped' else 'is'} {found['state']}"]
    said[0] += f" ({found['cause']})." if is_waiting else "."
    said += [sentence(why)] if why and (is_waiting or is_ended) else []
    return [*said, f"What would change that: {clean(found['remedy'])}."] if found["remedy"] else said


def sentence(text: str) -> str:
    """Reasons are worded to follow a colon."""
    text = clean(text).strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
