"""How long `skep explain` takes to try out what would let a job start: 1,000 running and 1,000 pending jobs on 1,000
GPUs, as in `bench.forecast`.

    python -m bench.explain             four policies, with and without 10 VCs, about two minutes
    python -m bench.explain --quick     one policy

CPU seconds for the last pending job, forks included: the changes that were tried one after the other until 0.4 s of
CPU time were over, and how many of them let it start now; then the samples of what lets it start sooner, until 8 s were
over. Exits with 1 if the first took more than 0.5 s or both more than 10 s.
"""

from __future__ import annotations

import argparse
import time

from bench.forecast import POLICIES, VCS, crowded

from skep.core.job import JobState
from skep.experiments.adviser import READ_SOONER, some_of_each
from skep.experiments.adviser_now import NOW_CPU_S, READ_NOW, WRITE, try_now
from skep.experiments.fixes import candidates, case_of
from skep.experiments.lengths import learn
from skep.experiments.paired import sample_all
from skep.experiments.samples import cpu_seconds, import_policy, in_fork
from skep.jobs.request import Request, TaskRole
from skep.service.advice import Asker
from skep.service.foreseen import DAY_S

NOW_MAX_S, ALL_MAX_S, WITHIN_S = 0.5, 10.0, 8.0


def measure(policy: str, vcs: int) -> tuple[str, bool]:
    kept = crowded(policy, vcs)
    import_policy(kept)
    last = max((job for job in kept.state.open_jobs.values() if job.state is JobState.PENDING), key=lambda job: job.seq)
    request = Request("job", {"task": TaskRole(gpus=1)}, vc=last.spec.vc, user=last.spec.user)
    began_s, cpu_s = time.monotonic(), cpu_seconds()
    case = case_of(kept, last.id, request, Asker(), kept.state.now_s)
    assert case is not None
    asked = list(candidates(case))
    now = READ_NOW(in_fork(lambda: WRITE(try_now(case, asked, NOW_CPU_S))))
    now_s = cpu_seconds() - cpu_s
    left = some_of_each([asked[number] for number in now.left if asked[number].kind != "wait"])
    past = learn(kept.state, {})
    later = READ_SOONER(in_fork(lambda: WRITE(sample_all(case, left, past, {}, DAY_S, began_s + WITHIN_S))))
    all_s = cpu_seconds() - cpu_s
    counts = f"{now.count:6} {len(now.fixes):6} {later.count:8} {len(later.fixes):8}"
    return f"{policy:12} {vcs or '-':>4} {now_s:8.2f} {all_s:8.2f} {counts}", now_s <= NOW_MAX_S and all_s <= ALL_MAX_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"{'policy':12} {'VCs':>4} {'now, s':>8} {'all, s':>8} {'tried':>6} {'help':>6} {'samples':>8} {'sooner':>8}")
    held = True
    for policy in POLICIES[:1] if quick else POLICIES:
        for vcs in (0,) if quick else (0, VCS):
            line, is_within = measure(policy, vcs)
            held &= is_within
            print(line, "" if is_within else "over the limit", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
