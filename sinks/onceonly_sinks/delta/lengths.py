"""CHAR(n) and VARCHAR(n): Spark keeps them beside a string column, and only Spark's own writer looks at them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Field of a column's metadata with its type as SQL; of a nested one all of it, and its parts say nothing."""

Limit = tuple[str, int] | tuple[str, tuple["Part", ...]]
Part = tuple[int, "Limit"]
"""Which child of a nested type, and its limit."""

_WORD = re.compile(r"\s*([a-z_]+)\s*(\([^)]*\))?\s*", re.IGNORECASE)
_NAME = re.compile(r"\s*(`(?:[^`]|``)*`|[^:,<>]*)\s*:")


class Unread(ValueError):
    """A type that is not spelled as Spark spells them."""


def parse(text: str) -> Limit | None:
    """The limits in a type as SQL; ``None`` where it has none.

    Raises:
        Unread: it cannot be read.
    """
    limit, end = _type(text, 0)
    if text[end:].strip():
        raise Unread(text)
    return limit


def _type(text: str, at: int) -> tuple[Limit | None, int]:
    word = _WORD.match(text, at)
    if word is None:
        raise Unread(text)
    name, at = word[1].lower(), word.end()
    if name in ("char", "character", "varchar"):
        return (f"{name}{word[2]}", int((word[2] or "").strip("( )"))), at
    if text[at : at + 1] != "<":
        return None, at
    return _parts(text, at + 1, name)


def _parts(text: str, at: int, outer: str) -> tuple[Limit | None, int]:
    found: list[Part] = []
    for place in range(len(text)):
        if outer == "struct":
            name = _NAME.match(text, at)
            if name is None:
                raise Unread(text)
            at = name.end()
        limit, at = _type(text, at)
        if limit is not None:
            found.append((place, limit))
        sign, at = text[at : at + 1], at + 1
        if sign == ">":
            return (outer, tuple(found)) if found else None, at
        if sign != ",":
            break
    raise Unread(text)


def limits(metadata: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, Limit], ...]:
    """The limits of columns; ``metadata`` by column.

    Raises:
        Unread: one cannot be read.
    """
    texts = ((name, one[METADATA_KEY]) for name, one in metadata.items() if METADATA_KEY in one)
    return tuple((name, limit) for name, text in texts if (limit := parse(text)) is not None)


def too_long(values: pa.ChunkedArray[Any], limit: Limit) -> str | None:
    """What is wrong with a column, in words and without a value; ``None`` where every text fits."""
    for chunk in values.chunks:
        for texts, (name, most) in _texts(chunk, limit):
            if told := _told(texts, name, most):
                return told
    return None


def _texts(values: Any, limit: Limit) -> Iterator[tuple[Any, tuple[str, int]]]:
    name, inner = limit
    if isinstance(inner, int):
        yield values, (name, inner)
        return
    parts = _flat(name, values)
    for place, part in inner:
        yield from _texts(parts[place], part)


def _flat(name: str, values: Any) -> list[Any]:
    """The parts of nested values, without what a null covers."""
    import pyarrow as pa

    if name == "struct":
        return list(values.flatten())
    if name == "map":
        # Keys and items are those of the whole buffer, of which this may be a part: a copy holds no others.
        own = values.take(pa.array(range(len(values)), pa.int64()))
        return [own.keys, own.items]
    return [values.flatten()]


def _told(texts: Any, name: str, most: int) -> str | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.utf8_length(texts)
    longest = pc.max(lengths).as_py()
    if longest is None or longest <= most:
        return None
    count = pc.sum(pc.greater(lengths, pa.scalar(most))).as_py()
    return (
        f"{count} {'text is' if count == 1 else 'texts are'} longer than {name}, the longest has {longest} characters"
    )
