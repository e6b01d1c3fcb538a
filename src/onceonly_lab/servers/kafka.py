"""``EmbeddedKafka``: a real broker to stop, kill, pause and restart.

Also provides fresh brokers for a while.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onceonly_lab.servers import brokerready
from onceonly_lab.servers.brokerprocess import GuardedProcess, KafkaJvm, Ports, broker_properties, end_leftover
from onceonly_lab.servers.brokerready import NotSettled, has_run, settle
from onceonly_lab.servers.ports import free_ports, is_free

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- ``EmbeddedKafka``: one broker with its data in one directory, to be stopped, killed, paused and brought back.

log = logging.getLogger(__name__)

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_PORTS_TO_TRY = 5
_TOPIC_EXISTS = 36
_ENDED_BY_ITSELF = (0, 128 + signal.SIGTERM)


class KafkaDidNotStart(RuntimeError):
    """The broker ended or did not become ready; the text ends with the tail of its log."""


class Between(Protocol):
    """What can stand between the broker and those that connect to it: a proxy that already listens."""

    upstream: tuple[str, int] | None

    @property
    def port(self) -> int:
        """Where it listens."""
        ...


class EmbeddedKafka:
    """A broker on ``127.0.0.1`` with its data in one directory. Use as a context manager.

    It does not outlive the process that started it, however that process ends.

    Args:
        data_dir: made if missing; an existing one is started again with what it holds.
        settings: broker settings, added to :data:`~onceonly_lab.servers.brokerprocess.SETTINGS`.
        proxy: a started proxy; :attr:`proxied_servers` then leads through it.
        internal_proxy: a started proxy for what the broker tells itself, transaction markers above all.
        java_options: JVM options that win over the small and quick ones, ``-Xmx1g`` for example.
        cache: where jars and archive are kept; default ``onceonly.spark.jars.cache_directory()``.
    """

    def __init__(
        self,
        data_dir: Path | str,
        settings: Mapping[str, str] | None = None,
        *,
        proxy: Between | None = None,
        internal_proxy: Between | None = None,
        java_options: Sequence[str] = (),
        cache: Path | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self._settings = dict(settings or {})
        self._proxy, self._internal_proxy = proxy, internal_proxy
        self._java_options, self._cache = tuple(java_options), cache
        self._ports: Ports | None = None
        self._jvm: KafkaJvm | None = None
        self._server: GuardedProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """TCP port for clients; the same after a restart. 0 before the first start."""
        return self._ports.client if self._ports else 0

    @property
    def servers(self) -> str:
        """Value of ``bootstrap.servers``, past any proxy."""
        return f"127.0.0.1:{self.port}"

    @property
    def proxied_servers(self) -> str:
        """Value of ``bootstrap.servers`` for clients whose every connection leads through the proxy.

        Raises:
            ValueError: the broker has none.
        """
        if self._proxy is None:
            raise ValueError("this broker was made without a proxy")
        return f"127.0.0.1:{self._proxy.port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive; a paused one is."""
        return self._server is not None and self._server.running

    @property
    def log_file(self) -> Path:
        """What the broker printed."""
        return self.data_dir / "server.log"

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic if there is none of this name, wait until it has leaders, and return its name.

        Raises:
            ValueError: Kafka refuses it, with Kafka's error code.
            TimeoutError: it got no leaders.
        """
        code = brokerready.create_topic(self._address, name, partitions, config or {})
        if code not in (0, _TOPIC_EXISTS):
            raise ValueError(f"Kafka refuses topic {name}: error code {code}")
        deadline = time.monotonic() + _START_SECONDS
        while brokerready.leaderless(self._address, name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {name} has no leaders\n{self.last_words()}")
            time.sleep(_POLL_SECONDS)
        return name

    def start(self, *, settle: bool = True) -> None:
        """Start the broker and wait until transactions can begin; does nothing if it runs.

        What an earlier, killed process left running on the same directory is ended first.

        Args:
            settle: have the controller give up the broker's former life before the broker comes back. ``False`` can
                lose the markers of a committed transaction; it is for tests of those that must notice.

        Raises:
            KafkaDidNotStart: it did not.
            ConfigurationError: E110, its jars cannot be fetched, or there is no Java.
        """
        if self.running:
            return
        self._jvm = self._jvm or KafkaJvm(self._java_options, self._cache)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        end_leftover(self._properties)
        for _ in range(1 if self._ports else _PORTS_TO_TRY):
            ports = self._ports or self._choose_ports()
            if self._comes_up(self._jvm, ports, settle):
                self._ports = ports
                return
            if all(is_free(port) for port in (ports.client, ports.internal, ports.controller)):
                break
        raise KafkaDidNotStart(f"Kafka did not start in {self.data_dir}\n{self.last_words()}")

    def stop(self) -> None:
        """Shut down in order. May repeat; ends a paused broker, too."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: the broker is silent but not dead. Its session ends after two seconds of this."""
        if self._server is not None:
            self._server.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self._server is not None:
            self._server.send(signal.SIGCONT)

    def restart(self, *, settle: bool = True) -> None:
        """Stop if it runs, then :meth:`start` on the same data and ports."""
        self.stop()
        self.start(settle=settle)

    def last_words(self, lines: int = 15) -> str:
        """Tail of the broker's log."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def _data(self) -> Path:
        return self.data_dir / "data"

    def _choose_ports(self) -> Ports:
        client, internal, controller, proxied = free_ports(4)
        return Ports(
            client,
            internal,
            controller,
            proxied,
            client_proxy=self._proxy.port if self._proxy else None,
            internal_proxy=self._internal_proxy.port if self._internal_proxy else None,
        )

    def _comes_up(self, jvm: KafkaJvm, ports: Ports, settled: bool) -> bool:
        self._properties.write_text(broker_properties(ports, self._data, self._settings))
        try:
            if not (self._data / "meta.properties").exists():
                jvm.format(self._properties, self._data)
            if settled and has_run(self._data):
                settle(jvm, ports, self._data, self.data_dir)
        except subprocess.CalledProcessError as refused:
            raise KafkaDidNotStart(f"Kafka does not format {self._data}\n{refused.stdout}{refused.stderr}") from None
        except NotSettled as silent:
            raise KafkaDidNotStart(str(silent)) from silent
        self._connect_proxies(ports)
        self._launch(jvm)
        return self._becomes_ready(("127.0.0.1", ports.client))

    def _connect_proxies(self, ports: Ports) -> None:
        # Before the launch: a broker that comes up talks to itself through them.
        if self._proxy is not None:
            self._proxy.upstream = ("127.0.0.1", ports.proxied)
        if self._internal_proxy is not None:
            self._internal_proxy.upstream = ("127.0.0.1", ports.internal)

    def _launch(self, jvm: KafkaJvm) -> None:
        archive = None if jvm.archive.made else jvm.archive.making_options()
        command = jvm.command("kafka.Kafka", self._properties, archive=archive)
        self._server = GuardedProcess(command, self._properties, self.log_file)
        log.debug("Kafka %s, data in %s", self._server.pid, self.data_dir)

    def _becomes_ready(self, address: tuple[str, int]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            try:
                if brokerready.is_ready(address) and self.running:
                    return True
            except OSError:
                pass
            time.sleep(_POLL_SECONDS)
        self.kill()
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._server is None or self._jvm is None:
            return
        code = self._server.end(how, _STOP_SECONDS)
        self._server = None
        if code in _ENDED_BY_ITSELF:
            self._jvm.archive.keep()
        else:
            self._jvm.archive.discard()


# ---- ``temporary_kafka``: a fresh broker that leaves nothing behind, not even when its test run is killed.


_PREFIX = "onceonly-kafka-"
_LOCK = "owner.lock"


@contextmanager
def temporary_kafka(
    settings: Mapping[str, str] | None = None,
    *,
    proxy: Between | None = None,
    internal_proxy: Between | None = None,
) -> Generator[EmbeddedKafka]:
    """A fresh broker, gone with its data at the end. What killed runs left in the temporary directory goes first.

    Args:
        settings: see :class:`EmbeddedKafka`, as for the others.
        proxy: before :attr:`EmbeddedKafka.proxied_servers`.
        internal_proxy: before the broker's own listener.
    """
    sweep_leftovers()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory,
        _owned(Path(directory)),
        EmbeddedKafka(
            Path(directory) / "node",
            settings,
            proxy=proxy,
            internal_proxy=internal_proxy,
        ) as broker,
    ):
        yield broker


def sweep_leftovers(folder: Path | None = None) -> list[Path]:
    """End and remove what killed runs left behind, and return the directories.

    Args:
        folder: default, the system's temporary directory.
    """
    locks = sorted((folder or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_LOCK}"))
    return [lock.parent for lock in locks if _sweep(lock)]


@contextmanager
def _owned(directory: Path) -> Generator[None]:
    # The system drops the lock when this process ends, whichever way: what is unlocked belongs to nobody. The name that
    # sweepers look for appears once it is locked.
    unnamed = directory / f".{_LOCK}"
    with unnamed.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(directory / _LOCK)
        yield


def _sweep(lock: Path) -> bool:
    try:
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            log.info("sweeping %s, left over by a killed run", lock.parent)
            end_leftover(lock.parent / "node" / "server.properties")
            shutil.rmtree(lock.parent, ignore_errors=True)
    except (BlockingIOError, FileNotFoundError, PermissionError):
        return False
    return True
