"""JSON to the fields of a frozen value and back; what is wrong is said by the name of the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

Reader = Callable[[Any], Any]
"""Makes a value of its JSON form, or raises ``ValueError`` saying what it wants."""


def line(value: Mapping[str, Any]) -> str:
    """Spell an object in one line, fields in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sparse(value: Any) -> dict[str, Any]:
    """Fields of a frozen dataclass to JSON values, without those that are at their default."""
    found = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {name: _plain(cell) for name, (cell, default) in found.items() if cell != default}


def _plain(cell: Any) -> Any:
    if isinstance(cell, tuple):
        return [item.to_json() if hasattr(item, "to_json") else item for item in cell]
    return cell


def decoded(found: Mapping[str, Any], readers: Mapping[str, Reader], wanted: tuple[str, ...]) -> dict[str, Any]:
    """Read every field of an object.

    Args:
        found: the object.
        readers: how to read a field, by name.
        wanted: fields that must be there.

    Raises:
        ValueError: a field is unknown, missing, or not what it should be.
    """
    unknown = sorted(found.keys() - readers.keys())
    missing = [name for name in wanted if name not in found]
    if unknown or missing:
        raise ValueError(f"unknown field {unknown[0]!r}" if unknown else f"no {missing[0]!r}")
    return {name: _read(name, readers[name], cell) for name, cell in found.items()}


def _read(name: str, reader: Reader, cell: Any) -> Any:
    try:
        return reader(cell)
    except ValueError as wrong:
        raise ValueError(f"{name!r}: {wrong}") from None


def exactly(kind: type[T], words: str) -> Callable[[Any], T]:
    """A reader of one JSON type; ``true`` is not an integer."""

    def read(value: Any) -> T:
        if type(value) is not kind:
            raise ValueError(f"wants {words}, not {value!r}")
        return value

    return read


text = exactly(str, "a text")
integer = exactly(int, "an integer")
flag = exactly(bool, "true or false")


def number(value: Any) -> float:
    """Read a number.

    Raises:
        ValueError: not one.
    """
    if type(value) not in (int, float):
        raise ValueError(f"wants a number, not {value!r}")
    return float(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Read an object.

    Raises:
        ValueError: not one.
    """
    if not isinstance(value, dict):
        raise ValueError(f"wants an object, not {value!r}")
    return value


def maybe(reader: Callable[[Any], T], value: Any) -> T | None:
    """Read a value that may be ``null``."""
    return None if value is None else reader(value)


def many(reader: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """A reader of a list, of which ``reader`` reads each item."""

    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError(f"wants a list, not {value!r}")
        return tuple(reader(item) for item in value)

    return read
