"""`skep policy` and `skep policy use NAME`."""

from __future__ import annotations

import click

from skep.cli.live import complete_policies, connect, print_data, say, server_option


@click.group(invoke_without_command=True)
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]), default="name", help="[default: name]")
@server_option
@click.pass_context
def policy(ctx: click.Context, output: str, url: str) -> None:
    """Show the policy the server schedules by, or switch to another.

    \b
    Examples:
      skep policy
      skep policy use tiresias-l
    """
    if ctx.invoked_subcommand is None:
        with connect(url) as client:
            print_data({"policy": client.policy()}, output, name="policy")


@policy.command()
@click.argument("name", shell_complete=complete_policies)
@server_option
@click.pass_context
def use(ctx: click.Context, name: str, url: str) -> None:
    """Schedule by policy NAME from now on, without a restart.

    Running jobs stay where they are until it decides otherwise. `skep policies` lists them; NAME may have knobs.

    \b
    Examples:
      skep policy use srtf
      skep policy use tiresias-l:queues=3250+7200
    """
    assert ctx.parent is not None
    with connect(url or ctx.parent.params["url"]) as client:
        before = client.policy()
        for sentence in client.missing_for(name):
            say(f"note: {sentence}")
        client.use_policy(name)
    say(f"policy {name} (before: {before})")
