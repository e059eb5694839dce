"""`skep open`: the dashboard in a browser."""

from __future__ import annotations

import click

from skep.cli.live import connect, server_option


@click.command(name="open")
@click.option("--print", "is_printed", is_flag=True, help="Print the address instead.")
@server_option
def open_(is_printed: bool, url: str) -> None:
    """Open the dashboard of the server in a browser. Where none can be started, its address is printed.

    \b
    Examples:
      skep open
      skep open --print
    """
    import webbrowser

    with connect(url) as client:
        client.health()
        if is_printed or not webbrowser.open(client.url):
            click.echo(client.url)
