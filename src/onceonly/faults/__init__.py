"""Named fault points, to inject crashes, pauses and lost answers.

Disarmed, a point costs one global read. A process is armed by :func:`arm` or, for a driver started by a harness,
through the environment variable ``ONCEONLY_FAULT`` (``point:action[:hit]``), read once when this module is imported.
Idea: gofail of etcd.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from onceonly_checkpoints.strenum import StrEnum


class Point(StrEnum):
    """Every arrow of the protocol. ``sent``: done in the sink, its answer not yet processed."""

    DISCOVER_AFTER = "discover.after"
    PROBE_AFTER = "probe.after"
    INSTALL_BEFORE = "install.before"
    INSTALL_SENT = "install.sent"
    INSTALL_AFTER = "install.after"
    READ_AFTER = "read.after"
    RECALL_AFTER = "recall.after"
    REINDEX_AFTER = "reindex.after"
    INTEND_AFTER = "intend.after"
    STAGE_BEFORE = "stage.before"
    STAGE_AFTER = "stage.after"
    FETCH_AFTER = "fetch.after"
    PREPARE_BEFORE = "prepare.before"
    PREPARE_SENT = "prepare.sent"
    PREPARE_AFTER = "prepare.after"
    COMMIT_BEFORE = "commit.before"
    COMMIT_SENT = "commit.sent"
    COMMIT_AFTER = "commit.after"
    LOOK_UP_AFTER = "look_up.after"
    RECORD_BEFORE = "record.before"
    RECORD_AFTER = "record.after"
    EXECUTE_AFTER = "execute.after"
    RETURN_BEFORE = "return.before"


class InjectedFault(RuntimeError):
    """Raised by the ``raise`` action."""


def _raise() -> None:
    raise InjectedFault("a fault point was armed with 'raise'")


ACTIONS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "killgroup": lambda: os.killpg(os.getpgrp(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(3600),
}
"""What an armed point can do, by name. ``stop`` is how a zombie is made: the process is continued later."""


@dataclass
class _Armed:
    action: Callable[[], None]
    hits_left: int


_armed: dict[Point, _Armed] | None = None
_lock = threading.Lock()


def fire(point: Point) -> None:
    """Pass a fault point; does nothing unless it was armed and its hit has come."""
    if _armed is None:
        return
    with _lock:
        fault = _armed.get(point)
        if fault is None:
            return
        fault.hits_left -= 1
        due = fault.hits_left == 0
    if due:
        fault.action()


def arm(point: Point | str, action: str | Callable[[], None], hit: int = 1) -> None:
    """Make a point act when it is passed for the ``hit``-th time from now (1 = the next time).

    Raises:
        ValueError: no such point or action, or a hit below 1.
    """
    global _armed  # noqa: PLW0603 - one global read is what keeps a disarmed point free
    if hit < 1:
        raise ValueError(f"hit counts from 1, got {hit}")
    if isinstance(action, str):
        if action not in ACTIONS:
            raise ValueError(f"no fault action {action!r}; known: {', '.join(ACTIONS)}")
        action = ACTIONS[action]
    fault_point = Point(point)
    with _lock:
        _armed = {**(_armed or {}), fault_point: _Armed(action, hit)}


def disarm() -> None:
    """Forget every armed point."""
    global _armed  # noqa: PLW0603 - one global read is what keeps a disarmed point free
    with _lock:
        _armed = None


def arm_from_environment(value: str) -> None:
    """Arm from ``point:action[:hit]``, several separated by commas.

    Raises:
        ValueError: unknown point or action, or a malformed value.
    """
    for part in value.split(","):
        fields = part.strip().split(":")
        if len(fields) not in (2, 3):
            raise ValueError(f"ONCEONLY_FAULT wants point:action[:hit], got {part!r}")
        arm(fields[0], fields[1], int(fields[2]) if len(fields) == 3 else 1)


if _request := os.environ.get("ONCEONLY_FAULT"):
    arm_from_environment(_request)
