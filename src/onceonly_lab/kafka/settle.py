"""The safe way back after a broker ended: its controller first, alone, until it has given the dead broker up.

A node that is broker and controller in one and starts again at once believes its dead incarnation for a while: that one
leads every partition and coordinates transactions, but nothing listens yet. When its session then ends, a coordinator
with a transaction that is decided but has no markers yet finds partitions without leaders, takes them for deleted ones,
and completes the transaction without markers: committed for the client, never visible to a reader. With the dead
incarnation given up before the broker comes back, that window does not exist. A kill opens the window wide; a shutdown
in order, which does not wait for markers either, opens it as well.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from onceonly_lab.kafka.jvm import KafkaJvm
from onceonly_lab.kafka.process import GuardedProcess, end_leftover
from onceonly_lab.kafka.properties import NODE_ID, Ports, controller_properties

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
    states = [found["fenced"] for found in _REGISTRATION.finditer(whole_lines) if found["fenced"] != _UNCHANGED]
    return not states or states[-1] in _FENCED


def _await_fence(controller: GuardedProcess, output: Path) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not given_up(printed := output.read_text(errors="replace")):
        if not controller.running or time.monotonic() > deadline:
            raise NotSettled(f"The dead broker was not given up\n{printed[-3000:]}")
        time.sleep(_POLL_SECONDS)
    # What was printed is about to be appended to the log.
    time.sleep(_APPEND_SECONDS)
