"""``KafkaProxy``: inject faults into single requests of Kafka's protocol.

A fault is selected by the kind of request and its sender.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

from onceonly_lab.servers.proxy import ON_ANSWER, Act, Address, Link, Proxy, Rule, RuleBook

# ---- The pieces that Kafka's messages are made of, old ("strings with a length") and flexible ("compact, with
# tags").


class Reader:
    """Walks through one message. Running over its end raises ``struct.error`` or ``IndexError``.

    Attributes:
        at: position of the next byte.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def int8(self) -> int:
        """One byte, signed."""
        return self._number(">b")

    def int16(self) -> int:
        """Two bytes, signed."""
        return self._number(">h")

    def int32(self) -> int:
        """Four bytes, signed."""
        return self._number(">i")

    def int64(self) -> int:
        """Eight bytes, signed."""
        return self._number(">q")

    def uvarint(self) -> int:
        """Seven bits per byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip(self, size: int) -> None:
        """Leave bytes out."""
        self.at += size

    def pass_over(self, fields: str, flexible: bool = False) -> None:
        """Leave fields out: ``b``, ``h``, ``i``, ``q`` are numbers as in :mod:`struct`, ``s`` is text."""
        for field in fields:
            if field == "s":
                self.string(flexible)
            else:
                self.skip(struct.calcsize(f">{field}"))

    def string(self, flexible: bool = False) -> str | None:
        """Text; ``None`` for null."""
        size = self.uvarint() - 1 if flexible else self.int16()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at].decode(errors="replace")

    def length(self, flexible: bool = False) -> int:
        """Number of an array's elements; 0 for null."""
        return max(0, self.uvarint() - 1 if flexible else self.int32())

    def tags(self, flexible: bool = True) -> None:
        """Leave out the tagged fields that end every structure of a flexible message."""
        for _ in range(self.uvarint() if flexible else 0):
            self.uvarint()
            self.skip(self.uvarint())

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)


def string(text: str) -> bytes:
    """Text with its length before it, the old way."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


# ---- Where Kafka's answers carry their error codes, version by version, as Kafka's message definitions have it.

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


# ---- ``KafkaProxy``: faults at single requests of Kafka's protocol, named by what they ask and who asks it.

_LATE_SECONDS = 10.0


class Api(IntEnum):
    """The requests that a transaction is made of."""

    PRODUCE = 0
    METADATA = 3
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28


_BEGINS_WITH_TRANSACTIONAL_ID = frozenset(
    {Api.INIT_PRODUCER_ID, Api.ADD_OFFSETS_TO_TXN, Api.END_TXN, Api.TXN_OFFSET_COMMIT}
)


@dataclass(frozen=True, slots=True)
class KafkaRequest:
    """One request as it passes.

    Attributes:
        api: which one; any number that Kafka knows, not only those of :class:`Api`.
        version: of the request.
        correlation: number by which the answer refers to it.
        client_id: name of the client.
        transactional_id: for those of :class:`Api` that carry it first.
        committing: for ``END_TXN``, commit or abort.
    """

    api: int
    version: int
    correlation: int
    client_id: str | None
    transactional_id: str | None
    committing: bool | None

    @classmethod
    def parse(cls, payload: bytes) -> KafkaRequest:
        """Read the head of a request, and the little of its body that rules ask for."""
        head = Reader(payload)
        api, version, correlation, client_id = head.int16(), head.int16(), head.int32(), head.string()
        flexible = version >= FLEXIBLE_FROM.get(api, version + 1)
        if flexible:
            head.tags()
        names_one = api in _BEGINS_WITH_TRANSACTIONAL_ID
        names_one |= api == Api.ADD_PARTITIONS_TO_TXN and version <= _LAST_SINGLE_TRANSACTION
        # In every version of Produce since the third, too.
        names_one |= api == Api.PRODUCE and version >= 3
        transactional_id = head.string(flexible) if names_one else None
        committing = _committing(head) if api == Api.END_TXN else None
        return cls(api, version, correlation, client_id, transactional_id, committing)


class KafkaProxy(Proxy[KafkaRequest]):
    """Give it to :class:`~onceonly_lab.servers.kafka.EmbeddedKafka`, started, as ``proxy`` or as ``internal_proxy``."""

    def rule(
        self,
        act: Act,
        api: Api,
        *,
        client_id: str | None = None,
        transactional_id: str | None = None,
        where: Callable[[KafkaRequest], bool] | None = None,
        times: int | None = None,
        skip: int = 0,
        delay_s: float = 0.0,
        code: int = 0,
        call: Callable[[KafkaRequest], object] | None = None,
    ) -> Rule[KafkaRequest]:
        """Put a fault in force.

        ``HOLD_REQUEST`` lets what follows on the connection pass. ``Rule.release`` sends the parked request on a
        connection of its own, as a network would that delivers it after its client gave up, and returns the error code
        of its answer.

        Args:
            act: what to do.
            api: to which request.
            client_id: of this client only.
            transactional_id: of this transactional id only.
            where: only if this holds, too.
            times: see :class:`Rule`, as for the others.
            skip: matches that pass first.
            delay_s: seconds.
            code: Kafka's error code, for ``REPLACE_CODE``; it replaces every code in the answer.
            call: called right before the act.
        """

        def wanted(request: KafkaRequest) -> bool:
            return (
                request.api == api
                and client_id in (None, request.client_id)
                and transactional_id in (None, request.transactional_id)
                and (where is None or where(request))
            )

        return self._rules.add(Rule(act, wanted, times, skip, delay_s, code, call))

    def _link(self, client: socket.socket, server: socket.socket) -> Link[KafkaRequest]:
        return _KafkaLink(client, server, self._rules, lambda: self.upstream)


class _KafkaLink(Link[KafkaRequest]):
    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        rules: RuleBook[KafkaRequest],
        upstream: Callable[[], Address | None],
    ) -> None:
        super().__init__(client, server, rules)
        self._upstream = upstream
        self._lock = threading.Lock()
        self._awaited: dict[int, tuple[KafkaRequest, Rule[KafkaRequest]]] = {}

    def upward(self, requests: BinaryIO) -> None:
        while not self.closed.is_set() and (payload := _message(requests)) is not None:
            request = KafkaRequest.parse(payload)
            rule = self.rules.meet(request)
            if rule is None:
                _send(self.server, payload)
            elif rule.act in ON_ANSWER:
                with self._lock:
                    self._awaited[request.correlation] = (request, rule)
                _send(self.server, payload)
            else:
                self._act_on_request(request, rule, payload)

    def downward(self, answers: BinaryIO) -> None:
        while not self.closed.is_set() and (payload := _message(answers)) is not None:
            with self._lock:
                request, rule = self._awaited.pop(struct.unpack_from(">i", payload)[0], (None, None))
            if request is None or rule is None:
                _send(self.client, payload)
            else:
                self._act_on_answer(request, rule, payload)

    def _act_on_request(self, request: KafkaRequest, rule: Rule[KafkaRequest], payload: bytes) -> None:
        rule.carry_out(request)
        parked = rule.act is Act.HOLD_REQUEST and rule.park(lambda: self._send_late(request, payload))
        if rule.act is Act.CUT_REQUEST:
            self.cut()
        elif rule.act is not Act.DROP_REQUEST and not parked:
            self.closed.wait(rule.delay_s)
            _send(self.server, payload)
        rule.done()

    def _act_on_answer(self, request: KafkaRequest, rule: Rule[KafkaRequest], payload: bytes) -> None:
        rule.carry_out(request)
        if rule.act is Act.CUT_ANSWER:
            self.cut()
        elif rule.act is not Act.DROP_ANSWER:
            self.closed.wait(rule.delay_s)
            replaced = rule.act is Act.REPLACE_CODE
            _send(self.client, with_code(request.api, request.version, payload, rule.code) if replaced else payload)
        rule.done()

    def _send_late(self, request: KafkaRequest, payload: bytes) -> int | None:
        upstream = self._upstream()
        if upstream is None:
            return None
        with socket.create_connection(upstream, _LATE_SECONDS) as late, late.makefile("rb") as answers:
            _send(late, payload)
            answer = _message(answers)
        codes = error_codes(request.api, request.version, answer) if answer is not None else []
        return codes[0] if codes else None


def _committing(after_transactional_id: Reader) -> bool:
    after_transactional_id.pass_over("qh")
    return after_transactional_id.int8() != 0


def _message(stream: BinaryIO) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack(">i", head)[0]
    payload = stream.read(size)
    return payload if len(payload) == size else None


def _send(side: socket.socket, payload: bytes) -> None:
    side.sendall(struct.pack(">i", len(payload)) + payload)
