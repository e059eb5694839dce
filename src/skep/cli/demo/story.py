"""The steps of `skep demo`. Each statement is checked; if one is not true, the demo ends with exit code 1."""

from __future__ import annotations

from typing import Any

from skep.cli.demo.stage import DATA, PYTHON, SCRIPT, Stage, stage
from skep.cli.demo.steps import Steps, steps_of
from skep.cli.demo.voice import tell

LONG, BORROWING, SHORT, GROWING = 330, 100, 35, 220
"""Steps of jobs; a step takes 0.1 s of a virtual GPU."""
STEPS = {
    **{"resnet": LONG, "whisper": LONG, "bert": LONG, "explore": BORROWING},
    **{"detector": SHORT, "evaluate": SHORT, "vit": GROWING},
}
POLICY = "afs-l:restart=1"


def play(*, is_kept: bool) -> None:
    tell(
        "A server with 4 nodes of 4 virtual GPUs, for three teams: vision owns two nodes, speech and research one "
        f"each. The jobs are real processes that train a small model ({SCRIPT}) on the CPU; the time a GPU would take "
        "is slept. This takes less than a minute."
    )
    with stage(is_kept=is_kept) as on:
        tell("", "To look at it yourself, in another terminal while this runs:")
        tell(f"  export SKEP_URL={on.client.url}", "  skep ps --watch")
        share(on)
        borrow(on)
        give_back(on)
        lose_a_node(on)
        get_it_back(on)
        grow(on)
        sum_up(on)
    farewell(on, is_kept=is_kept)


def share(on: Stage) -> None:
    on.scene("Three teams start a job each")
    for name, vc in (("resnet", "vision"), ("whisper", "speech"), ("bert", "research")):
        on.submit(name, vc, steps=LONG)
    places = [on.until_state(name, "running")["nodes"] for name in ("resnet", "whisper", "bert")]
    on.until_step("resnet", 5)
    on.type("skep ps")
    on.expect(len({node for nodes in places for node in nodes}) == 3, "three jobs are on three nodes")


def borrow(on: Stage) -> None:
    on.scene("A team borrows what another leaves idle")
    tell("Research has used up its node, and vision leaves one idle. Work of priority oppo may use it meanwhile.")
    on.submit("explore", "research", steps=BORROWING, options="--gpus 4 --priority oppo")
    on.until_state("explore", "running")
    on.until_step("explore", 20)
    on.type("skep vc")
    on.expect(vc_of(on, "research")["borrowed"] == 4, "research borrows 4 GPUs")


def give_back(on: Stage) -> None:
    on.scene("The owner comes back; the borrower saves itself and leaves")
    borrowed = on.job("explore")["nodes"]
    on.submit("detector", "vision", steps=SHORT)
    owner = on.until_state("detector", "running")
    on.until_state("explore", "pending")
    on.type("skep explain explore --within 0")
    on.type("skep logs explore --attempt 1 --tail 1")
    on.expect(owner["nodes"] == borrowed, "vision has the borrowed node")
    tell("Vision had its node at once. When detector has ended, explore continues where it stopped:")
    on.until_state("explore", "running", attempts=2)
    on.until_step("explore", steps_of(on, "explore").seen[-1][0] + 5)
    on.type("skep logs explore --attempt 2 | head -2")
    on.expect(steps_of(on, "explore").repeated == 0, "explore repeats no step")


def lose_a_node(on: Stage) -> None:
    on.scene("A node is lost, with a job on it")
    node, refuge = on.job("resnet")["nodes"], on.job("explore")["nodes"]
    tell(f"Everything on {node[0]} is killed, as if its plug were pulled:")
    on.shown(f'{PYTHON} -c \'import skep; skep.Client().set_node("{node[0]}", "lost")\'')
    on.client.set_node(node[0], "lost")
    again = on.until_state("resnet", "running", attempts=2)
    on.until_state("explore", "pending")
    on.until("resnet goes on", lambda: len(steps_of(on, "resnet").first) == 2)
    on.type("skep nodes")
    on.type("skep logs resnet --attempt 2 | head -1")
    on.expect(again["nodes"] == refuge, "resnet is on vision's other node")
    tell(
        f"resnet continues from its last checkpoint, on vision's other node, {refuge[0]}. explore, which had borrowed "
        "that, has saved itself again and waits."
    )


def get_it_back(on: Stage) -> None:
    on.scene("The node is back")
    lost = next(node["name"] for node in on.client.nodes() if node["state"] == "lost")
    on.shown(f'{PYTHON} -c \'import skep; skep.Client().set_node("{lost}", "up")\'')
    on.client.set_node(lost, "up")
    again = on.until_state("explore", "running", attempts=3)
    tell(f"explore runs on {lost} at once, its third attempt.")
    on.expect(again["nodes"] == [lost], f"explore runs on {lost}")
    on.type("skep wait explore")
    on.type("skep show explore")
    record = steps_of(on, "explore")
    on.expect(record.repeated == 0 and record.missing(BORROWING) == 0, "explore did every step once")
    on.expect(record.is_undisturbed(BORROWING, is_exact=True), "explore's losses are those of an undisturbed run")
    tell(
        f"Every one of its {BORROWING} steps was done once, and their losses are, bit for bit, those of a run "
        "that was not interrupted."
    )


def grow(on: Stage) -> None:
    on.scene("Another policy, while jobs run; an elastic job grows")
    on.type(f"skep policy use {POLICY}")
    on.submit("evaluate", "vision", steps=SHORT, options="--gpus 2 --expect 4s")
    on.submit("vit", "vision", steps=GROWING, options="--gpus 1 --elastic 1:4 --expect 60s")
    few = on.until_state("vit", "running")["gpus"]
    tell(f"vit takes the free GPUs of vision: {few} of the 4 it can use. evaluate ends soon:")
    on.until("vit grows", lambda: on.job("vit")["gpus"] > few)
    on.until("vit goes on", lambda: "loss" in on.log("vit", attempt=2))
    on.type("skep ps --vc vision")
    on.type("skep logs vit --task main-0 | head -1")
    on.until_state("vit", "succeeded", attempts=2)


def sum_up(on: Stage) -> None:
    on.scene("All jobs end")
    records = {}
    for name, steps in STEPS.items():
        on.until_state(name, "succeeded")
        records[name] = steps_of(on, name)
        is_right = records[name].is_undisturbed(steps, is_exact=name != "vit")
        on.expect(is_right, f"the losses of {name} are those of an undisturbed run")
        on.expect(records[name].missing(steps) == 0, f"{name} did all of its steps")
    on.table(("JOB", "VC", "ATTEMPTS", "PREEMPTED", "STEPS", "LOST", "REPEATED", "LAST LOSS"), rows(on, records))
    tell(
        "No step is lost. Repeated are those that resnet did between its last checkpoint and the loss of its node. All "
        "losses are those of undisturbed runs; vit's up to rounding, since 2 and 4 tasks add up in different order."
    )


def rows(on: Stage, records: dict[str, Steps]) -> list[tuple[Any, ...]]:
    found = []
    for name, record in records.items():
        job, steps = on.job(name), STEPS[name]
        preempted = sum(attempt["outcome"] == "preempted" for attempt in job["history"])
        counts = (job["attempts"], preempted, steps, record.missing(steps), record.repeated)
        found.append((name, job["vc"], *counts, f"{record.seen[-1][1]:.6f}"))
    return found


def vc_of(on: Stage, name: str) -> dict[str, Any]:
    return next(vc for vc in on.client.vcs() if vc["name"] == name)


def farewell(on: Stage, *, is_kept: bool) -> None:
    if not is_kept:
        tell("", "The server and its folder are gone. Your own: `skep up`, then `skep run --gpus 1 -- COMMAND`.")
        return
    tell(
        "",
        f"The server stays; its dashboard is at {on.client.url} (`skep open`). To use it:",
        f"  cd {on.folder} && export SKEP_URL={on.client.url}",
        f"  skep run --vc vision --gpus 2 -- {PYTHON} {SCRIPT} --steps 50",
        "To stop it and remove everything:",
        f"  skep down --stop-jobs --data {on.folder / DATA} && rm -r {on.folder}",
    )
