"""`skep scenario FILE|FOLDER…`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from skep.core.errors import InputError, InvariantBroken

if TYPE_CHECKING:
    from skep.scenarios.read import Scenario, Step
    from skep.scenarios.replay import Outcome
    from skep.scenarios.run import Played

COLOURS = {"ok": "green", "better": "cyan", "quirk": "cyan", "differs": "red", "-": "white"}
WHY = {
    "insufficient-capacity-vc": "its VC has too few free GPUs",
    "insufficient-capacity-physical": "too few GPUs are idle",
    "bad-node": "it would need a bad node",
    "non-suggested-node": "it would need a node that was not suggested",
    "mapping-needs-bad-node": "too few healthy cells are left for its VC",
    "mapping-needs-bad-or-non-suggested-node": "too few healthy suggested cells are left for its VC",
    "no-reason-given": "its VC owns no cells it could use",
    "being-preempted": "its gang is being preempted",
}
GPUS_SHOWN = 8
VICTIMS_SHOWN = 6


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option("--out", metavar="FILE", help="Write the answers, one JSON line per scenario; - for stdout.")
def scenario(paths: tuple[str, ...], out: str | None) -> None:
    """Replay scripted requests against a cluster layout, and compare with what the script expects.

    A scenario is a YAML or JSON file: a cluster, and steps such as pods that ask for GPUs, pods that end, nodes that
    fail, a new configuration. Folders are searched; files of other kinds are passed over. With one file every step is
    shown. The exit code is 1 if anything differs from what is expected, 2 if a file cannot be used.

    \b
    Examples:
      skep scenario examples/lab6
      skep scenario examples/lab6/2-priority-and-preemption.yaml
      skep scenario tests/layouts --out answers.jsonl
    """
    if out not in (None, "-"):
        check_out(Path(out))
    session = Session(sys.stderr if out == "-" else sys.stdout)
    session.read(paths)
    session.play()
    if out is not None:
        write_answers(session.played, out)
    session.conclude()
    click.get_current_context().exit(session.status())


def check_out(out: Path) -> None:
    """Before the work: refuse an output path that cannot be written."""
    if out.is_dir():
        raise InputError(f"{out} is a folder, expected a file name")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder", hint="create it first")


def write_answers(played: list[Played], out: str) -> None:
    import json

    from skep.files.text import write_aside

    text = "".join(json.dumps(one.answer()) + "\n" for one in played)
    if out == "-":
        click.echo(text, nl=False)
    else:
        write_aside(out, text)


def printable(text: str) -> str:
    """Unpaired surrogates, which JSON can contain, cannot be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


class Session:
    """All scenarios of one call. A file with an error does not prevent the others from being run."""

    def __init__(self, talk: TextIO) -> None:
        self.talk = talk
        self.scenarios: list[Scenario] = []
        self.played: list[Played] = []
        self.passed = 0
        """Files of other kinds."""
        self.fault_count = 0
        self.bug_count = 0

    def say(self, text: str = "", **style: Any) -> None:
        click.secho(printable(text), file=self.talk, **style)

    def fault(self, error: Exception) -> None:
        click.echo(printable(f"error: {error}"), err=True)
        if hint := getattr(error, "hint", ""):
            click.echo(f"hint: {hint}", err=True)

    def read(self, paths: tuple[str, ...]) -> None:
        from skep.scenarios.read import find_files, read_scenario

        files, self.passed = find_files(paths)
        seen: dict[str, str] = {}
        for file in files:
            try:
                found = read_scenario(file)
                if found is not None and found.id in seen:
                    raise InputError(f"{file}: has the id {found.id}, as has {seen[found.id]}")
            except InputError as error:
                self.fault(error)
                self.fault_count += 1
                continue
            if found is None:
                self.passed += 1
                continue
            seen[found.id] = str(file)
            self.scenarios.append(found)
        if not self.scenarios and not self.fault_count:
            raise InputError(f"no scenario in {', '.join(paths)}", hint="a scenario has `steps`, and config or cluster")

    def play(self) -> None:
        from skep.scenarios.run import play

        is_single = len(self.scenarios) == 1
        width = min(max((len(one.id) for one in self.scenarios), default=0), 60)
        for one in self.scenarios:
            try:
                played = play(one)
            except InputError as error:
                self.fault(error)
                self.fault_count += 1
                continue
            except InvariantBroken as error:
                self.fault(InvariantBroken(f"{error} (this is a bug of Skep)"))
                self.bug_count += 1
                continue
            self.played.append(played)
            if is_single:
                show_steps(self, played)
            self.say(verdict_line(played, width))

    def conclude(self) -> None:
        counts: dict[str, int] = {}
        for one in self.played:
            counts[WORDS[one.verdict]] = counts.get(WORDS[one.verdict], 0) + 1
        parts = [f"{count:,} {word}" for word, count in counts.items()]
        if self.fault_count:
            parts.append(f"{self.fault_count:,} not usable")
        if self.bug_count:
            parts.append(f"{self.bug_count:,} stopped by a bug")
        self.say(f"\n{plural(len(self.scenarios), 'scenario')}: {', '.join(parts)}.")
        if self.passed:
            self.say(f"{plural(self.passed, 'file')} of other kinds passed over.")

    def status(self) -> int:
        if self.bug_count:
            return 3
        if self.fault_count:
            return 2
        return int(any(one.verdict == "differs" for one in self.played))


WORDS = {
    "ok": "as expected",
    "differs": "different",
    "better": "better than recorded",
    "quirk": "other than HiveD's quirk",
    "-": "with nothing to compare",
}


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def verdict_line(played: Played, width: int) -> str:
    from skep.files.text import shorten

    one = played.scenario
    text = plural(len(one.steps), "step") if one.kind == "schedule" else "configuration"
    if one.refused and played.verdict == "ok":
        text += f", refused: {shorten(one.refused.removeprefix(f'{one.file}: '), most=200)}"
    if played.differences:
        first = played.differences[0]
        where = f"step {first.step}" + pod_of(one, first.step) if first.step else "configuration"
        text = f"{where}: {shorten(str(first), most=300)}"
    elif played.verdict == "-":
        text += ", nothing is expected of them"
    mark = click.style(f"{played.verdict:<8}", fg=COLOURS[played.verdict], bold=played.verdict == "differs")
    return f"{mark} {shorten(one.id, most=60):<{width}}  {text}"


def pod_of(one: Scenario, number: int) -> str:
    given = one.steps[number - 1].given
    name = given.get("pod") or given.get("node")
    return f" ({name})" if name else ""


def show_steps(session: Session, played: Played) -> None:
    """One line per step: what is asked, what comes of it; below it what should have come."""
    from skep.files.text import shorten

    one = played.scenario
    if one.description:
        session.say(f"{one.description.strip()}\n")
    asked = [shorten(request(step), most=50) for step in one.steps]
    width = max(map(len, asked), default=0)
    for step, outcome, text in zip(one.steps, played.outcomes, asked, strict=False):
        session.say(f"{step.number:>3}  {text:<{width}}  {shorten(result(step, outcome), most=120)}".rstrip())
        for difference in (one for one in played.differences if one.step == step.number):
            session.say(f"     {'':<{width}}  {shorten(str(difference), most=300)}", fg="red")
    if one.steps:
        session.say()


def request(step: Step) -> str:
    given = step.given
    if step.op == "schedule":
        return f"{given['pod']} asks{wish(given)}" + (" (preempting)" if given.get("phase") == "Preempting" else "")
    if step.op == "delete":
        return f"{given['pod']} ends"
    words = {"node_bad": "goes bad", "node_healthy": "heals"}
    return f"{given['node']} {words[step.op]}" if step.op in words else step.op


def wish(given: dict[str, Any]) -> str:
    """VC and priority of a pod, as far as its spec has any."""
    spec = given.get("spec")
    if not isinstance(spec, dict):
        return ""
    vc, priority = spec.get("virtualCluster", "?"), spec.get("priority", 0)
    return f" for {vc}, " + ("opportunistic" if priority == -1 else f"priority {priority}")


def result(step: Step, outcome: Outcome) -> str:
    if step.op != "schedule":
        lost = [name for name, state in outcome["groups"].items() if state.endswith("lazyPreempted")]
        return f"without guarantee: {' '.join(lost)}" if lost else ""
    kind = outcome["result"]
    if kind == "bind":
        gpus = outcome["leafCells"]
        shown = " ".join(map(str, gpus)) if len(gpus) <= GPUS_SHOWN else f"{len(gpus)} GPUs"
        return f"bind     {outcome['node']}, GPU {shown}"
    if kind == "preempt":
        victims = outcome["victims"]
        more = f" and {len(victims) - VICTIMS_SHOWN} more" if len(victims) > VICTIMS_SHOWN else ""
        return f"preempt  {' '.join(victims[:VICTIMS_SHOWN])}{more} must leave first"
    if kind == "wait":
        cause = outcome["waitClass"]
        return f"wait     {WHY.get(cause, cause)}"
    return f"error    {outcome['reason']}"
