"""`skep policies [NAME]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.live import complete_policies, connect, server_option

if TYPE_CHECKING:
    from skep.core.needs import Need
    from skep.policies.registry import Policy


SERVER = "server"


@click.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@click.option(
    "--for",
    "where",
    metavar="CLUSTER",
    help="Show the needs of each policy that are not met there: a cluster spec or file, or `server`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@server_option
def policies(name: str | None, where: str | None, as_json: bool, url: str) -> None:
    """List the policies, or explain one: its paper, what it assumes, its knobs and their defaults.

    A policy is used as NAME:key=value,key=value with lists joined by +, for example
    tiresias-l:queues=3250+7200,place=any. Your own: ./file.py:Class.

    \b
    Examples:
      skep policies afs-l
      skep policies --for 4x8:v100
      skep policies --for server
    """
    from skep.policies.registry import needs_of, parse_policy
    from skep.policies.registry import policies as known

    is_own = name is not None and ".py:" in name
    chosen = [] if is_own else [parse_policy(name)[0]] if name else list(known().values())
    if where is not None:
        specs = {name: needs_of(name)} if name else {policy.name: policy.needs() for policy in chosen}
        print_missing(specs, missing_there(specs, where, url), as_json=as_json)
    elif is_own and name is not None:
        click.echo(f"{name} assumes {shown_needs_of(name)}")
    elif as_json:
        print_json(chosen)
    elif name:
        explain(chosen[0])
    else:
        print_list(chosen)


def shown_needs_of(spec: str) -> str:
    from skep.policies.registry import needs_of, shown_needs

    return shown_needs(needs_of(spec))


def print_list(chosen: list[Policy]) -> None:
    from skep.core.needs import Need
    from skep.report.table import ORACLE_CAPTION, ORACLE_MARK

    for policy in chosen:
        mark = ORACLE_MARK.strip() if Need.ORACLE in policy.needs() else ""
        click.echo(f"{policy.name:<10} {mark:<1} {first_sentence(policy.title)}")
    click.echo(f"\n{ORACLE_MARK.strip()} {ORACLE_CAPTION}\n`skep policies NAME` explains one with its knobs.")


def missing_there(specs: dict[str, frozenset[Need]], where: str, url: str) -> dict[str, list[str]]:
    """By policy, in sentences: on the running server with its jobs, or on a new server with that cluster."""
    if where == SERVER:
        with connect(url) as client:
            return {spec: client.missing_for(spec) for spec in specs}
    from skep.clusters.read import read_cluster
    from skep.core.needs import Offer, lacks, offered_needs
    from skep.engines.local.engine import local_capabilities

    read_cluster(where)
    offer = Offer(offered_needs(local_capabilities()))
    return {spec: [str(lack) for lack in lacks(needs, offer)] for spec, needs in specs.items()}


def print_missing(specs: dict[str, frozenset[Need]], missing: dict[str, list[str]], *, as_json: bool) -> None:
    import json

    from skep.policies.registry import shown_needs

    if as_json:
        found = [{"policy": spec, "needs": sorted(specs[spec]), "missing": missing[spec]} for spec in specs]
        click.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, specs))
    for spec, needs in specs.items():
        click.echo(
            f"{spec:<{width}}  assumes {shown_needs(needs)}"
            + ("" if missing[spec] else ("" if not needs else "; all of it is available"))
        )
        for sentence in missing[spec]:
            click.echo(f"{'':<{width}}  {sentence}")


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
        choices = f" ({' | '.join(knob.shown_choices)})" if knob.choices else ""
        table.add_row(knob.name, shown_value(knob.default), knob.help + choices)
    console.print(table)


def print_json(chosen: list[Policy]) -> None:
    import json

    from skep.core.needs import Need
    from skep.policies.registry import shown_needs, shown_value

    def plain(policy: Policy) -> dict[str, object]:
        texts = {field: getattr(policy, field) for field in ("name", "title", "paper")}
        knobs = [
            {
                "name": knob.name,
                "default": shown_value(knob.default),
                "help": knob.help,
                "choices": list(knob.shown_choices),
            }
            for knob in policy.knobs
        ]
        needs = policy.needs()
        assumed = {"assumes": shown_needs(needs), "needs": [need for need in Need if need in needs]}
        return {**texts, **assumed, "oracle": Need.ORACLE in needs, "knobs": knobs}

    click.echo(json.dumps([plain(policy) for policy in chosen], indent=2))
