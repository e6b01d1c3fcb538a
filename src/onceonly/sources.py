"""Identity and order of sources: what may be said about offsets without knowing the source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum

from onceonly_checkpoints.epoch import SourceIdentity, SourceOffsets

FILES = "files:"
"""Prefix of a file source's identity. Its offsets count entries of a log in the checkpoint; elsewhere they are void."""


class Order(Enum):
    """How one set of offsets lies to another."""

    SAME = "same"
    BEFORE = "before"
    AFTER = "after"
    UNCLEAR = "unclear"


def portable(identity: SourceIdentity) -> bool:
    """Whether offsets of this source mean the same under another checkpoint."""
    return identity.identity is not None and not identity.identity.startswith(FILES)


def _numbers(text: str | None) -> dict[str, float] | None:
    """Numeric leaves of an offset by path; ``None`` where the offset is not JSON."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return dict(_leaves("", value))


def _leaves(path: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(f"{path}/{key}", child)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _leaves(f"{path}/{index}", child)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _order_of_one(one: str | None, other: str | None) -> Order:
    if one == other:
        return Order.SAME
    if one is None:
        return Order.BEFORE
    if other is None:
        return Order.AFTER
    left, right = _numbers(one), _numbers(other)
    if left is None or right is None or left.keys() != right.keys():
        return Order.UNCLEAR
    signs = {left[path] < right[path] for path in left if left[path] != right[path]}
    if signs == {True}:
        return Order.BEFORE
    return Order.AFTER if signs == {False} else Order.UNCLEAR


def order(one: SourceOffsets, other: SourceOffsets) -> Order:
    """How ``one`` lies to ``other``, by the numbers inside; for wording a refusal only, never for skipping."""
    if one == other:
        return Order.SAME
    if one.sources != other.sources:
        return Order.UNCLEAR
    pairs = zip(one.entries, other.entries, strict=True)
    found = {_order_of_one(left, right) for (_, left), (_, right) in pairs} - {Order.SAME}
    return found.pop() if len(found) == 1 else Order.UNCLEAR


def describe(offsets: SourceOffsets) -> str:
    """Offsets for a sentence: one text, or ``source=text`` for several."""
    texts = [(source, "its beginning" if text is None else text) for source, text in offsets.entries]
    if len(texts) == 1:
        return texts[0][1]
    return ", ".join(f"{source}={text}" for source, text in texts) or "nothing"


def same_origins(one: tuple[SourceIdentity, ...], other: tuple[SourceIdentity, ...]) -> bool:
    """Whether ``other`` has every source of ``one``, in order and with its identity; it may have more, by name."""
    known = [(source.source, source.identity) for source in one]
    offered = [(source.source, source.identity) for source in other]
    if known == offered:
        return True
    named = all(not source.isdigit() for source, _ in offered)
    return named and [pair for pair in offered if pair in known] == known


def name_origins(sources: tuple[SourceIdentity, ...]) -> str:
    """Source identities for a sentence."""
    return ", ".join(f"{source.source}={source.identity or 'unnamed'}" for source in sources) or "none"
