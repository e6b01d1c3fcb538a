"""Nested values as JSON text, the way Spark's ``to_json`` spells them: exact numbers, ISO times, bytes in base64."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any


def render(values: Iterable[Any]) -> list[str | None]:
    """JSON text of every value; a null stays a null of the column.

    Args:
        values: as Arrow's ``to_pylist`` gives them: structs as dicts, maps as lists of pairs when ``maps`` were asked so.
    """
    return [None if value is None else spell(value) for value in values]


def spell(value: Any) -> str:
    """JSON text of one value. Decimals keep every digit, which the standard encoder cannot do."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(_key(key))}:{spell(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(spell, value)) + "]"
        case Decimal():
            return format(value, "f")
        case float() if not math.isfinite(value):
            return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
        case datetime.datetime() | datetime.date() | datetime.time():
            return json.dumps(value.isoformat())
        case datetime.timedelta():
            return json.dumps(f"PT{Decimal(value // datetime.timedelta(microseconds=1)).scaleb(-6).normalize():f}S")
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case _:
            return json.dumps(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else spell(key).strip('"')
