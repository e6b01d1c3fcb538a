"""Runs of queries: which run of which wrapper may write."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from onceonly.errors import refuse
from onceonly.machine import callback_rules
from onceonly.machine.callback_rules import Call, Entering, Holder
from onceonly.machine.facts import Refusal
from onceonly.protocol import Sink

# ---- The owner of an opening: a unique random token, and words by which people find the process.


def owner(application: str = "") -> str:
    """Return a new owner, ``<token> user@host:pid application``: Spark's application id, or the command."""
    return " ".join(part for part in (secrets.token_hex(8), process(), application) if part)


def process() -> str:
    """Return this process as ``user@host:pid``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under an id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


# ---- Which runs write in this process, each with sinks of its own and one callback at a time.
#
# ``callback_rules.py`` decides which run may write. This module keeps the facts for these rules, and waits. One thread
# at a time uses a sink object. A run that takes one over waits until the older run's callback stops at its next step.

PATIENCE = 60.0
"""Seconds that a callback of an older run may take to end, before the newer one is refused."""

StillRunning = Callable[[str, str], bool]

_RUN_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Runs:
    """Runs by pipeline and by sink object. Thread-safe. ``patience``: seconds to wait for an older run's callback."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._newest: dict[str, Holder] = {}
        self._sessions: dict[str, str] = {}
        self._outdated: set[str] = set()
        self._sinks: dict[Holder, tuple[Sink, ...]] = {}
        self._owners: dict[int, Holder] = {}
        self._busy: dict[Holder, frozenset[int]] = {}
        self._finished: dict[Holder, int] = {}
        self._refused: dict[Holder, Refusal] = {}

    def enter(
        self,
        holder: Holder,
        sinks: Sequence[Sink],
        still_running: StillRunning,
        *,
        own: str,
        session: str = "",
        group: str = "",
    ) -> None:
        """Make a run the newest of its pipeline, and the owner of these sink objects.

        Args:
            holder: the run.
            sinks: of the run.
            still_running: returns whether ``(query id, run id)`` is active.
            own: id of the session that the engine made for this run.
            session: id of the session of this batch, default ``own``. A session of another run means that a callback
                woke up late. A session of no run was made by the user, and may belong to any.
            group: job group of the calling thread. It is the run's id unless the user has set another.

        Raises:
            ConfigurationError: E103 the pipeline is being written already, E125 one of the sink objects is in use.
            FencedOut: E402 a newer run has been entered since.
        """

        def active(other: Holder | None) -> Holder | None:
            """Return another holder, unless its run has ended."""
            if other is None or other == holder:
                return None
            same = other.run_id == holder.run_id
            return other if same or still_running(other.query_id, other.run_id) else None

        with self._changed:
            named = self._newest.get(holder.pipeline)
            self._sessions.setdefault(own, holder.run_id)
            late = self._run_of(session or own, group, holder) != holder.run_id or holder.run_id in self._outdated
            held = tuple((sink.id, active(self._owners.get(id(sink)))) for sink in sinks)
            _raise(callback_rules.decide_entry(Entering(holder, late, active(named), held)))
            if named is not None and named.run_id != holder.run_id:
                self._outdated.add(named.run_id)
            self._newest[holder.pipeline] = holder
            self._sinks[holder] = tuple(sinks)
            self._owners.update({id(sink): holder for sink in sinks})

    def _run_of(self, session: str, group: str, holder: Holder) -> str:
        """Return the run of a batch. The job group decides if the session is unknown."""
        of_session = self._sessions.get(session)
        return of_session or (group if _RUN_ID.fullmatch(group) else holder.run_id)

    def check(self, holder: Holder) -> None:
        """Refuse a run that a newer one has replaced, at its pipeline or at one of its sinks (E402)."""
        with self._changed:
            self._check(holder)

    def _check(self, holder: Holder) -> None:
        sinks = self._sinks.get(holder, ())
        ours = bool(sinks) and all(self._owners.get(id(sink)) == holder for sink in sinks)
        if not ours or self._newest[holder.pipeline] != holder:
            _raise(callback_rules.outdated(holder))

    @contextmanager
    def writing(self, holder: Holder, batch_id: int, planned: int) -> Generator[None]:
        """Lock the sinks while a batch is written. A body without an exception finishes the batch.

        Raises:
            ConfigurationError: E103 a callback of an older run does not end, E123 the batch is finished already, E124
                the id is not the one that the engine set.
            FencedOut: E402 a newer run has been entered.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._used(holder), self._patience):
                late = f"a callback that has not ended within {self._patience:g} s"
                raise refuse("E103", pipeline=holder.pipeline, by=late)
            self._check(holder)
            call = Call(holder.pipeline, batch_id, planned, self._finished.get(holder), self._refused.get(holder))
            if refusal := callback_rules.decide_call(call):
                self._refused[holder] = refusal
                _raise(refusal)
            self._busy[holder] = self._ids(holder)
        try:
            yield
            self._finished[holder] = batch_id
        finally:
            self._done(holder)

    @contextmanager
    def leaving(self, holder: Holder) -> Generator[tuple[Sink, ...]]:
        """Wait for a run's callback to end, and lock those of its sinks that no other run has taken since."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used(holder))
            left = tuple(sink for sink in self._sinks.get(holder, ()) if self._owners.get(id(sink)) == holder)
            self._busy[holder] = frozenset(id(sink) for sink in left)
        try:
            yield left
        finally:
            self._forget(holder)
            self._done(holder)

    def _forget(self, holder: Holder) -> None:
        with self._changed:
            for sink in self._sinks.pop(holder, ()):
                if self._owners.get(id(sink)) == holder:
                    del self._owners[id(sink)]
            self._finished.pop(holder, None)
            self._refused.pop(holder, None)

    def _used(self, holder: Holder) -> bool:
        ids = self._ids(holder)
        return holder in self._busy or any(ids & used for used in self._busy.values())

    def _ids(self, holder: Holder) -> frozenset[int]:
        return frozenset(id(sink) for sink in self._sinks.get(holder, ()))

    def _done(self, holder: Holder) -> None:
        with self._changed:
            del self._busy[holder]
            self._changed.notify_all()


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refuse(refusal.code, **dict(refusal.details))
