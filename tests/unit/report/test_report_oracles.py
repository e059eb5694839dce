"""Policies that know the future are marked and do not lead; how a page was made is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_runs import fabricate, make_row, make_run
from rich.console import Console

from skep.cli.simulate import check_html
from skep.core.errors import InputError
from skep.core.needs import Need
from skep.metrics.run import Run
from skep.policies.registry import needs_of
from skep.report.charts import is_uneven
from skep.report.columns import COLUMNS, best_of_rivals
from skep.report.html import render_report
from skep.report.markup import series_class
from skep.report.sample import course_of
from skep.report.table import comparison_tables
from skep.report.verdict import tiles, verdict


def run(policy: str, jct_s: float, *, is_oracle: bool = False) -> Run:
    return make_run([make_row(jct_s=jct_s, finish_s=jct_s)], policy=policy, oracle=is_oracle)


RUNS = [run("fifo", 7200.0), run("tiresias-l", 3600.0), run("srsf", 1800.0, is_oracle=True)]


def words(markup: str) -> str:
    return re.sub(r"<[^>]+>", "", markup).replace("&nbsp;", " ")


def test_the_best_policy_that_is_no_oracle_leads_and_the_oracle_is_the_bound() -> None:
    said = words(verdict(RUNS))
    assert said.startswith("tiresias-l has the lowest average JCT: 1 h.")
    assert said.endswith("With durations known, srsf reaches 30 min.")


def test_among_oracles_alone_nobody_wins() -> None:
    oracles = [RUNS[2], run("srtf", 3600.0, is_oracle=True)]
    said = words(verdict(oracles))
    assert said.startswith("All of these policies know durations")
    assert said.endswith("With durations known, srsf reaches 30 min.")
    assert "lowest" not in said
    assert "srsf" not in tiles(oracles)


def test_an_oracle_is_never_the_best_of_a_column() -> None:
    table, _ = comparison_tables(RUNS)
    average = next(column for column in table.columns if column.header == "JCT\navg")
    assert [str(cell.style) for cell in average.cells] == ["", "bold", ""]
    assert best_of_rivals(RUNS, next(each for each in COLUMNS if each.key == "jct_avg_s")) == {1}


def test_an_oracle_given_first_is_not_what_others_are_measured_against() -> None:
    said = words(verdict([RUNS[2], RUNS[1], RUNS[0]]))
    assert said == (
        "tiresias-l has the lowest average JCT: 1 h. The next, fifo, takes 2× as long (2 h). "
        "With durations known, srsf reaches 30 min."
    )


def test_one_policy_beside_an_oracle_is_not_called_the_only_one_that_finished() -> None:
    assert "No job finished" not in words(verdict(RUNS[1:]))


def test_tiles_name_no_oracle() -> None:
    assert "srsf" not in tiles(RUNS)


def test_oracles_have_a_badge_on_the_page_and_a_mark_in_the_terminal() -> None:
    page = render_report(RUNS, title="t")
    assert page.count('class="oracle"') == 3  # in the note, the table and the legend
    console = Console(width=140)
    with console.capture() as capture:
        console.print(*comparison_tables(RUNS))
    assert "srsf †" in capture.get()
    assert "† knows durations" in capture.get()
    assert not any("†" in str(table.caption) for table in comparison_tables(RUNS[:2]))


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        ("fifo", ""),
        ("fifo:walk=easy", "oracle"),
        ("sjf", "oracle"),
        ("sjf:estimate=history", "history"),
        ("sjf:estimate=history,walk=easy", "history oracle"),
        ("qssf", "history"),
        ("qssf:estimate=known", "oracle"),
        ("srtf", "oracle checkpoint"),
        ("srsf", "oracle checkpoint"),
        ("afs-l", "throughput oracle checkpoint resize"),
        ("tiresias-g", "history checkpoint"),
        ("tiresias-g:samples=x.txt", "checkpoint"),
        ("yarn-cs:take_back=2", ""),
        ("e-las", "progress oracle checkpoint"),
        ("gandiva", "throughput resize share migrate"),
        ("antman", "throughput share checkpoint"),
        ("yarn-cs:quotas=usage", "history checkpoint"),
    ],
)
def test_what_a_policy_builds_on_follows_from_its_knobs(policy: str, needs: str) -> None:
    assert needs_of(policy) == frozenset(map(Need, needs.split()))


def test_the_page_says_how_it_was_made() -> None:
    command = "skep compare 'a <b>.csv' --cluster 8x8"
    page = render_report(RUNS, title="t", facts=[("Load", "0.90"), ("Skep", "1.2")], command=command)
    assert "<dt>Load</dt><dd" in page
    assert "skep compare &#x27;a &lt;b&gt;.csv&#x27; --cluster 8x8" in page


def test_two_dozen_policies_look_different() -> None:
    assert len({series_class(series) for series in range(24)}) == 24


def test_queues_that_differ_much_are_drawn_on_a_logarithmic_axis() -> None:
    calm, busy = fabricate("a", jobs=300, nodes=6, load=0.3), fabricate("b", jobs=300, nodes=6, load=3.0)
    assert not is_uneven([course_of(busy), course_of(busy)])
    assert is_uneven([course_of(calm), course_of(busy)])
    assert "their axis is logarithmic" in render_report([calm, busy], title="t")
    assert "their axis is logarithmic" not in render_report([busy, busy], title="t")


def test_bars_can_be_coloured_by_virtual_cluster_where_there_are_several() -> None:
    several, one = fabricate("a", jobs=200, nodes=4, vcs=3), fabricate("a", jobs=200, nodes=4, vcs=1)
    assert re.findall(r'data-colour="(\w+)"', render_report([several], title="t")) == ["size", "vc", "job"]
    assert re.findall(r'data-colour="(\w+)"', render_report([one], title="t")) == ["size", "job"]
    assert re.search(r'class="job z\d v[0-2] j\d+"', render_report([several], title="t"))


def test_words_are_explained_on_the_page() -> None:
    page = render_report(RUNS, title="t")
    for word in ("JCT", "Useful (fre)", "Busy", "First p90", "Unfairness (ρ)", "Jain", "Arriving", "Fragmented"):
        assert f"<dt>{word}</dt>" in page


def test_a_named_report_is_replaced_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report(RUNS, title="t"), encoding="utf-8")
    with pytest.raises(InputError, match="exists"):
        check_html(file, force=False)
    check_html(file, force=True)
    check_html(file, force=False, replaces_own=True)
