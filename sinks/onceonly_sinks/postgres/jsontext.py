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
    """JSON text of every value, as Arrow's ``to_pylist`` gives them; a null stays a null of the column."""
    return [None if value is None else spell(value) for value in values]


def spell(value: Any) -> str:
    """JSON text of one value. Decimals keep every digit, which the standard encoder cannot do."""
    match value:
        case dict():
            text = "{" + ",".join(f"{json.dumps(_key(key))}:{spell(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            text = "[" + ",".join(map(spell, value)) + "]"
        case Decimal():
            text = format(value, "f")
        case float() if not math.isfinite(value):
            text = json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
        case _:
            text = json.dumps(_plain(value))
    return text


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return f"PT{Decimal(value // datetime.timedelta(microseconds=1)).scaleb(-6).normalize():f}S"
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else spell(key).strip('"')
