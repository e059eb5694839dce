"""The verbs of the glossary keep one meaning: a new function with such a name is looked at first."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import skep

PACKAGE = Path(skep.__file__).parent
VERBS = ("book", "follow", "look", "note", "settle", "take", "tell")
MODULES = {
    "book": """
        core/others core/plan policies/gandiva_fair policies/reasons service/limits
    """,
    "follow": """
        core/group core/history core/pool engines/kube/copy_log engines/kube/engine engines/kube/runs
        engines/kube/watch engines/local/upkeep policies/pipeline policies/place/board policies/place/scored
        policies/shared/clusters policies/shared/health service/limits service/planning
    """,
    "look": """
        core/ports engines/kube/engine engines/local/engine engines/local/keeper engines/local/launches
        engines/local/run engines/local/upkeep server/edge server/watch train/asked
    """,
    "note": """
        clusters/chains core/changes core/history core/requests engines/kube/copy_log engines/local/disk
        engines/sim/rates metrics/tally policies/adjust/effects policies/adjust/migrate policies/adjust/splice
        policies/running report/fill research/runs server/studies/worker service/live train/stop
    """,
    "settle": """
        core/fold/tasks core/knowledge core/others core/ports core/progress core/refusal core/solving
        engines/kube/engine engines/local/engine engines/local/runs engines/sim/engine policies/adjust/effects
        policies/order/base policies/order/queues
    """,
    "take": """
        core/cells/chain core/ledger core/plan engines/kube/lease engines/local/engine engines/local/launches
        engines/sim/outages engines/sim/rates policies/allocate/runner policies/seats policies/shared/cell_books
        policies/shared/clusters server/logs server/security service/limits service/live train/asked
    """,
    "tell": """
        cli/demo/training cli/demo/voice cli/follow policies/shared/planner server/studies/worker service/live
        train/job
    """,
}
"""Where functions have these names, each with the meaning that docs/reference/words.md gives."""


def test_each_verb_is_used_where_it_has_its_meaning() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") in VERBS:
                found[node.name.strip("_")].add(str(file.relative_to(PACKAGE).with_suffix("")))
    new = {verb: sorted(files - set(MODULES[verb].split())) for verb, files in found.items()}
    assert not any(new.values()), f"does the verb have its meaning there? {new}"
