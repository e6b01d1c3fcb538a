"""``temporary_kafka``: a fresh broker that leaves nothing behind, not even when its test run is killed."""

from __future__ import annotations

import fcntl
import logging
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from onceonly_lab.kafka.broker import Between, EmbeddedKafka
from onceonly_lab.kafka.process import end_leftover

log = logging.getLogger(__name__)

_PREFIX = "onceonly-kafka-"
_LOCK = "owner.lock"


@contextmanager
def temporary_kafka(
    settings: Mapping[str, str] | None = None,
    *,
    proxy: Between | None = None,
    internal_proxy: Between | None = None,
    java_options: Sequence[str] = (),
) -> Generator[EmbeddedKafka]:
    """A fresh broker, gone with its data at the end. What killed runs left in the temporary directory goes first.

    Args:
        settings: see :class:`EmbeddedKafka`, as for the others.
        proxy: before :attr:`EmbeddedKafka.proxied_servers`.
        internal_proxy: before the broker's own listener.
        java_options: JVM options.
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
            java_options=java_options,
        ) as broker,
    ):
        yield broker


def sweep_leftovers(folder: Path | None = None) -> list[Path]:
    """End and remove what killed runs left behind, and return the directories.

    Args:
        folder: default, the system's temporary directory.
    """
    found = sorted((folder or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_LOCK}"))
    return [lock.parent for lock in found if _sweep(lock)]


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
