"""The schema of the API without a running server: for the types of the dashboard and for the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from skep.server.app import make_api
from skep.server.config import Config
from skep.server.context import Context
from skep.service.values import Json


def openapi() -> Json:
    nothing = cast(Any, None)  # the routes are inspected and not called
    parts = {name: nothing for name in Context.__struct_fields__}
    return make_api(Context(**{**parts, "config": Config(data=Path())})).openapi()
