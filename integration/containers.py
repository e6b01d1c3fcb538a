"""Postgres and Kafka in containers: one at a time by testcontainers, or both as docker-compose.yml has them."""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from integration.servers import KafkaAddress, PostgresAddress, kafka_at, postgres_at

from onceonly_lab.servers import brokerready
from onceonly_lab.servers.ports import free_ports

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
SERVICES = ("postgres", "kafka")

_ANSWER_S = 3
_START_S = 120.0
_BACK_S = 120.0


@cache
def no_engine() -> str | None:
    """Why no container can be started; ``None`` where an engine answers."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        return "testcontainers is not installed"
    with warnings.catch_warnings():
        # Where nobody listens the client forgets its socket, and Python says so whenever it finds it.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with closing(docker.from_env(timeout=_ANSWER_S)) as engine:
                engine.ping()
        except (DockerException, OSError):
            return "no container engine answers"
        finally:
            gc.collect()
    return None


@cache
def no_compose() -> str | None:
    """Why docker-compose.yml cannot be brought up; ``None`` where it can."""
    docker = shutil.which("docker")
    if docker is None:
        return "there is no command docker"
    found = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    return None if found.returncode == 0 else "there is no docker compose"


def image(service: str) -> str:
    """The image of a service in docker-compose.yml, without the prefix that testcontainers adds by itself."""
    found = re.search(rf"^  {service}:\n    image: (?:\$\{{[^}}]*\}})?(\S+)$", COMPOSE.read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"docker-compose.yml names no image of {service}")
    return found[1]


# ---- one at a time


@contextmanager
def postgres_container() -> Generator[PostgresAddress]:
    """A fresh Postgres in a container of its own, gone at the end."""
    from testcontainers.community.postgres import PostgresContainer

    made = PostgresContainer(
        image("postgres"), username="postgres", password="onceonly", dbname="postgres", driver=None
    )
    with made as container, postgres_at(container.get_connection_url()) as address:
        yield address


@contextmanager
def kafka_container() -> Generator[KafkaAddress]:
    """A fresh broker in a container of its own, gone at the end.

    testcontainers knows the layout of Confluent's image only. The port is chosen before the start: a broker tells its
    clients where it is, and so must know it.
    """
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    (port,) = free_ports(1)
    ready = LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(int(_START_S))
    made = DockerContainer(image("kafka")).with_bind_ports(9092, port).waiting_for(ready)
    servers = f"{made.get_docker_client().host()}:{port}"
    with made.with_envs(**_broker(servers)), kafka_at(servers) as address:
        yield address


def _broker(servers: str) -> dict[str, str]:
    """What docker-compose.yml tells the broker, at another address."""
    block = COMPOSE.read_text().partition("\n  kafka:\n")[2]
    told = dict(re.findall(r'^      (KAFKA_\w+): "?(.*?)"?$', block, re.MULTILINE))
    return {name: re.sub(r"127\.0\.0\.1:\$\{[^}]*\}", servers, value) for name, value in told.items()}


# ---- both, as docker-compose.yml has them


class Stack:
    """The servers of docker-compose.yml, up and healthy, and what can be done to their containers.

    Args:
        compose: a started ``testcontainers.compose.DockerCompose``.
        engine: a client of the engine.
        postgres: the database server.
        kafka: the broker.
    """

    def __init__(self, compose: Any, engine: Any, postgres: PostgresAddress, kafka: KafkaAddress) -> None:
        self.postgres, self.kafka = postgres, kafka
        self._containers = {name: engine.containers.get(compose.get_container(name).ID) for name in SERVICES}
        (self._network,) = engine.networks.list(
            names=list(self._containers["kafka"].attrs["NetworkSettings"]["Networks"])
        )

    def health(self, service: str) -> str:
        """What the engine says of a service: ``healthy``, ``unhealthy`` or ``starting``."""
        self._containers[service].reload()
        return str(self._containers[service].attrs["State"]["Health"]["Status"])

    @contextmanager
    def paused(self, service: str) -> Generator[None]:
        """A black hole: connections stand, and nothing answers."""
        self._containers[service].pause()
        try:
            yield
        finally:
            self._containers[service].unpause()
            self._await(service)

    @contextmanager
    def killed(self, service: str) -> Generator[None]:
        """SIGKILL; started again on the same data."""
        self._containers[service].kill()
        try:
            yield
        finally:
            self._containers[service].start()
            self._await(service)

    @contextmanager
    def disconnected(self, service: str) -> Generator[None]:
        """Out of its network: connections are reset, new ones refused."""
        self._network.disconnect(self._containers[service])
        try:
            yield
        finally:
            self._network.connect(self._containers[service], aliases=[service])
            self._await(service)

    def _await(self, service: str) -> None:
        """Wait on the client: the engine calls a service unhealthy for a while after it is back."""
        answers = {"postgres": self._postgres_answers, "kafka": self._kafka_answers}[service]
        deadline = time.monotonic() + _BACK_S
        while not answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{service} is not back:\n{self._containers[service].logs(tail=15).decode()}")
            time.sleep(0.1)

    def _postgres_answers(self) -> bool:
        return _succeeds(
            lambda: psycopg.connect(self.postgres.url, connect_timeout=2).close(), psycopg.OperationalError
        )

    def _kafka_answers(self) -> bool:
        host, _, port = self.kafka.servers.rpartition(":")
        return _succeeds(lambda: brokerready.is_ready((host, int(port))), OSError)


def _succeeds(act: Callable[[], bool | None], failure: type[Exception]) -> bool:
    try:
        return act() is not False
    except failure:
        return False


@contextmanager
def compose_stack(folder: Path) -> Generator[Stack]:
    """docker-compose.yml, up until all is healthy, under a project name and ports of its own; gone at the end.

    Args:
        folder: a place for what compose is told.
    """
    import docker
    from testcontainers.compose import DockerCompose

    postgres_port, kafka_port = free_ports(2)
    told = folder / "compose.env"
    project = f"onceonly-{postgres_port}-{kafka_port}"
    told.write_text(
        f"COMPOSE_PROJECT_NAME={project}\nONCEONLY_POSTGRES_PORT={postgres_port}\nONCEONLY_KAFKA_PORT={kafka_port}\n"
    )
    with (
        DockerCompose(ROOT, compose_file_name=COMPOSE.name, env_file=str(told)) as compose,
        closing(docker.from_env()) as engine,
        postgres_at(f"postgresql://postgres:onceonly@127.0.0.1:{postgres_port}/postgres") as postgres,
        kafka_at(f"127.0.0.1:{kafka_port}") as kafka,
    ):
        yield Stack(compose, engine, postgres, kafka)
