"""`skep token`: access to a server that requires tokens."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from skep.cli.live import connect, console, date, duration, table_of

if TYPE_CHECKING:
    from skep.server.tokens import Token, Tokens

data_option = click.option(
    "--data", metavar="DIR", help="The data of the server.  [default: the server of SKEP_URL, else ~/.local/share/skep]"
)


@click.group()
def token() -> None:
    """Make, list, rotate and revoke tokens. They count at once.

    With SKEP_URL or after `skep login` the server is asked, which takes a token of role admin (SKEP_TOKEN). Otherwise,
    and with --data, they are changed in the data folder, whether its server runs or not.

    \b
    Examples:
      skep token create --user ann --vc research --role user --expires 30d
      skep token list
      skep token rotate 1f0c9a2e --overlap 1h
      skep token revoke 1f0c9a2e
    """


@token.command()
@click.option("--user", required=True, help="The user.")
@click.option("--vc", "vcs", multiple=True, help="Only for this VC; may be repeated.  [default: every VC]")
@click.option("--role", type=click.Choice(["admin", "owner", "user", "viewer"]), default="user", show_default=True)
@click.option("--expires", "life_s", type=duration, metavar="TIME", help="After 12h, 30d, …  [default: never]")
@data_option
def create(user: str, vcs: tuple[str, ...], role: str, life_s: float | None, data: str | None) -> None:
    """Make a token and print it, once: only its hash is kept.

    viewer reads; user submits, and changes its own jobs; owner changes all jobs of its VCs; admin may do everything.
    All but admins see the jobs, logs and events of their VCs only.
    """
    print_made(*open_tokens(data).create(user, role, vcs, life_s))


def print_made(made: Token, secret: str) -> None:
    click.echo(secret)
    where = f" in {', '.join(made.vcs)}" if made.vcs else ""
    until = f", until {date(made.expires_s)}" if made.expires_s is not None else ""
    print(
        f"token {made.id} for {made.user} ({made.role}{where}{until}); it is not shown again. Use it as SKEP_TOKEN",
        file=sys.stderr,
    )


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
    rows = [
        (each.id, each.user, each.role, ", ".join(each.vcs) or "all", date(each.created_s), expiry(each))
        for each in found
    ]
    console().print(table_of(("ID", "USER", "ROLE", "VCS", "CREATED", "EXPIRES"), rows))


def expiry(token: Token) -> str:
    if token.expires_s is None:
        return "never"
    return f"expired {date(token.expires_s)}" if token.is_expired else date(token.expires_s)


@token.command()
@click.argument("token_id", metavar="ID")
@click.option("--overlap", "overlap_s", type=duration, metavar="TIME", help="How long the old token stays valid.")
@data_option
def rotate(token_id: str, overlap_s: float | None, data: str | None) -> None:
    """Make another token for the same user, role, VCs and lifetime, and print it, once.

    The old one is revoked at once; with --overlap it expires after that time, for clients that must not be cut off.
    """
    from skep.core.errors import NotFound

    made = open_tokens(data).rotate(token_id, overlap_s or 0.0)
    if made is None:
        raise NotFound(f"there is no token {token_id}", hint="`skep token list` lists them")
    print_made(*made)
    until = f"expires {overlap_s:g} s from now" if overlap_s else "is revoked"
    print(f"token {token_id} {until}", file=sys.stderr)


@token.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@data_option
def revoke(ids: tuple[str, ...], data: str | None) -> None:
    """Revoke tokens. Takes effect immediately: streams that were opened with them end."""
    from skep.core.errors import NotFound

    tokens = open_tokens(data)
    for one in ids:
        if not tokens.revoke(one):
            raise NotFound(f"there is no token {one}", hint="`skep token list` lists them")
        print(f"token {one} is revoked", file=sys.stderr)


def open_tokens(data: str | None) -> Tokens | RemoteTokens:
    """The tokens of a data folder; without one, of the server that SKEP_URL or the login names."""
    from skep.client.profile import read_profile
    from skep.core.errors import InputError
    from skep.files.running import default_data
    from skep.server.private import account_name
    from skep.server.tokens import Tokens

    if data is None and (url := os.environ.get("SKEP_URL", "") or read_profile().url):
        return RemoteTokens(url)
    folder = Path(data).expanduser().absolute() if data else default_data()
    if not (folder / "skep.db").exists():
        hint = "`skep up` makes one; --data names its folder, SKEP_URL the address of a server elsewhere"
        raise InputError(f"{folder} is not the data folder of a server", hint=hint)
    return Tokens(folder, by=account_name(os.geteuid()))


class RemoteTokens:
    """The tokens of a server, by its API; the caller's own must be of role admin."""

    def __init__(self, url: str) -> None:
        self.client = connect(url)

    def create(self, user: str, role: str, vcs: tuple[str, ...], life_s: float | None) -> tuple[Token, str]:
        return made_of(self.client.create_token(user, role, vcs, life_s))

    def rotate(self, token_id: str, overlap_s: float) -> tuple[Token, str]:
        return made_of(self.client.rotate_token(token_id, overlap_s))

    def revoke(self, token_id: str) -> bool:
        self.client.revoke_token(token_id)
        return True

    def list(self) -> list[Token]:
        from skep.server.tokens import Token

        return [msgspec.convert(each, Token) for each in self.client.tokens()]


def made_of(answer: dict[str, Any]) -> tuple[Token, str]:
    from skep.server.tokens import Token

    secret = answer.pop("token")
    return msgspec.convert(answer, Token), secret
