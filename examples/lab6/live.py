"""The five experiments with real processes: `python examples/lab6/live.py` plays all, `… live.py 2 4` some.

Each starts a server of its own with Carol's and Dan's machine, submits the job files of `jobs/`, prints what happens
when, and checks it. The exit code is 1 if something does not come as the lab says.
"""

from __future__ import annotations

import itertools
import signal
import sys

from classroom import Classroom, Unexpected, classroom

from skep.core.errors import InputError, SkepError

CAROL, DAN = "hostname-carol", "hostname-dan"


def vc_safety(room: Classroom) -> None:
    jobs = [room.submit("vc1-prod.yaml", name) for name in ("first", "second", "third")]
    room.until_runs(jobs[0])
    room.expect("one runs, on Dan's machine; Carol's stays idle", room.used() == {CAROL: 0, DAN: 1})
    room.expect("the next waits for its team's own gpus", room.client.explain(jobs[1])["cause"] == "quota")
    owner = room.submit("default-prod.yaml", "of-default")
    room.until_runs(owner)
    room.expect("default gets Carol's machine the moment it asks", room.runs(owner)[0]["nodes"] == [CAROL])
    room.until_all_end()
    runs = [room.runs(job) for job in jobs]
    room.expect("the three ran on Dan's machine only", all(len(run) == 1 and run[0]["nodes"] == [DAN] for run in runs))
    is_after = all(after[0]["start_s"] >= before[0]["end_s"] for before, after in itertools.pairwise(runs))
    room.expect("one after the other", is_after)


def priority(room: Classroom) -> None:
    test = room.submit("vc1-test.yaml", "test")
    room.until_saved(test, 2)
    prod = room.submit("vc1-prod.yaml", "prod")
    room.until_runs(prod)
    room.expect(
        "test was preempted for prod, and waits", room.count(test, "preempted") == 1 and room.state(test) == "pending"
    )
    room.until_all_end()
    room.expect("both end, test last", room.order("succeeded") == ["prod", "test"])
    room.expect("test goes on after what it had saved", "goes on after epoch 0" not in "".join(room.client.logs(test)))


def opportunistic(room: Classroom) -> None:
    prod = room.submit("vc1-prod.yaml", "prod")
    oppo = room.submit("vc1-oppo.yaml", "oppo")
    room.until_runs(oppo)
    room.expect("vc1 is full, yet oppo runs at once, on Carol's machine", room.runs(oppo)[0]["nodes"] == [CAROL])
    room.until_saved(oppo, 1)
    owner = room.submit("default-test.yaml", "of-default")
    room.until_runs(owner)
    room.expect("default has its machine back", room.runs(owner)[0]["nodes"] == [CAROL])
    room.expect(
        "oppo was preempted for it, prod was not",
        (room.count(oppo, "preempted"), room.count(prod, "preempted")) == (1, 0),
    )
    room.until_runs(oppo, attempt=2)
    room.expect("oppo runs again when a machine is idle", bool({"prod", "of-default"} & set(room.order("succeeded"))))
    room.until_all_end()
    room.expect("oppo goes on after what it had saved", "goes on after epoch 0" not in "".join(room.client.logs(oppo)))


def gang(room: Classroom) -> None:
    single = room.submit("default-prod.yaml", "single")
    room.until_runs(single)
    pair = room.submit("gang.yaml", "gang")
    room.until_saved(single, 3)
    room.expect("one gpu is free, and the gang does not hold it", sum(room.used().values()) == 1)
    room.expect("the gang waits", room.state(pair) == "pending")
    room.until_runs(pair)
    room.expect("it starts when single has ended", room.order("succeeded") == ["single"])
    room.expect("both of its tasks at once, on both machines", room.used() == {CAROL: 1, DAN: 1})
    room.until_all_end()


def incremental(room: Classroom) -> None:
    single = room.submit("default-prod.yaml", "single")
    room.until_runs(single)
    pair = room.submit("incremental.yaml", "incremental")
    room.until_runs(pair)
    room.expect(
        "one task starts at once, beside single", room.used() == {CAROL: 1, DAN: 1} and room.order("succeeded") == []
    )
    room.until_all_end()
    early, late = sorted(room.runs(pair), key=lambda run: run["start_s"])
    room.expect("the other when single has ended", late["start_s"] >= room.runs(single)[0]["end_s"] > early["start_s"])
    four = room.submit("incremental.yaml", "four", instances=4, completion={"minSucceededInstances": 4})
    room.until_all_end()
    room.expect("four tasks on two machines: two at a time", most_at_once(room.runs(four)) == 2)
    try:
        room.submit("gang.yaml", "gang-of-four", instances=4)
    except InputError as refusal:
        room.expect(f"a gang of four is refused: {refusal}", is_so=True)
    else:
        raise Unexpected("a gang of four can never run here, and was not refused")


def most_at_once(runs: list[dict]) -> int:
    return max(sum(run["start_s"] <= at["start_s"] < run["end_s"] for run in runs) for at in runs)


EXPERIMENTS = {
    "1": ("VC safety", "cluster-1.yaml", vc_safety),
    "2": ("Priority and preemption", "cluster-1.yaml", priority),
    "3": ("Opportunistic jobs", "cluster-1.yaml", opportunistic),
    "4": ("Gang", "cluster-2.yaml", gang),
    "5": ("Incremental", "cluster-2.yaml", incremental),
}


def main(wanted: list[str]) -> int:
    if unknown := [word for word in wanted if word not in EXPERIMENTS]:
        print(f"error: there is no experiment {unknown[0]}\n\nhint: the experiments are {', '.join(EXPERIMENTS)}")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the server is not to stay
    for number in wanted or EXPERIMENTS:
        title, cluster, play = EXPERIMENTS[number]
        print(f"{number}. {title} ({cluster})", flush=True)
        try:
            with classroom(cluster) as room:
                play(room)
        except (Unexpected, SkepError) as fault:
            print(f"           NOT AS EXPECTED: {fault}")
            return 1
        except KeyboardInterrupt:
            print("interrupted")
            return 130
    print("everything came as the lab says")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
