"""Plain values (mappings, lists, text, numbers, flags) from documents that people write."""

from __future__ import annotations

import json
import re
from typing import Any

from skep.core.errors import InputError
from skep.files.document import Field

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,29})")
_WORDS: dict[str, bool] = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def plain(field: Field) -> Any:
    """The values as in JSON. Only what can be nothing else is a number or a flag: a VC `007` or `no` is a name."""
    raw = field.raw
    if raw.is_map:
        return {key: plain(value) for key, value in field.fields().items()}
    if isinstance(raw.content, list):
        return [plain(item) for item in field.items()]
    if not raw.is_plain:
        return raw.content
    if field.is_null:
        return None
    if raw.content in _WORDS:
        return _WORDS[raw.content]
    return int(raw.content) if _WHOLE.fullmatch(raw.content) else raw.content


def parse_json(text: str, shown: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{shown}:{error.lineno}: is not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{shown}: is nested too deep") from None
    except ValueError as error:
        raise InputError(f"{shown}: is not JSON: {error}") from None
