"""`skep login` and `skep logout`: the default server of this user's commands."""

from __future__ import annotations

import sys

import click

from skep.cli.live import say


@click.command()
@click.argument("url")
@click.option(
    "--vc",
    default="",
    help="The VC of jobs that name none.  [default: the only VC of the token, else the server chooses]",
)
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input instead of asking for it.")
def login(url: str, vc: str, token_stdin: bool) -> None:
    """Remember the server at URL, a token for it and a default VC, for all further commands of this user.

    They are kept in ~/.config/skep/config.toml, readable by you alone; the token is sent to this server only.
    --url, SKEP_URL and SKEP_TOKEN win over them.

    \b
    Examples:
      skep login https://skep.example.org --vc research
      skep token create --user ann | skep login http://10.0.0.5:7437 --token-stdin
    """
    from skep.client import Client
    from skep.client.profile import ClientProfile, write_profile
    from skep.client.wire import Denied, checked_url

    address, token = checked_url(url), sys.stdin.readline().strip() if token_stdin else ""
    try:
        with Client(address, token=token) as client:
            me = client.me()
    except Denied:
        if token or not sys.stdin.isatty():
            raise
        token = click.prompt("token", hide_input=True)
        with Client(address, token=token) as client:
            me = client.me()
    vcs = me["vcs"]
    file = write_profile(ClientProfile(address, token, vc or (vcs[0] if len(vcs) == 1 else "")))
    say(f"logged in at {address} as {me['user'] or 'an unnamed user'} ({me['role']}); stored in {file}")


@click.command()
def logout() -> None:
    """Forget the server and the token that `skep login` remembered.

    \b
    Example:
      skep logout
    """
    from skep.client.profile import profile_file

    file = profile_file()
    was_there = file.exists()
    file.unlink(missing_ok=True)
    say(f"removed {file}" if was_there else "there was no login")
