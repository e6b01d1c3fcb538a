"""What a node is told in its properties file: one broker that is its own controller, small and quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NODE_ID = 1

SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    # The internal topics want three replicas by default: on one node no transaction would ever begin.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # 10 s by default: a test of an expired transaction would wait for it.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.replica.fetchers": "1",
    "log.cleaner.threads": "1",
    # 128 MiB by default, taken from the heap at the start.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.segment.bytes": "67108864",
    "log.index.size.max.bytes": "1048576",
    "controlled.shutdown.enable": "false",
    "broker.heartbeat.interval.ms": "300",
    # How long a killed broker counts as alive, and with it how long a naive restart of it waits; 9 s by default.
    "broker.session.timeout.ms": "2000",
    "initial.broker.registration.timeout.ms": "60000",
}
"""How the broker is set up. What durability rests on within one node stays as Kafka has it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens, and what it tells others to connect to where that differs.

    Attributes:
        client: clients connect here, past any proxy.
        internal: the broker talks to itself here: transaction markers, checks of transactional writes.
        controller: the controller's own.
        proxied: what stands behind the client proxy.
        client_proxy: port of the proxy before ``proxied``; ``None``, there is none.
        internal_proxy: port of the proxy before ``internal``; ``None``, there is none.
    """

    client: int
    internal: int
    controller: int
    proxied: int
    client_proxy: int | None = None
    internal_proxy: int | None = None


def broker_properties(ports: Ports, data: Path, settings: Mapping[str, str]) -> str:
    """Text of the file for the whole node; ``settings`` win over everything."""
    listeners = {"CLIENT": ports.client, "INTERNAL": ports.internal}
    advertised = {"CLIENT": ports.client, "INTERNAL": ports.internal_proxy or ports.internal}
    if ports.client_proxy is not None:
        # A listener of its own: a client gets all its addresses from the listener that it came through.
        listeners["PROXIED"], advertised["PROXIED"] = ports.proxied, ports.client_proxy
    own = {
        "process.roles": "broker,controller",
        "listeners": _addresses({**listeners, "CONTROLLER": ports.controller}),
        "advertised.listeners": _addresses(advertised),
        "inter.broker.listener.name": "INTERNAL",
    }
    return _text({**_common(ports, data), **SETTINGS, **own, **settings})


def controller_properties(ports: Ports, data: Path) -> str:
    """Text of the file for the node's controller alone, which gives up a dead broker quickly."""
    own = {
        "process.roles": "controller",
        "listeners": _addresses({"CONTROLLER": ports.controller}),
        "broker.session.timeout.ms": "200",
        "broker.heartbeat.interval.ms": "50",
    }
    return _text({**_common(ports, data), **own})


def _common(ports: Ports, data: Path) -> Mapping[str, str]:
    return {
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in ("CLIENT", "PROXIED", "INTERNAL", "CONTROLLER")
        ),
        "log.dirs": str(data),
    }


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _text(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
