"""Every module of the kernel, every planner and every named policy has a file of unit tests named after it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests/unit"
DECLARATIONS = {"actions", "events", "reports", "ports", "view"}
"""Types without behaviour of their own: whatever uses them tests them."""
KERNEL = sorted(
    path.relative_to(ROOT / "src/skep/core")
    for path in (ROOT / "src/skep/core").rglob("*.py")
    if path.stem not in DECLARATIONS | {"__init__"}
)
PLANNERS = ("afs", "easy", "idle", "pipeline", "replica", "shared/planner", "shared/lender")
ZOO = sorted(path.stem for path in (ROOT / "src/skep/policies/zoo").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", KERNEL, ids=str)
def test_modules_of_the_kernel(module: Path) -> None:
    """Names of test files are unique, so some begin with `core_`."""
    name = "_".join(module.with_suffix("").parts)
    assert any((TESTS / "core" / f"test_{prefix}{name}.py").exists() for prefix in ("", "core_"))


@pytest.mark.parametrize("module", PLANNERS)
def test_planners(module: str) -> None:
    assert (ROOT / "src/skep/policies" / f"{module}.py").exists()
    assert (TESTS / "policies" / f"test_{module.replace('/', '_')}.py").exists()


@pytest.mark.parametrize("policy", ZOO)
def test_policies(policy: str) -> None:
    assert (TESTS / "policies" / f"test_{policy}.py").exists()
