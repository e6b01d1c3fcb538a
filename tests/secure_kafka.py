"""A broker with a second listener that wants TLS and a login, and grants that login nothing by itself."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceonly_lab.servers.brokerprocess import Ports
from onceonly_lab.servers.kafka import EmbeddedKafka

USER, PASSWORD = "orders", "s3cr3t"
_LISTENER = "listener.name.proxied."
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class SecureKafka:
    """``broker.servers`` leads past the login; ``servers`` asks for it, over TLS that ``authority`` signed."""

    broker: EmbeddedKafka
    servers: str
    authority: Path

    @property
    def options(self) -> dict[str, str]:
        """What a sink needs to log in."""
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": USER,
            "kafka.sasl.password": PASSWORD,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.authority),
        }


class _WithSecureListener(EmbeddedKafka):
    """The listener for a proxy is advertised as it is: no proxy stands before it."""

    def _choose_ports(self) -> Ports:
        ports = super()._choose_ports()
        self.secure_port = ports.proxied
        return replace(ports, client_proxy=ports.proxied)


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Start the broker with its data in a folder; who comes without a login may do everything."""
    authority, keystore = _certificate(folder)
    settings = {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        f"{_LISTENER}ssl.keystore.type": "PEM",
        f"{_LISTENER}ssl.keystore.location": str(keystore),
        f"{_LISTENER}sasl.enabled.mechanisms": "PLAIN",
        f"{_LISTENER}plain.sasl.jaas.config": f'{_JAAS} user_{USER}="{PASSWORD}";',
    }
    with _WithSecureListener(folder / "node", settings) as broker:
        yield SecureKafka(broker, f"localhost:{broker.secure_port}", authority)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and a file with its key before it."""
    key, authority, keystore = folder / "key.pem", folder / "ca.pem", folder / "keystore.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", authority], check=True, capture_output=True)
    keystore.write_text(key.read_text() + authority.read_text())
    return authority, keystore


# ---- Rights of the login, as ``kafka-acls.sh`` gives them.

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "least-rights.md"


class Right(NamedTuple):
    kind: ResourceType
    name: str
    pattern: ResourcePatternType
    operation: AclOperation


KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}
EVERY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def acls(code: str) -> list[Right]:
    """The rights that lines of ``kafka-acls.sh`` give."""
    rights = []
    for line in code.splitlines():
        words = shlex.split(line)
        options = [(name, value) for name, value in pairwise(words) if name.startswith("--")]
        [(kind, name)] = [(KINDS[option], value) for option, value in options if option in KINDS]
        prefixed = ("--resource-pattern-type", "prefixed") in options
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        operations = [OPERATIONS[value.lower()] for option, value in options if option == "--operation"]
        rights += [Right(kind, name, pattern, operation) for operation in operations]
    return rights


def give(servers: str, rights: Sequence[Right]) -> None:
    """Let the login have these rights and no other."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    allow = AclPermissionType.ALLOW
    bindings = [
        AclBinding(kind, name, pattern, "User:orders", "*", operation, allow)
        for kind, name, pattern, operation in rights
    ]
    for change, wanted in ((lambda: admin.delete_acls([EVERY]), []), (lambda: admin.create_acls(bindings), bindings)):
        for done in change().values():
            done.result(30)
        # The controller answers before the broker has read its log.
        until = time.monotonic() + 30
        while set(map(repr, admin.describe_acls(EVERY).result(30))) != set(map(repr, wanted)):
            assert time.monotonic() < until, "the broker did not take over the rights"
            time.sleep(0.05)


def of_the_page() -> list[Right]:
    """Every right that the page on least rights gives the login."""
    return acls("\n".join(re.findall(r"^kafka-acls.sh .*$", PAGE.read_text(), re.MULTILINE)))
