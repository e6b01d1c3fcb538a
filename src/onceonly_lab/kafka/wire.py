"""The few requests of Kafka's protocol that tell whether a broker is ready, without a client library."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from onceonly_lab.proxy.kafkacodec import Reader, string

Address = tuple[str, int]

_METADATA, _FIND_COORDINATOR, _CREATE_TOPICS, _INIT_PRODUCER_ID = 3, 10, 19, 22
_TRANSACTION = b"\x01"
_PROBE = "onceonly-ready"
_PROBE_TIMEOUT_MS = 10_000
_TIMEOUT_S = 5.0


def is_ready(address: Address) -> bool:
    """Whether every partition has a leader and transactions can begin.

    That metadata comes is not enough: after a restart the broker answers before it has loaded its transactions.

    Raises:
        OSError: no connection.
    """
    return leaderless(address) == 0 and _coordinator_code(address) == 0 and _producer_id_code(address) == 0


def leaderless(address: Address) -> int:
    """How many partitions of all topics have no leader; -1 while no broker is registered.

    Raises:
        OSError: no connection.
    """
    answer = _ask(address, _METADATA, 1, struct.pack(">i", -1))
    brokers = answer.int32()
    for _ in range(brokers):
        answer.pass_over("isis")
    answer.pass_over("i")
    missing = sum(_leaderless_of_topic(answer) for _ in range(answer.int32()))
    return missing if brokers else -1


def create_topic(address: Address, name: str, partitions: int, config: Mapping[str, str]) -> int:
    """Ask for a topic with one replica; returns Kafka's error code, 0 for done.

    Raises:
        OSError: no connection.
    """
    settings = b"".join(string(key) + string(value) for key, value in config.items())
    topic = string(name) + struct.pack(">ihii", partitions, 1, 0, len(config)) + settings
    answer = _ask(address, _CREATE_TOPICS, 2, struct.pack(">i", 1) + topic + struct.pack(">i?", 5000, False))
    answer.pass_over("iis")
    return answer.int16()


def _leaderless_of_topic(answer: Reader) -> int:
    answer.pass_over("hsb")
    missing = 0
    for _ in range(answer.int32()):
        code, _, leader = answer.int16(), answer.int32(), answer.int32()
        missing += code != 0 or leader < 0
        for _ in ("replicas", "in sync"):
            answer.skip(4 * answer.int32())
    return missing


def _coordinator_code(address: Address) -> int:
    answer = _ask(address, _FIND_COORDINATOR, 1, string(_PROBE) + _TRANSACTION)
    answer.int32()
    return answer.int16()


def _producer_id_code(address: Address) -> int:
    answer = _ask(address, _INIT_PRODUCER_ID, 0, string(_PROBE) + struct.pack(">i", _PROBE_TIMEOUT_MS))
    answer.int32()
    return answer.int16()


def _ask(address: Address, api: int, version: int, body: bytes) -> Reader:
    request = struct.pack(">hhi", api, version, 0) + string(_PROBE) + body
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        head = answers.read(4)
        payload = answers.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    if len(payload) < 4:
        raise ConnectionError("the broker closed the connection")
    answer = Reader(payload)
    answer.int32()
    return answer
