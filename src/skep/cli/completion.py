"""`skep completion SHELL`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for Tab completion of commands, options, jobs, nodes, VCs and policies.

    \b
    Examples:
      eval "$(skep completion bash)"                          in ~/.bashrc
      eval "$(skep completion zsh)"                           in ~/.zshrc
      skep completion fish > ~/.config/fish/completions/skep.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "skep", "_SKEP_COMPLETE")
    click.echo(made.source_template % made.source_vars())
