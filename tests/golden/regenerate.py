"""Write what the golden traces give now: `python tests/golden/regenerate.py`. Read the difference before keeping it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.clusters import read_cluster
from skep.experiments.output import folder_names, jobs_csv
from skep.experiments.simulate import Experiment, Options
from skep.traces.read import read_trace

HERE = Path(__file__).parent


class Case(msgspec.Struct, frozen=True):
    """A trace of `traces/`, where and how it runs."""

    trace: str
    cluster: str
    policies: tuple[str, ...]
    options: Options = Options()


CASES = (
    Case("line", "1x4", ("fifo", "fifo:walk=skip", "fifo:walk=easy", "sjf", "qssf")),
    Case(
        "gangs", "3x4", tuple(f"fifo:walk=skip,place={place}" for place in ("any", "consolidate", "spread", "random"))
    ),
    Case("preempt", "2x4", ("srtf", "srsf", "smallest", "las:lead=200", "las:queues=100+500", "e-las:lead=0.01")),
    Case("queues", "2x4", ("tiresias-l", "tiresias-l:promote=2", "tiresias-g", "tiresias-l:compat=true,place=any")),
    Case("tenants", "2x4", ("yarn-cs", "yarn-cs:quotas=usage,take_back=0.5", "drf", "yarn-cs:take_back=2,walk=skip")),
    Case("users", "nodes.yaml", ("drf", "fifo:walk=skip", "srtf")),
    Case("shares", "1x3", ("fifo:walk=skip", "srsf", "las:lead=100")),
    Case("types", "2x4:v100+2x4:k80", ("fifo", "srtf", "smallest:place=best-fit")),
    Case("needs", "1x4", ("fifo", "srtf")),
    Case(
        "failures",
        "2x4",
        ("fifo:walk=skip", "srtf"),
        Options(failures="mtbf=900,repair=100", seed=3, checkpoint_s=200.0),
    ),
    Case("rounds", "2x4", ("las", "srtf", "fifo"), Options(round_s=60.0, finish_at_boundary=True)),
    Case("endless", "1x4", ("fifo:walk=skip", "las:lead=60"), Options(restart_s=0.0)),
)


def outcomes(case: Case) -> dict[str, str]:
    """The text of jobs.csv by its file in `expected/`."""
    cluster = str(HERE / case.cluster) if case.cluster.endswith(".yaml") else case.cluster
    trace = read_trace(HERE / "traces" / f"{case.trace}.csv")
    experiment = Experiment(trace, read_cluster(cluster), case.options)
    names = folder_names(list(case.policies))
    runs = [experiment.run(policy) for policy in case.policies]
    return {f"{case.trace}/{name}.csv": jobs_csv(run.rows) for name, run in zip(names, runs, strict=True)}


def main() -> None:
    written = set()
    for case in CASES:
        for name, text in outcomes(case).items():
            path = HERE / "expected" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                print(f"{path.relative_to(HERE)} is new or has changed")
                path.write_text(text)
            written.add(path)
    for path in sorted((HERE / "expected").rglob("*.csv")):
        if path not in written:
            print(f"{path.relative_to(HERE)} is not used any more")
            path.unlink()


if __name__ == "__main__":
    main()
