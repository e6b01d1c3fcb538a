"""Watch one driver, and kill it at the planned moment.

Watching ends when the driver is dead, asleep or done.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import psutil

from onceonly.errors import refuse
from onceonly_lab.chaos.environment import heard
from onceonly_lab.chaos.program import NO_QUERY
from onceonly_lab.driver import Driver, DriverEnded
from onceonly_lab.schedule import Action

KILLED = -9
_TICK_S = 0.01
_STOPS_S = 30.0
_ORPHANED_S = 20.0
"""How long Python may outlive its JVM: some calls wait for an answer for ever."""


class Watching(Protocol):
    """Who wants to know."""

    @property
    def name(self) -> str:
        """Of the job."""
        ...

    @property
    def patience(self) -> float:
        """Seconds for one driver, or from one event to the next where each renews it."""
        ...

    def waits(self) -> None:
        """Nothing has come to act so far."""
        ...

    def told(self, event: dict[str, Any], number: int) -> None:
        """Take note of an event that needs no more than that."""
        ...

    def strike(self, number: int, at: int) -> Action:
        """A fault of a driver comes to act."""
        ...


class WireFaults(Protocol):
    """Puts faults on the wires in force, and out of force."""

    def arm(self, number: int, at: int) -> None:
        """A driver is about to send a request, and waits until a fault is in force on the wire."""
        ...

    def over(self, at: int) -> None:
        """The request was answered or given up, and the driver waits until the fault is out of force."""
        ...


class DriverMonitor:
    """Watches one driver until it is dead, asleep or done.

    Args:
        run: hears what happens.
        driver: who is watched.
        number: of the start.
        wires: puts faults on wires in force; ``None``: the driver announces none.
        renewed: whether each event renews the patience.
    """

    def __init__(
        self, run: Watching, driver: Driver, number: int, wires: WireFaults | None = None, *, renewed: bool = False
    ) -> None:
        self._run, self._driver, self._number, self._wires, self._renewed = run, driver, number, wires, renewed
        self._due: tuple[float, int] | None = None
        self._fatal = False
        self._given_up = ""
        self._orphaned = float("inf")

    def attend(self) -> str:
        """How it ended: done, killed, paused, silent, orphaned (its JVM died), or the code of what it failed with."""
        deadline = time.monotonic() + self._run.patience
        code: str | None = None
        while True:
            ended = self._driver.poll()
            for event in heard(self._driver.lines()):
                code = event.get("code", code)
                if self._renewed:
                    deadline = time.monotonic() + self._run.patience
                if self._take(event) and ended is None:
                    self._await_stop()
                    return "paused"
            if ended is not None:
                return self._end(ended, code)
            if self._kill(deadline):
                continue  # what it said last, and whether it ended by itself just before, is yet to be heard
            self._run.waits()
            time.sleep(_TICK_S)

    def _take(self, event: dict[str, Any]) -> bool:
        """Follow an event; whether the driver goes to sleep with it."""
        if event["event"] == "due":
            self._due = time.monotonic() + event["ms"] / 1000, event["fault"]
        elif event["event"] in ("wire", "over"):
            assert self._wires is not None, "a driver announces a fault on a wire, and was given none"
            if event["event"] == "wire":
                self._wires.arm(self._number, event["fault"])
            else:
                self._wires.over(event["fault"])
        elif event["event"] == "struck":
            action = self._run.strike(self._number, event["fault"])
            self._fatal = self._fatal or action is Action.KILL
            if action is Action.KILL_JVM:
                self._orphaned = time.monotonic() + _ORPHANED_S
            return action is Action.PAUSE
        else:
            self._run.told(event, self._number)
        return False

    def _kill(self, deadline: float) -> bool:
        """Kill it if its moment has come, or nobody waits any longer; whether that is so."""
        now = time.monotonic()
        if self._due is not None and now >= self._due[0]:
            (_, at), self._due = self._due, None
            if self._driver.kill() == KILLED:
                self._run.strike(self._number, at)
                self._fatal = True
            return True
        if now > min(deadline, self._orphaned):
            self._given_up = "silent" if self._orphaned > deadline else "orphaned"
            self._driver.kill()
            return True
        return False

    def _end(self, code: int, refusal: str | None) -> str:
        if code == 0:
            return "done"
        if code == KILLED and self._fatal:
            return "killed"
        if code == KILLED and self._given_up:
            return self._given_up
        if code == NO_QUERY:
            raise refuse("E117", job=self._run.name, cause="the function returned no query and left none running")
        if self._orphaned < float("inf"):
            return "orphaned"
        if refusal is None:
            raise DriverEnded(f"{self._run.name} ended with exit code {code}\n{self._driver.last_words()}")
        return refusal

    def _await_stop(self) -> None:
        deadline = time.monotonic() + _STOPS_S
        while psutil.Process(self._driver.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        self._driver.stop()
