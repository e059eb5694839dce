"""`skep token`: who may use a server that asks for tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from skep.server.tokens import Tokens

data_option = click.option("--data", metavar="DIR", help="The data of the server.  [default: ~/.local/share/skep]")


@click.group()
def token() -> None:
    """Make, list and revoke tokens. They live in the data folder and count at once, whether or not the server runs.

    \b
    Examples:
      skep token create --user ann --vc research --role user
      skep token list
      skep token revoke 1f0c9a2e
    """


@token.command()
@click.option("--user", required=True, help="Who it stands for.")
@click.option("--vc", "vcs", multiple=True, help="Only for this VC; may be repeated.  [default: every VC]")
@click.option("--role", type=click.Choice(["admin", "owner", "user", "viewer"]), default="user", show_default=True)
@data_option
def create(user: str, vcs: tuple[str, ...], role: str, data: str | None) -> None:
    """Make a token and print it, once: only its hash is kept.

    viewer reads; user submits, and changes its own jobs; owner changes all jobs of its VCs; admin may do everything.
    All but admins see the jobs, logs and events of their VCs only.
    """
    made, secret = open_tokens(data).create(user, role, vcs)
    click.echo(secret)
    where = f" in {', '.join(made.vcs)}" if made.vcs else ""
    print(f"token {made.id} for {user} ({role}{where}); it is not shown again. Use it as SKEP_TOKEN", file=sys.stderr)


@token.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
@data_option
def list_(output: str, data: str | None) -> None:
    """List tokens, without their secrets."""
    found = open_tokens(data).list()
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    from skep.cli.live import console, date, table_of

    rows = [(each.id, each.user, each.role, ", ".join(each.vcs) or "all", date(each.created_s)) for each in found]
    console().print(table_of(("ID", "USER", "ROLE", "VCS", "CREATED"), rows))


@token.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@data_option
def revoke(ids: tuple[str, ...], data: str | None) -> None:
    """Make tokens worthless, at once."""
    from skep.core.errors import NotFound

    tokens = open_tokens(data)
    for one in ids:
        if not tokens.revoke(one):
            raise NotFound(f"there is no token {one}", hint="`skep token list` lists them")
        print(f"token {one} is revoked", file=sys.stderr)


def open_tokens(data: str | None) -> Tokens:
    from skep.server.config import default_data
    from skep.server.tokens import Tokens

    folder: Any = Path(data).expanduser().absolute() if data else default_data()
    return Tokens(folder)
