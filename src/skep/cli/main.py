"""The command line. Commands are imported when they are called, so that `skep --help` answers at once."""

from __future__ import annotations

import importlib
import sys

import click

from skep import __version__
from skep.core.errors import InputError, did_you_mean

COMMANDS = {
    "demo": ("skep.cli.demo:demo", "Compare schedulers on a made-up week, with an HTML report."),
    "simulate": ("skep.cli.simulate:simulate", "Run a trace under one or more policies."),
    "compare": ("skep.cli.simulate:compare", "Compare policies on a trace, with an HTML report."),
    "policies": ("skep.cli.policies:policies", "List the policies, or explain one with its knobs."),
    "trace": ("skep.cli.trace:trace", "Look at traces, convert, sample and make them."),
    "cluster": ("skep.cli.cluster:cluster", "Check a cluster file and draw its cells and shares."),
    "scenario": ("skep.cli.scenario:scenario", "Replay scripted requests against a cluster layout."),
    "verify": ("skep.cli.verify:verify", "Check policies against the known answers of their papers."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS, most=2) or "`skep --help` lists the commands"
            raise InputError(f"'{args[0]}' is not a command", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="skep %(version)s")
def skep() -> None:
    """Skep: a cluster manager for deep learning. One scheduler, three worlds.

    Compare every scheduler of the literature on your own history before touching the cluster.

    \b
    First steps:
      skep demo                                   a comparison with its report, nothing else needed
      skep trace info TRACE                       what is in a trace
      skep compare TRACE --cluster 64x8           which scheduler would have been better
      skep policies tiresias-l                    what a policy does, and its knobs
    """


def main() -> None:
    try:
        status = skep(standalone_mode=False)
    except InputError as error:
        status = fail(str(error), error.hint)
    except click.ClickException as error:
        status = fail(error.format_message(), usage_hint(error))
    except (KeyboardInterrupt, click.Abort):
        print("\ninterrupted: nothing was written", file=sys.stderr)
        status = 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: nothing to say, nobody to say it to
        status = 141
    sys.exit(status if isinstance(status, int) else 0)


def fail(message: str, hint: str) -> int:
    """What failed, then what to do about it. Exit code 2: the input, not the program."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
    return 2


def usage_hint(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"`{ctx.command_path} --help` explains it" if ctx is not None else ""


if __name__ == "__main__":
    main()
