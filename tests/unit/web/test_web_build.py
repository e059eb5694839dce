"""The build of the dashboard: what it does without a registry, and what must be the same in two places."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from skep.server.pages import SECTIONS, why_missing

ROOT = Path(__file__).parents[3]
WEB = ROOT / "web"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, WEB / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Hook:
    """The hook in a tree of its own, whose builder cannot reach anything."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
        self.module, self.builder = load("hatch_hook"), load("build")
        self.out = folder / "web"
        self.builder.OUT = self.out
        self.built = 0
        self.warnings: list[str] = []
        monkeypatch.setenv("SKEP_WEB", wish)
        monkeypatch.setattr(self.module, "load_builder", lambda _: self.builder)
        monkeypatch.setattr(self.builder, "build", self.fail)
        self.hook = object.__new__(self.module.WebHook)
        root = SimpleNamespace(root=str(folder), app=SimpleNamespace(display_warning=self.warnings.append))
        monkeypatch.setattr(self.module.WebHook, "root", root.root)
        monkeypatch.setattr(self.module.WebHook, "app", root.app)

    def fail(self) -> None:
        self.built += 1
        raise self.builder.CannotBuild("the npm registry cannot be reached")

    def run(self, version: str = "standard") -> dict[str, Any]:
        data: dict[str, Any] = {"artifacts": []}
        self.hook.initialize(version, data)
        return data


def test_without_a_registry_the_install_succeeds_and_the_page_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Hook(tmp_path, monkeypatch, "")
    assert hook.run() == {"artifacts": ["src/skep/server/web/**"]}
    assert hook.warnings == ["without the dashboard: the npm registry cannot be reached"]
    assert why_missing(hook.out) == "the dashboard was not built: the npm registry cannot be reached"


def test_require_fails_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(tmp_path, monkeypatch, "require")
    with pytest.raises(hook.builder.CannotBuild, match="cannot be reached"):
        hook.run()


def test_skip_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(tmp_path, monkeypatch, "skip")
    hook.run()
    assert (hook.hook.dependencies(), hook.built) == ([], 0)
    assert "SKEP_WEB=skip" in str(why_missing(hook.out))


def test_an_editable_install_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(tmp_path, monkeypatch, "")
    assert hook.run("editable") == {"artifacts": []}
    assert (hook.built, hook.out.exists()) == (0, False)


def test_an_unknown_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_WEB", "maybe")
    with pytest.raises(ValueError, match="skip or require"):
        load("hatch_hook").wish()


def test_a_build_that_fails_or_takes_too_long_is_one_line(tmp_path: Path) -> None:
    builder = load("build")
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nsleep 5\n")
    node.chmod(0o755)
    with pytest.raises(builder.CannotBuild, match=r"vite build took more than 0\.05 s"):
        builder.run(node, "vite.js", "build", timeout_s=0.05)
    node.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(builder.CannotBuild, match="vite build failed with exit code 3"):
        builder.run(node, "vite.js", "build", timeout_s=60)


def test_the_lock_file_names_no_registry() -> None:
    text = (WEB / "package-lock.json").read_text()
    assert not re.search(r'"resolved"|https?://[^"]*registry', text)
    wanted = json.loads((WEB / "package.json").read_text())["dependencies"]
    assert json.loads(text)["packages"][""]["dependencies"] == wanted


def test_the_server_serves_every_address_of_the_router() -> None:
    paths = re.findall(r'path: "/([a-z-]*)', (WEB / "src" / "router.tsx").read_text())
    assert len(paths) > 8
    assert set(paths) == SECTIONS
