"""The command line. Commands are imported when they are called, so that `skep --help` answers at once."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from skep import __version__
from skep.cli.plain import clean_lines
from skep.core.errors import InputError, InvariantBroken, SkepError, did_you_mean
from skep.files.umask import STARTED_WITH

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HEADINGS = {
    "Your jobs": {
        "run": ("skep.cli.run:run", "Run a command as a job, with its output and exit code."),
        "submit": ("skep.cli.submit:submit", "Submit job files."),
        "ps": ("skep.cli.ps:ps", "List jobs."),
        "show": ("skep.cli.show:show", "Show everything about a job."),
        "logs": ("skep.cli.logs:logs", "Print what a job writes."),
        "explain": ("skep.cli.explain:explain", "Explain why a job does not run, and what would change that."),
        "forecast": ("skep.cli.forecast:forecast", "When jobs will start and end, and how sure that is."),
        "wait": ("skep.cli.submit:wait", "Wait until jobs have ended."),
        "search": ("skep.cli.search:search", "Trials of one job, and which is the best."),
        "stop": ("skep.cli.change:stop", "Stop jobs."),
        "hold": ("skep.cli.change:hold", "Keep pending jobs from starting."),
        "release": ("skep.cli.change:release", "Let held jobs start again."),
        "priority": ("skep.cli.change:priority", "Change the priority of a pending job."),
        "alter": ("skep.cli.change:alter", "Let a pending job ask for other GPUs or another VC, in its place."),
        "tag": ("skep.cli.change:tag", "Add or remove tags of a job."),
        "exec": ("skep.cli.logs:exec_", "Run a command in the environment of a job, to debug it."),
    },
    "The cluster": {
        "demo": ("skep.cli.demo:demo", "Watch a small cluster at work; nothing else needed."),
        "up": ("skep.cli.up:up", "Start the server."),
        "open": ("skep.cli.open:open_", "Open the dashboard in a browser."),
        "login": ("skep.cli.login:login", "Remember a server, a token and a default VC."),
        "logout": ("skep.cli.login:logout", "Forget them."),
        "down": ("skep.cli.down:down", "Stop the server; jobs run on."),
        "cluster": ("skep.cli.cluster:cluster", "Draw the cluster; check and apply cluster files."),
        "nodes": ("skep.cli.nodes:nodes", "List the nodes."),
        "vc": ("skep.cli.nodes:vc", "List the virtual clusters."),
        "drain": ("skep.cli.nodes:drain", "Start nothing new on nodes."),
        "undrain": ("skep.cli.nodes:undrain", "Use drained nodes again."),
        "policy": ("skep.cli.policy:policy", "Show the policy in use, or switch to another."),
        "events": ("skep.cli.events:events", "Print what happened, and follow it."),
        "history": ("skep.cli.past:history", "GPUs used and the queue over time."),
        "decisions": ("skep.cli.past:decisions", "What the policy decided, and why."),
        "usage": ("skep.cli.events:usage", "GPU-hours by user, virtual cluster or job."),
        "token": ("skep.cli.token:token", "Make, list, rotate and revoke tokens."),
        "kube": ("skep.cli.kube:kube", "Print manifests for a server on Kubernetes."),
        "restore": ("skep.cli.restore:restore", "Put a backup in the place of the store."),
        "backup": ("skep.cli.backup:backup", "Save the server's store to a file."),
        "completion": ("skep.cli.completion:completion", "Set up the Tab key of your shell."),
    },
    "Compare and research": {
        "simulate": ("skep.cli.simulate:simulate", "Run a trace under one or more policies."),
        "compare": ("skep.cli.simulate:compare", "Compare policies on a trace, with an HTML report."),
        "study": ("skep.cli.study:study", "Find the policy that fits a cluster, and how sure that is."),
        "studies": ("skep.cli.studies:studies", "Compare policies on the server, on a trace or its own history."),
        "fill": ("skep.cli.fill:fill", "Fill a cluster with jobs: which placement wastes least."),
        "fork": ("skep.cli.fork:fork", "Predict when the jobs of a server start and end."),
        "policies": ("skep.cli.policies:policies", "List the policies, or explain one with its knobs."),
        "trace": ("skep.cli.trace:trace", "Look at traces, convert, sample and make them."),
        "scenario": ("skep.cli.scenario:scenario", "Replay scripted requests against a cluster layout."),
        "verify": ("skep.cli.verify:verify", "Check policies against the known answers of their papers."),
    },
}
COMMANDS = {name: entry for commands in HEADINGS.values() for name, entry in commands.items()}


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
        width = max(map(len, COMMANDS))
        for heading, commands in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", text) for name, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table, because completion imports no command."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="skep %(version)s")
@click.pass_context
def skep(ctx: click.Context) -> None:
    """Skep: a cluster manager for deep learning. One scheduler, several worlds.

    Run training jobs on shared GPUs, and compare every scheduler of the literature on your own history.

    \b
    First steps:
      skep demo                                   a small cluster at work, nothing else needed
      skep up                                     a server on this machine; virtual GPUs where there are none
      skep run --gpus 1 -- python train.py        run something; `skep ps` in another terminal shows it
      skep compare TRACE --cluster 64x8           which scheduler would have been better
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    os.umask(STARTED_WITH)
    try:
        status = skep(standalone_mode=False)
    except InputError as error:
        status = fail(str(error), error.hint)
    except click.ClickException as error:
        status = fail(error.format_message(), usage_hint(error))
    except InvariantBroken:
        raise  # a bug: the traceback is needed
    except SkepError as error:
        status = fail(str(error), "", code=1)
    except (KeyboardInterrupt, click.Abort) as end:
        # Click raises Abort for Ctrl-C, with a cause; without one it was the answer to a question.
        is_no = isinstance(end, click.Abort) and end.__cause__ is None
        print("nothing was done" if is_no else "\ninterrupted", file=sys.stderr)
        status = 1 if is_no else 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe has gone
        status = 141
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stdout = None  # what is left in it cannot be written either
        status = fail("the output could not be written: the disk is full", "", code=1)
    sys.exit(status if isinstance(status, int) else 0)


def fail(message: str, hint: str, code: int = 2) -> int:
    """What failed, then what to do about it. Exit code 2: invalid input."""
    print(f"error: {clean_lines(message)}", file=sys.stderr)
    if hint:
        print(f"\nhint: {clean_lines(hint)}", file=sys.stderr)
    return code


def usage_hint(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"`{ctx.command_path} --help` explains it" if ctx is not None else ""


if __name__ == "__main__":
    main()
