"""Check over Kafka's protocol that a broker is ready.

Also brings a broker back safely after it ended.
"""

from __future__ import annotations

import re
import signal
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from onceonly_lab.servers.brokerprocess import (
    NODE_ID,
    GuardedProcess,
    KafkaJvm,
    Ports,
    controller_properties,
    end_leftover,
)
from onceonly_lab.servers.kafkaproxy import Reader, string

# ---- The few requests of Kafka's protocol that tell whether a broker is ready, without a client library.

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


def leaderless(address: Address, topic: str | None = None) -> int:
    """How many partitions of a topic, or of all, have no leader; -1 while no broker is registered.

    A topic that the broker does not know, as just after it was made, counts as a partition.

    Raises:
        OSError: no connection.
    """
    answer = _ask(
        address, _METADATA, 1, struct.pack(">i", -1) if topic is None else struct.pack(">i", 1) + string(topic)
    )
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
    missing = int(answer.int16() != 0)
    answer.pass_over("sb")
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


# ---- The safe way back after a broker ended: its controller first, alone, until it has given the dead broker up.
#
# A node that is broker and controller in one and starts again at once believes its dead incarnation for a while: that
# one leads every partition and coordinates transactions, but nothing listens yet. When its session then ends, a
# coordinator with a transaction that is decided but has no markers yet finds partitions without leaders, takes them
# for deleted ones, and completes the transaction without markers: committed for the client, never visible to a
# reader. With the dead incarnation given up before the broker comes back, that window does not exist. A kill opens
# the window wide; a shutdown in order, which does not wait for markers either, opens it as well.

_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 60.0
_APPEND_SECONDS = 0.05
_STOP_SECONDS = 15.0

# Text, because no request to a controller tells which brokers it has given up; a test guards the pinned version.
_ACTIVE = "Becoming the active controller"
_REGISTRATION = re.compile(rf"Replayed .*\bfor broker {NODE_ID}\b.*\bfenced=(?P<fenced>-?\w+)")
_FENCED, _UNCHANGED = ("1", "true"), "0"


class NotSettled(RuntimeError):
    """The controller did not give the dead broker up; the text ends with the tail of its log."""


def has_run(data: Path) -> bool:
    """Whether a node has run on this directory before."""
    return (data / "__cluster_metadata-0").is_dir()


def settle(jvm: KafkaJvm, ports: Ports, data: Path, folder: Path) -> None:
    """Run the controller alone until the dead broker is given up; then the node may start.

    Raises:
        NotSettled: it did not come to that.
    """
    properties, output = folder / "controller.properties", folder / "controller.log"
    properties.write_text(controller_properties(ports, data))
    output.unlink(missing_ok=True)
    end_leftover(properties)
    controller = GuardedProcess(jvm.command("kafka.Kafka", properties), properties, output)
    try:
        _await_fence(controller, output)
    finally:
        controller.end(signal.SIGTERM, _STOP_SECONDS)


def given_up(printed: str) -> bool:
    """Whether a controller that printed this has taken over and its broker, if it ever had one, stands fenced."""
    if _ACTIVE not in printed:
        # It still reads its log from the beginning, where the broker is fenced because it has just been born.
        return False
    whole_lines = printed.rpartition("\n")[0]
    states = [match["fenced"] for match in _REGISTRATION.finditer(whole_lines) if match["fenced"] != _UNCHANGED]
    return not states or states[-1] in _FENCED


def _await_fence(controller: GuardedProcess, output: Path) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not given_up(printed := output.read_text(errors="replace")):
        if not controller.running or time.monotonic() > deadline:
            raise NotSettled(f"The dead broker was not given up\n{printed[-3000:]}")
        time.sleep(_POLL_SECONDS)
    # What was printed is about to be appended to the log.
    time.sleep(_APPEND_SECONDS)
