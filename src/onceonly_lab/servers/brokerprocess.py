"""How a broker's programs are run: jars, properties, and a process that does not outlive the one that started it."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from onceonly.spark.jars import cache_directory, java_program
from onceonly_lab.servers.ports import KAFKA_VERSION, kafka_broker_jars
from onceonly_lab.session.launch import JvmArchive

# ---- A server process that does not outlive the process that started it, however that one ends.

log = logging.getLogger(__name__)

_GONE_SECONDS = 20.0


class GuardedProcess:
    """One start of a server, in a session of its own: Ctrl-C in the terminal is not for it.

    Args:
        argv: the program and its arguments; one of them must be ``mark``.
        mark: a file that no other server has among its arguments; beside it lies the pid, for :func:`end_leftover`.
        output: what the server prints is appended here.
        env: its environment; default this process's.
    """

    def __init__(self, argv: Sequence[str], mark: Path, output: Path, env: Mapping[str, str] | None = None) -> None:
        with output.open("ab") as printed:
            self._server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=output.parent,
                env=env,
                start_new_session=True,
            )
        # The watchdog reads a pipe whose other end this process holds: its end of file is this process's end.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -KILL "$0"', str(self.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        _pid_file(mark).write_text(str(self.pid))

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.pid

    @property
    def running(self) -> bool:
        """Whether the server is alive; a stopped one is."""
        return self._server.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.running:
            self._server.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP, and wait until the last thread has stopped: a busy machine lets some of them answer for a while."""
        self.send(signal.SIGSTOP)
        deadline = time.monotonic() + 30
        while self.running and psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)

    def end(self, how: signal.Signals, seconds: float) -> int:
        """End it with one signal, after ``seconds`` with SIGKILL, and return its exit code. May repeat."""
        self.send(signal.SIGCONT)
        self.send(how)
        try:
            self._server.wait(seconds)
        except subprocess.TimeoutExpired:
            log.warning("server %s ignores %s", self.pid, how.name)
            self.send(signal.SIGKILL)
        code = self._server.wait(_GONE_SECONDS)
        self._dismiss()
        return code

    def _dismiss(self) -> None:
        self._watchdog.kill()
        self._watchdog.wait()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()


def end_leftover(mark: Path) -> None:
    """SIGKILL the server that a killed process left running with ``mark``, and wait until it is gone."""
    try:
        process = psutil.Process(int(_pid_file(mark).read_text()))
        if str(mark) not in process.cmdline():
            return  # the pid is another program's by now
        log.info("ending server %s, left over with %s", process.pid, mark)
        process.kill()
        process.wait(_GONE_SECONDS)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.ZombieProcess):
        return


def _pid_file(mark: Path) -> Path:
    return mark.with_suffix(".pid")


# ---- What a node is told in its properties file: one broker that is its own controller, small and quick.

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


# ---- How the broker's programs are run: jars, options, class archive, and the directory that every node starts from.

_OPTIONS = (
    "-Xms96m",
    "-Xmx256m",
    "-Xss256k",
    "-XX:MaxDirectMemorySize=64m",
    # A broker of a test lives for seconds: code that is compiled quickly beats code that is compiled well.
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_FORMAT_SECONDS = 120.0


class KafkaJvm:
    """Kafka's programs, from jars that are fetched on first use.

    Args:
        options: JVM options that win over the small and quick ones.
        cache: default ``onceonly.spark.jars.cache_directory()``.

    Raises:
        ConfigurationError: E110, no Java, no PySpark or no answer from the registry.
    """

    def __init__(self, options: Sequence[str] = (), cache: Path | None = None) -> None:
        jars = kafka_broker_jars(cache)
        # An archive fits one class path, in one order.
        self._path = os.pathsep.join(str(jar) for jar in jars)
        self._options = tuple(options)
        self._template = (cache or cache_directory()) / "kafka" / f"formatted-{KAFKA_VERSION}"
        self.archive = JvmArchive(f"kafka-{KAFKA_VERSION}", jars, cache)

    def command(self, main: str, *arguments: str | Path, archive: Sequence[str] | None = None) -> list[str]:
        """Command line of one of Kafka's classes.

        Args:
            main: the class, for example ``kafka.tools.StorageTool``.
            arguments: its arguments.
            archive: options of :attr:`archive`; default, those that use it.
        """
        options = (*_OPTIONS, *(self.archive.options() if archive is None else archive), *self._options)
        return [java_program(), *options, "-cp", self._path, main, *map(str, arguments)]

    def format(self, properties: Path, data: Path) -> None:
        """Make ``data`` a directory that a node can start on; ``properties`` names it.

        A formatted directory is the same for every single node but for its ids, so one is made and copied ever after.

        Raises:
            CalledProcessError: Kafka refused.
        """
        if not self._template.is_dir():
            self._make_template(properties, data)
        shutil.copytree(self._template, data, dirs_exist_ok=True)

    def _make_template(self, properties: Path, data: Path) -> None:
        command = self.command("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", properties)
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FORMAT_SECONDS)
        self._template.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".formatted-", dir=self._template.parent) as work:
            copy = shutil.copytree(data, Path(work) / "data")
            try:
                copy.rename(self._template)
            except OSError:
                # Another process was first.
                if not self._template.is_dir():
                    raise


def _cluster_id() -> str:
    # The leading letter: an id that begins with a dash would be taken for an option.
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()[1:]
