"""The top of the report: the main result in a sentence, four numbers, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from skep.metrics.run import Run
from skep.report.columns import Column, columns_for
from skep.report.markup import clip, escape, swatch, tag
from skep.report.units import format_count, format_duration, format_factor

REASONS_MOST = 8
_TILES = ("jct_avg_s", "queue_p99_s", "makespan_s", "utilization")
_TILE_NAMES = {
    "jct_avg_s": "average JCT",
    "queue_p99_s": "p99 waiting",
    "makespan_s": "makespan",
    "utilization": "utilization",
}
_BEST_WORDS = {
    "jct_avg_s": "Lowest",
    "queue_p99_s": "Lowest",
    "makespan_s": "Shortest",
    "utilization": "Highest",
}


ORACLE_NOTE = "The policy reads true durations, which no real cluster knows: a bound for the others."


def oracle_badge(run: Run | None = None) -> str:
    """Marks a policy that knows the future; empty for others."""
    if run is not None and not run.is_oracle:
        return ""
    return tag("span", "knows durations", class_="oracle", title=ORACLE_NOTE)


def contenders(runs: Sequence[Run]) -> list[int]:
    """The policies that can win: those that could be deployed. A single policy has no rival."""
    return [index for index, run in enumerate(runs) if not run.is_oracle or len(runs) == 1]


def masthead(runs: Sequence[Run], *, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Title, the main sentence, and a description of the run."""
    what = [
        ("Trace", _distinct(run.summary.trace for run in runs)),
        ("Cluster", _distinct(run.summary.cluster for run in runs)),
        ("GPUs", _distinct(format_count(run.gpu_total) for run in runs)),
        ("Jobs", _distinct(format_count(run.summary.jobs) for run in runs)),
        ("Seed", _distinct(str(run.summary.seed) for run in runs)),
        *facts,
    ]
    listed = "".join(
        tag("div", tag("dt", name) + tag("dd", escape(value), title=value)) for name, value in what if value
    )
    body = tag("h1", escape(title)) + tag("p", verdict(runs), class_="verdict") + tag("dl", listed, class_="facts")
    return tag("header", body, class_="masthead")


def verdict(runs: Sequence[Run]) -> str:
    """The main result, in a sentence (markup)."""
    rated = [(jct_s, index) for index in contenders(runs) if (jct_s := runs[index].summary.jct_avg_s) is not None]
    if runs and not contenders(runs):
        return f"All of these policies know durations, which no real cluster does: none of them wins.{_bound(runs)}"
    if not rated:
        return "No job finished." if runs else "There is nothing to compare."
    best_s, best = min(rated)
    if len(runs) == 1:
        queue_s = runs[0].summary.queue_avg_s or 0.0
        times = f"{_time(best_s)} on average, {_time(queue_s)} of it waiting"
        return f"Under {policy_name(runs[0])} a job takes {times}."
    lead = f"{policy_name(runs[best])} has the lowest average JCT: {_time(best_s)}."
    if best and not runs[0].is_oracle:
        return f"{lead} {_against(runs[0], best_s)}{_bound(runs)}"
    others = sorted(rated)[1:]
    if not others and not _bound(runs):
        return f"{lead} No job finished under any other policy."
    following = f" The next, {_against(runs[others[0][1]], best_s, is_inner=True)}" if others else ""
    return f"{lead}{following}{_bound(runs)}"


def _bound(runs: Sequence[Run]) -> str:
    """What knowing the durations would bring at best, if some policy does."""
    known = [(run.summary.jct_avg_s, index) for index, run in enumerate(runs) if run.is_oracle]
    rated = [(jct_s, index) for jct_s, index in known if jct_s is not None]
    if not rated:
        return ""
    jct_s, index = min(rated)
    return f" With durations known, {policy_name(runs[index])} reaches {_time(jct_s)}."


def _against(run: Run, best_s: float, *, is_inner: bool = False) -> str:
    other_s = run.summary.jct_avg_s
    name = policy_name(run) + ("," if is_inner else "")
    if other_s is None:
        return f"Under {name} no job finished."
    if other_s <= best_s * 1.005:
        return f"{name} is as good ({_time(other_s)})."
    factor = f"{format_factor(other_s / best_s)} as long" if best_s > 0 else "longer"
    return f"{name} takes {tag('strong', factor)} ({_time(other_s)})."


def policy_name(run: Run) -> str:
    """The policy as it was typed (markup)."""
    return tag("strong", escape(clip(run.summary.policy, 80)), class_="policy")


def _time(seconds: float) -> str:
    return escape(format_duration(seconds)).replace(" ", "&nbsp;")


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(clip(value) for value in values))


def tiles(runs: Sequence[Run]) -> str:
    """The four main numbers: the best value of each, and its policy."""
    columns = {column.key: column for column in columns_for(runs)}
    return tag("div", "".join(_tile(runs, columns[key]) for key in _TILES), class_="tiles")


def _tile(runs: Sequence[Run], column: Column) -> str:
    values = [(value, index) for index in contenders(runs) if (value := column.value(runs[index])) is not None]
    pick = min if column.better == "low" else max
    best, index = pick(values, key=lambda entry: entry[0], default=(None, 0))
    name = _TILE_NAMES[column.key]
    title = f"{_BEST_WORDS[column.key]} {name}" if len(runs) > 1 else name.capitalize().replace("jct", "JCT")
    parts = tag("p", escape(title), class_="what") + tag("p", escape(column.show(best)), class_="value")
    if best is not None and len(runs) > 1:
        same = sum(column.show(value) == column.show(best) for value, _ in values)
        policy = runs[index].summary.policy
        is_same = same == len(values) > 1
        whose = "the same under all" if is_same else swatch(index) + escape(clip(policy, 80))
        parts += tag("p", whose, class_="whose name", title=None if is_same else clip(policy))
    return tag("div", parts, class_="tile", title=column.note)


def warnings(runs: Sequence[Run]) -> str:
    """Jobs that did not finish or never can, with reasons; policies that agree share a line."""
    told: dict[str, list[str]] = {}
    for run in runs:
        for text in (_unfinished(run), _unrunnable(run)):
            if text:
                told.setdefault(text, []).append(run.summary.policy)
    if not told:
        return ""
    items = [tag("li", tag("strong", escape(_whom(names, runs))) + " " + text) for text, names in told.items()]
    note = "Averages are over finished jobs"
    if len({run.summary.finished for run in runs}) > 1:
        note += ", and the policies did not finish equally many: compare them with care"
    body = tag("h2", "Not every job finished", id="warnings") + tag("p", f"{note}.") + tag("ul", "".join(items))
    return tag("section", body, class_="card warning", aria_labelledby="warnings")


def _whom(names: Sequence[str], runs: Sequence[Run]) -> str:
    if len(names) == len(runs) > 1:
        return "All policies:"
    return ", ".join(clip(name, 80) for name in names) + ":"


def _unfinished(run: Run) -> str:
    if not run.summary.unfinished:
        return ""
    states = Counter(row.state for row in run.rows if row.finish_s is None and row.state != "unrunnable")
    split = ", ".join(f"{format_count(count)} {escape(clip(state, 40))}" for state, count in states.most_common())
    return f"{_jobs(run.summary.unfinished)} did not finish" + (f" ({split})." if split else ".")


def _unrunnable(run: Run) -> str:
    if not (run.unrunnable or run.summary.unrunnable):
        return ""
    ids: dict[str, list[str]] = {}
    for job_id, reason in run.unrunnable.items():
        ids.setdefault(reason, []).append(job_id)
    ranked = sorted(ids.items(), key=lambda entry: -len(entry[1]))
    items = [_reason(reason, jobs) for reason, jobs in ranked[:REASONS_MOST]]
    if len(ranked) > REASONS_MOST:
        items.append(tag("li", f"and {format_count(len(ranked) - REASONS_MOST)} further reasons"))
    count = run.summary.unrunnable or len(run.unrunnable)
    return f"{_jobs(count)} can never run on this cluster." + (tag("ul", "".join(items)) if items else "")


def _reason(reason: str, jobs: Sequence[str]) -> str:
    some = ", ".join(clip(job, 40) for job in jobs[:3]) + ("…" if len(jobs) > 3 else "")
    example = tag("span", escape(f"({_jobs(len(jobs))}: {some})"), class_="quiet")
    return tag("li", f"{escape(clip(reason))} {example}")


def _jobs(count: int) -> str:
    return f"{format_count(count)} job" + ("" if count == 1 else "s")
