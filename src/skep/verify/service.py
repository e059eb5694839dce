"""Checks of least attained service: continuous, in queues (Tiresias), with progress (E-LAS)."""

from __future__ import annotations

from skep.verify.check import Check, Finding, at_most, near, same
from skep.verify.play import Case, Rows, compare, finishes, play, preemptions, row_names, starts

TWINS: Rows = ((0, 400, 2), (0, 400, 2))
"""On 2 GPUs: two equal jobs, only one of which can run."""

LATE: Rows = ((0, 100, 1), (50, 30, 1))
ALIKE: Rows = ((0, 100, 1), (0, 100, 1))
SUNK: Rows = ((0, 200, 2), (10, 30, 2))
NEARLY_DONE: Rows = ((0, 100, 1), (95, 50, 1))
HARDLY_BEGUN: Rows = ((0, 100_000, 1), (7200, 1000, 1))

EARLY: Rows = ((0, 200, 1), (50, 50, 1))
UNEQUAL: Rows = ((0, 240, 2), (0, 350, 1))

STREAM: Rows = ((0, 200, 1), (10, 40, 1), (10, 40, 1), (10, 40, 1), (10, 40, 1), (105, 40, 1))
"""On one GPU: a is demoted at 50 and then waits behind a stream of new jobs."""

POINT: Rows = ((0, 500, 1), (500, 400, 1), (650, 400, 1), (750, 20, 1))
"""On one GPU: after one job of 500 s, b and c wait in the second queue with 150 and 100 s; d ends at 770."""

TAIL: Rows = ((0, 110, 1), (110, 5000, 1), (5110, 400, 1), (5260, 400, 1), (5360, 20, 1))
"""The same after jobs of 110 and 5000 s: now c and d wait, with 150 and 100 s; e ends at 5380."""


TURNS: Rows = ((0, 100_000, 2), (0, 100_000, 1), (0, 100_000, 1), (60_000, 100_000, 1))
"""On 2 GPUs: a needs both; while d, which is new, has one of them, b and c take turns on the other."""

TOGETHER: Rows = ((0, 3000, 1), (0, 3000, 1), (500, 100, 2), (1050, 500, 1))
"""On 2 GPUs: a and b leave the first queue at 1000, and c preempts both."""


def las_all_waiting() -> list[Finding]:
    run = play("las:place=any", "1x2", TURNS)
    assert run.history is not None
    spans = [span for span in run.history.spans if span.job in (1, 2) and 63_000 <= span.start_s <= 95_000]
    return [
        at_most("longest turn of b or c, 63,000 to 95,000", 1200.0, max(span.end_s - span.start_s for span in spans)),
        same("both have turns", {1, 2}, {span.job for span in spans}),
    ]


def demotion() -> list[Finding]:
    run = play("tiresias-l:queues=100+300", "1x2", TWINS)
    assert run.history is not None
    spans = sorted(run.history.spans, key=lambda span: span.start_s)
    turns = " ".join(f"{run.rows[span.job].job_id}@{span.start_s:g}" for span in spans)
    return [
        same("turns", "a@0 b@50 a@100 b@200 a@300 b@550", turns),
        same(f"ends of {row_names(run)}", (550.0, 800.0), finishes(run)),
    ]


def elas_crossing() -> list[Finding]:
    run = play("e-las", "1x1", ((0, 100_000, 1), (10, 100, 1)))
    start_s = starts(run)[1]
    assert start_s is not None
    return [near("start of b", 2034.9, start_s, within=1e-4), same("preemptions of a", 1, preemptions(run)[0])]


CHECKS = (
    Check(
        name="las-gpu-seconds",
        policy="las",
        title="Service is time x GPUs",
        source="by hand, a lead of 100 s: a, of 2 GPUs, has 200 when b, which has nothing, may go at 100; b has to get "
        "100 more than that, and goes on until 400",
        ask=compare(
            Case("las:lead=100", "1x2", UNEQUAL, {"starts": (0, 100), "ends": (540, 590), "preemptions": (1, 1)})
        ),
    ),
    Check(
        name="las-lead",
        policy="las",
        title="A running job is kept for as long as its lead",
        source="by hand: b comes at 50 without service, but a has not run for 100 s yet",
        ask=compare(Case("las:lead=100", "1x1", EARLY, {"starts": (0, 100), "ends": (250, 150)})),
    ),
    Check(
        name="las",
        policy="las",
        title="A job with more service than the new one, by at least the lead, is preempted",
        source="by hand: at 50 a has had 50 GPU-s, b none, the lead is 20; b ends at 80, a has 50 s left",
        ask=compare(Case("las:lead=20", "1x1", LATE, {"ends": (130, 80), "preemptions": (1, 0)})),
    ),
    Check(
        name="las-turns",
        policy="las",
        title="Equal jobs take turns, each as long as the lead allows",
        source="by hand, lead 20: a to 20, b to 60 (40 had), a to 100 (60), b to 140 (80), a to its end at 180, b",
        ask=compare(Case("las:lead=20", "1x1", ALIKE, {"starts": (0, 20), "ends": (180, 200)})),
    ),
    Check(
        name="las-all-waiting",
        policy="las",
        title="The next pending job that could overtake is considered, not only the first one",
        source="by hand, lead 600: of two equal jobs the running one has caught up after at most 600 s, and is ahead "
        "by the lead 600 s later",
        ask=las_all_waiting,
    ),
    Check(
        name="tiresias-l-ties",
        policy="tiresias-l",
        title="Jobs that are demoted and preempted at one instant come back in the order of submission",
        source="by hand: a and b have 1000 GPU-s at 1000, c runs to 1100, d, still in the first queue, to 1600; a goes "
        "on at 1100 with 2000 s left, b at 1600",
        ask=compare(Case("tiresias-l:queues=1000", "1x2", TOGETHER, {"ends": (3100, 3600, 1100, 1600)})),
    ),
    Check(
        name="las-queues",
        policy="las",
        title="In queues a running job gives way when it sinks, not before",
        source="by hand: a on 2 GPUs has its 100 GPU-s at 50, its 100 s at 100; only then b, still in the first, "
        "may run",
        ask=compare(
            Case("las:queues=100", "1x2", SUNK, {"starts": (0, 50), "ends": (230, 80)}),
            Case("las:queues=100,service=seconds", "1x2", SUNK, {"starts": (0, 100)}),
        ),
    ),
    Check(
        name="tiresias-l-demotion",
        policy="tiresias-l",
        title="Demotion at (limit - service) / GPUs of running, last to start is last in the queue",
        source="Gu et al., NSDI 2019, by hand, limits 100 and 300 GPU-s on 2 GPUs: out of the first queue after 50 s "
        "of running, out of the second after 100 more; in the last no job is preempted",
        ask=demotion,
    ),
    Check(
        name="tiresias-l-promotion",
        policy="tiresias-l",
        title="A job that has waited as long as it ran returns to the first queue",
        source="Gu et al., NSDI 2019 (PROMOTEKNOB), by hand: a ran 50 s, so at 100 it is first again, before f who "
        "comes at 105; it runs from 210 until its new 50 s are over",
        ask=compare(
            Case("tiresias-l:queues=50", "1x1", STREAM, {"starts": (0, 50, 90, 130, 170, 210)}),
            Case("tiresias-l:queues=50,promote=1", "1x1", STREAM, {"starts": (0, 50, 90, 130, 170, 260)}),
        ),
    ),
    Check(
        name="tiresias-g-order",
        policy="tiresias-g",
        title="Inside a queue the larger Gittins index goes first, whichever that is",
        source="Gu et al., NSDI 2019, by hand. After one job of 500 s: 1/(500-150) > 1/(500-100), b with 150 before "
        "c with 100. After 110 and 5000 s: 1/4850 < 2/(10+4900), d with 100 before c with 150",
        ask=compare(
            Case("tiresias-g:queues=100", "1x1", POINT, {"ends": (500, 1020, 1320, 770)}),
            Case("tiresias-g:queues=100", "1x1", TAIL, {"ends": (110, 5110, 5930, 5680, 5380)}),
        ),
    ),
    Check(
        name="e-las-near-end",
        policy="e-las",
        title="A job near its end is finished, not pushed out",
        source="Sultana et al., ICPP 2020: more progress goes earlier. By hand: a has 0.5 x 95/7295 + 0.5 x 0.05 = "
        "0.03 at 95, b 0.5; plain LAS lets b push a out",
        ask=compare(
            Case("e-las", "1x1", NEARLY_DONE, {"ends": (100, 150), "preemptions": (0, 0)}),
            Case("las:lead=0.1", "1x1", NEARLY_DONE, {"preemptions": (1, 0)}),
        ),
    ),
    Check(
        name="e-las-crossing",
        policy="e-las",
        title="A running job gives way as soon as its key is behind by the lead, whether anything else happens or not",
        source="by hand: 0.5 x t/(t+7200) - 0.5 x t/100000 = 0.1, the lead, at t = 2034.9",
        ask=elas_crossing,
    ),
    Check(
        name="e-las-at-start",
        policy="e-las",
        title="A job with much service and little progress gives way",
        source="Sultana et al., ICPP 2020: less service goes earlier. By hand: a has 0.5 x 7200/14400 + 0.5 x 0.928 = "
        "0.714 at 7200, b 0.5, the lead is 0.1",
        ask=compare(Case("e-las", "1x1", HARDLY_BEGUN, {"starts": (0, 7200), "preemptions": (1, 0)})),
    ),
)
