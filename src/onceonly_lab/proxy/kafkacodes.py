"""Where Kafka's answers carry their error codes, version by version, as Kafka's message definitions have it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from onceonly_lab.proxy.kafkacodec import Reader

FLEXIBLE_FROM: Mapping[int, int] = {0: 9, 3: 9, 10: 3, 22: 2, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3}
"""First version of each request whose head and body are in the compact form."""

_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN = 0, 22, 24, 26
_LAST_SINGLE_TRANSACTION = 3


def error_codes(api: int, version: int, answer: bytes) -> list[int]:
    """The error codes of one answer, in order; none for a request whose answers are not known here."""
    return [struct.unpack_from(">h", answer, at)[0] for at in _places(api, version, answer)]


def with_code(api: int, version: int, answer: bytes, code: int) -> bytes:
    """The answer with ``code`` in place of each error code.

    Raises:
        ValueError: where the codes of this answer stand is not known.
    """
    places = list(_places(api, version, answer))
    if not places:
        raise ValueError(f"no error code is known in answers to request {api}, version {version}")
    changed = bytearray(answer)
    for at in places:
        struct.pack_into(">h", changed, at, code)
    return bytes(changed)


def _places(api: int, version: int, answer: bytes) -> Iterator[int]:
    walk = _WALKS.get(api)
    if walk is None:
        return
    flexible = version >= FLEXIBLE_FROM[api]
    body = Reader(answer, at=4)
    body.tags(flexible)
    yield from walk(body, version, flexible)


def _plain(body: Reader, version: int, flexible: bool) -> Iterator[int]:
    del version, flexible
    body.int32()
    yield body.at


def _partitions_added(body: Reader, version: int, flexible: bool) -> Iterator[int]:
    body.int32()
    if version <= _LAST_SINGLE_TRANSACTION:
        yield from _topics_added(body, flexible)
        return
    yield body.at
    body.int16()
    for _ in range(body.length(flexible)):
        body.string(flexible)
        yield from _topics_added(body, flexible)
        body.tags(flexible)


def _topics_added(body: Reader, flexible: bool) -> Iterator[int]:
    for _ in range(body.length(flexible)):
        body.string(flexible)
        for _ in range(body.length(flexible)):
            body.int32()
            yield body.at
            body.int16()
            body.tags(flexible)
        body.tags(flexible)


def _produced(body: Reader, version: int, flexible: bool) -> Iterator[int]:
    for _ in range(body.length(flexible)):
        if version >= 13:
            body.skip(16)
        else:
            body.string(flexible)
        for _ in range(body.length(flexible)):
            body.int32()
            yield body.at
            _rest_of_produced_partition(body, version, flexible)
        body.tags(flexible)


def _rest_of_produced_partition(body: Reader, version: int, flexible: bool) -> None:
    body.pass_over("hq" + "q" * (version >= 2) + "q" * (version >= 5))
    if version >= 8:
        for _ in range(body.length(flexible)):
            body.pass_over("is", flexible)
            body.tags(flexible)
        body.string(flexible)
    body.tags(flexible)


_WALKS: Mapping[int, Callable[[Reader, int, bool], Iterator[int]]] = {
    _PRODUCE: _produced,
    _INIT_PRODUCER_ID: _plain,
    _ADD_PARTITIONS: _partitions_added,
    _END_TXN: _plain,
}
