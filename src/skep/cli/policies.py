"""`skep policies [NAME]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.live import complete_policies

if TYPE_CHECKING:
    from skep.policies.registry import Policy


@click.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def policies(name: str | None, as_json: bool) -> None:
    """List the policies, or explain one: its paper, what it assumes, its knobs and their defaults.

    A policy is used as NAME:key=value,key=value with lists joined by +, for example
    tiresias-l:queues=3250+7200,place=any. Your own: ./file.py:Class.
    """
    from skep.core.needs import Need
    from skep.policies.registry import parse_policy
    from skep.policies.registry import policies as known
    from skep.report.table import ORACLE_CAPTION, ORACLE_MARK

    chosen = [parse_policy(name)[0]] if name else list(known().values())
    if as_json:
        print_json(chosen)
    elif name:
        explain(chosen[0])
    else:
        for policy in chosen:
            mark = ORACLE_MARK.strip() if Need.ORACLE in policy.needs() else ""
            click.echo(f"{policy.name:<10} {mark:<1} {first_sentence(policy.title)}")
        click.echo(f"\n{ORACLE_MARK.strip()} {ORACLE_CAPTION}\n`skep policies NAME` explains one with its knobs.")


def first_sentence(text: str) -> str:
    return text.split(";")[0].split(":")[0].rstrip(".")


def explain(policy: Policy) -> None:
    from rich.console import Console
    from rich.table import Table

    from skep.policies.registry import shown_needs, shown_value

    console = Console(highlight=False)
    console.print(f"[bold]{policy.name}[/bold]: {policy.title}")
    console.print(f"\npaper    {policy.paper}\nassumes  {shown_needs(policy.needs())}\n")
    table = Table("knob", "default", "what it does", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for knob in policy.knobs:
        choices = f" ({' | '.join(knob.choices)})" if knob.choices else ""
        table.add_row(knob.name, shown_value(knob.default), knob.help + choices)
    console.print(table)


def print_json(chosen: list[Policy]) -> None:
    import json

    from skep.core.needs import Need
    from skep.policies.registry import shown_needs, shown_value

    def plain(policy: Policy) -> dict[str, object]:
        texts = {field: getattr(policy, field) for field in ("name", "title", "paper")}
        knobs = [
            {"name": knob.name, "default": shown_value(knob.default), "help": knob.help, "choices": list(knob.choices)}
            for knob in policy.knobs
        ]
        needs = policy.needs()
        assumed = {"assumes": shown_needs(needs), "needs": [need for need in Need if need in needs]}
        return {**texts, **assumed, "oracle": Need.ORACLE in needs, "knobs": knobs}

    click.echo(json.dumps([plain(policy) for policy in chosen], indent=2))
