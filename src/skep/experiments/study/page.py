"""The page of a study: one HTML file that opens offline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from skep.experiments.study.analyse import Side
from skep.experiments.study.figures import CurveLine, Look, curves, forest, in_order, looks_of, matrix, mini_forest
from skep.experiments.study.outcome import DECISION, MEASURES
from skep.experiments.study.recommend import Recommendation
from skep.experiments.study.study import Study
from skep.experiments.study.tables import decision_ms, measures_of
from skep.experiments.study.words import NAMES, advice, shown_interval, verdict_on
from skep.policies.registry import shown_needs
from skep.report.columns import Column, best_of
from skep.report.html import figure, page
from skep.report.markup import Head, TableCell, TextLine, clip, data_table, escape, tag
from skep.report.sections import legend, section
from skep.report.units import format_count
from skep.report.verdict import oracle_badge

CURVED = ("jct_avg_s", "jct_p99_s", "queue_avg_s", "slowdown_avg", "utilization", "fre")
"""What is drawn along an axis, besides the measure that decides."""
MATRIX_MOST = 24
QUOTED = re.compile(r"`([^`]*)`")


def render_study(study: Study, *, command: str = "") -> str:
    """The page as text."""
    title = f"{study.trace.name} on {', '.join(study.clusters)}"
    body = masthead(study, title) + "".join(sections(study))
    body += tag("footer", "Written by skep" + (f": {tag('code', escape(clip(command, 2000)))}" if command else "."))
    style = resources.files("skep.experiments.study").joinpath("study.css").read_text("utf-8")
    policies = [each.policy for each in study.candidates]
    return page(title, body, {"policies": policies, "charts": {}, "gantts": []}, style=style)


def masthead(study: Study, title: str) -> str:
    facts = [
        ("Trace", study.trace.name),
        ("Jobs", format_count(len(study.trace.jobs))),
        ("Policies", format_count(len(study.candidates))),
        ("Runs", format_count(len(study.outcomes))),
        ("Decided by", NAMES[study.question.measure]),
    ]
    listed = "".join(tag("div", tag("dt", name) + tag("dd", escape(value))) for name, value in facts)
    said = verdict_on(study.recommendations[0]) if len(study.clusters) == 1 else verdict_along(study)
    body = tag("h1", escape(f"Study of {title}")) + tag("p", named(said, study), class_="verdict")
    return tag("header", body + tag("dl", listed, class_="facts"), class_="masthead")


def verdict_along(study: Study) -> str:
    """Over several clusters: where one policy is the best, and where another."""
    chosen: dict[str, list[str]] = {}
    for found in study.recommendations:
        name = found.best.policy if found.best is not None and found.is_sure else "cannot tell"
        chosen.setdefault(name, []).append(found.cluster)
    return "; ".join(f"{policy}: {', '.join(clusters)}" for policy, clusters in chosen.items()) + "."


def named(text: str, study: Study) -> str:
    """A sentence in which the names of policies stand out, and are not broken at a hyphen (markup)."""
    names = sorted((re.escape(escape(each.policy)) for each in study.candidates), key=len, reverse=True)
    found = re.compile(rf"(?<![\w-])({'|'.join(names)})(?![\w-])")
    return found.sub(lambda match: tag("strong", match[0], class_="policy"), in_code(text))


def in_code(text: str) -> str:
    """Backquotes become code (markup)."""
    return QUOTED.sub(lambda match: tag("code", match[1]), escape(text))


def sections(study: Study) -> list[str]:
    last = study.recommendations[-1]
    whole = [one_cluster(study, found, is_only=len(study.clusters) == 1) for found in study.recommendations]
    if len(study.clusters) > 1:
        whole = (
            [axis_section(study), sizes_section(study), *whole[:1], *whole[-1:]]
            if len(whole) > 2
            else [axis_section(study), *whole]
        )
    elif study.question.variation is not None:
        whole = [knob_section(study), *whole]
    return [*whole, numbers(study, last.cluster), left_out(study), method(study)]


def one_cluster(study: Study, found: Recommendation, *, is_only: bool) -> str:
    sides = study.on(found.cluster)
    if not sides:
        return ""
    looks = looks_of(sides, found)
    ordered = in_order(sides, found.measure)
    where = "" if is_only else f" on {found.cluster}"
    name = re.sub(r"\W+", "-", found.cluster)
    parts = [
        section(
            f"advice-{name}",
            f"What that means{where}" if is_only else f"Recommendation{where}",
            advice_list(found, has_verdict=not is_only),
        ),
        section(
            f"forest-{name}",
            f"{NAMES[found.measure.key].capitalize().replace('jct', 'JCT')}{where}",
            keys(looks) + tag("div", tag("figure", forest(sides, found, looks)), class_="wide whole"),
            note="Dots are values, lines their 95% intervals. Intervals may overlap where a difference is real: the "
            "right half compares policies in the same runs, so what all of them suffer cancels out.",
        ),
        section(f"measures-{name}", f"Everything else{where}", minis(ordered, found, looks)),
    ]
    if 2 < len(ordered) <= MATRIX_MOST and study.question.repetitions > 1:
        note = (
            "A row against a column: coloured where the difference is real, hollow where it may be chance. Of the "
            "coloured ones about one in twenty is chance too (Benjamini and Hochberg)."
        )
        body = matrix_keys() + tag("div", tag("figure", matrix(ordered, found.measure)), class_="wide whole")
        parts.append(section(f"matrix-{name}", f"Which differences are real{where}", body, note=note))
    return "".join(parts)


def advice_list(found: Recommendation, *, has_verdict: bool) -> str:
    said = advice(found)[0 if has_verdict else 1 :]
    items = [tag("div", tag("dt", escape(name)) + tag("dd", in_code(text))) for name, text in said]
    return tag("dl", "".join(items), class_="advice" + (" first" if has_verdict else ""))


def keys(looks: dict[str, Look]) -> str:
    known = {look.mark: look.note for look in looks.values()}
    order = [mark for mark in ("best", "equal", "worse", "oracle", "excluded") if mark in known]
    return tag(
        "p", "".join(tag("span", tag("i", class_=f"mark {mark}") + known[mark]) for mark in order), class_="keys"
    )


def matrix_keys() -> str:
    marks = (("better d2", "the row is better"), ("behind d2", "the row is worse"), ("unsure", "may be chance"))
    return tag(
        "p", "".join(tag("span", tag("i", class_=f"key cell {mark}") + name) for mark, name in marks), class_="keys"
    )


def minis(sides: Sequence[Side], found: Recommendation, looks: dict[str, Look]) -> str:
    columns = [column for column in measures_of(sides) if column.key != found.measure.key and differs(sides, column)]
    figures = [
        figure(escape(NAMES[column.key]), mini_forest(sides, column, looks), note=column.note) for column in columns
    ]
    return tag("div", "".join(figures), class_="panels")


def differs(sides: Sequence[Side], column: Column) -> bool:
    """A measure that reads the same for all policies is in the table only."""
    return len({column.show(side.value(column.key)) for side in sides}) > 1


def axis_section(study: Study) -> str:
    """Every policy over the sizes of the cluster."""
    gpus = [float(each.cluster.gpu_total) for each in study.question.experiments]
    positions = gpus if len(set(gpus)) == len(gpus) else [float(number) for number in range(len(gpus))]
    policies = [each.policy for each in study.candidates]
    lines = [
        CurveLine(
            index,
            [next((side for side in study.on(name) if side.policy == policy), None) for name in study.clusters],
        )
        for index, policy in enumerate(policies)
    ]
    names = [format_count(each) for each in gpus] if positions == gpus else study.clusters
    return curve_section(study, lines, positions, names, "GPUs of the cluster", policies)


def knob_section(study: Study) -> str:
    """One policy over the values of a knob."""
    varied = study.question.variation
    if varied is None:
        return ""
    sides = {side.policy: side for side in study.sides}
    line = CurveLine(0, [sides.get(policy) for policy in varied.policies])
    values = list(varied.policies.values())
    positions = [float(number) for number in range(len(values))]
    return curve_section(study, [line], positions, values, varied.knob, [varied.knob])


def curve_section(
    study: Study, lines: list[CurveLine], positions: list[float], names: list[str], axis: str, policies: list[str]
) -> str:
    known = [side for line in lines for side in line.sides if side is not None]
    keys = dict.fromkeys([study.question.measure, *CURVED])
    columns = [MEASURES[key] for key in keys if differs(known, MEASURES[key])]
    figures = [
        figure(escape(NAMES[column.key]), curves(lines, positions, names, column, axis), note=column.note)
        for column in columns
    ]
    body = tag("div", "".join(figures), class_="pair")
    oracles = {side.policy for side in known if side.oracle}
    badges = [oracle_badge() if policy in oracles else "" for policy in policies]
    return legend(policies, badges=badges) + section("curves", f"Along {axis}", body, note="Bands are 95% intervals.")


def sizes_section(study: Study) -> str:
    heads = [Head("Cluster", is_text=True), Head("Recommendation", is_text=True)]
    rows = [TextLine(found.cluster, [TableCell(verdict_on(found))]) for found in study.recommendations]
    return section(
        "sizes", "At each size", tag("div", data_table(heads, rows, caption="Recommendations"), class_="said")
    )


def numbers(study: Study, cluster: str) -> str:
    """All measures as a table, of every cluster."""
    sides = [side for name in study.clusters for side in in_order(study.on(name), MEASURES[study.question.measure])]
    columns = measures_of(sides)
    heads = [Head("Policy", is_text=True), Head("Assumes", is_text=True)]
    heads += [Head(column.label, group=column.group, note=column.note) for column in (*columns, DECISION)]
    best = {column.key: winners(sides, column) for column in columns} if len(study.clusters) == 1 else {}
    rows = [
        TextLine(
            side.policy + (f" on {side.cluster}" if len(study.clusters) > 1 else ""),
            [
                TableCell(shown_needs(side.needs)),
                *(number_cell(side, column, is_best=index in best.get(column.key, ())) for column in columns),
                TableCell(DECISION.show(decision_ms(side)), decision_ms(side)),
            ],
            badge=oracle_badge() if side.oracle else "",
        )
        for index, side in enumerate(sides)
    ]
    note = "Point at a number for its interval. Only the time of a decision was measured; all else is simulated."
    return section("numbers", "All numbers", data_table(heads, rows, caption="All measures"), note=note)


def winners(sides: Sequence[Side], column: Column) -> set[int]:
    """A policy that knows durations is never the best."""
    return best_of([None if side.oracle else side.value(column.key) for side in sides], column.better, column.show)


def number_cell(side: Side, column: Column, *, is_best: bool) -> TableCell:
    value = side.value(column.key)
    return TableCell(column.show(value), value, is_best=is_best, note=shown_interval(side, column))


def left_out(study: Study) -> str:
    reasons = study.left_out | {policy: f"it failed: {error}" for policy, error in study.failed.items()}
    if not reasons:
        return ""
    by_reason: dict[str, list[str]] = {}
    for policy, why in reasons.items():
        by_reason.setdefault(why, []).append(policy)
    items = [
        tag("li", tag("strong", escape(", ".join(names))) + ": " + escape(why)) for why, names in by_reason.items()
    ]
    return section("left-out", "Left out", tag("ul", "".join(items), class_="left-out"))


def method(study: Study) -> str:
    drawn = (
        "The value of a policy is that on the trace as it is. Bootstraps draw the blocks of the trace anew, with "
        "replacement, and the spread of the values over them is the standard error: how much the value would move with "
        "another history of the same kind."
        if study.is_drawn
        else "The value of a policy is the mean over its runs."
    )
    text = (
        f"{study.method.capitalize()}. {drawn} All policies run on the same draws, so differences are compared in "
        "pairs: Student's t on the logarithm of the ratio. The recommendation uses Holm's correction for several tests "
        "at once, and takes a difference below 1% for none. A simulation assumes what it is given: without a profile "
        "every job runs at rate 1 wherever it sits, and stopping a job costs its restart."
    )
    return section("method", "Method", tag("p", escape(text), class_="note"))
