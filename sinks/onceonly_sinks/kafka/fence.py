"""Install the fence of a Kafka sink with a claim record.

Also keeps the state of the next epoch ready.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial

from onceonly import faults
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown
from onceonly.protocol.guard import check_install
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.kafka import commit, errors, markers
from onceonly_sinks.kafka.errors import Kind
from onceonly_sinks.kafka.markers import MarkerRecord
from onceonly_sinks.kafka.producer import Destination, Prewarmed, SinkState
from onceonly_sinks.kafka.transactions import NotFlushed, lost

log = logging.getLogger(__name__)

_CLAIMS = 6
"""Another driver of ours that wakes up can end a claim by fencing; it finds itself superseded and does not go on."""

_PAUSE = 0.1


class ProducerSlot:
    """Fence and states of one opening."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._fence: Fence | None = None
        self._prewarmed: Prewarmed | None = None
        self._ready: SinkState | None = None

    @property
    def fence(self) -> Fence:
        """The installed fence. Raises RuntimeError before the first one."""
        if self._fence is None:
            raise RuntimeError("install a fence first")
        return self._fence

    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest if it is strictly greater, or find it installed.

        Raises as :meth:`KafkaSink.install`.
        """
        self.forget()
        with self._destination.refusing():
            self._destination.cluster.make_marker_topic(self._destination.marker_topic)
            # Fencing ends whatever a living driver has open, so it is not done where it is known to be in vain.
            self._not_superseded(self._destination.tail.visible(), fence)
        for attempt in range(_CLAIMS):
            if self._claims(fence):
                self._fence = fence
                return
            # Each fencing ends the claims of the others: without chance between them, several could do so for ever.
            time.sleep(random.uniform(0, _PAUSE * 2**attempt))
        raise OutcomeUnknown(self._destination.context.sink, f"a claim was lost {_CLAIMS} times")

    def _claims(self, fence: Fence) -> bool:
        """Fence, read, claim, read back. Returns whether our fence is installed. The next round finds a lost answer."""
        state = self._fences()
        if state is None:
            return False
        if state.found.fence == fence:
            self._ready = state
            return True
        try:
            self._not_superseded(state.found, fence)
            if not self._sends(state, fence):
                return False
        finally:
            state.transaction.end()
        return self._reads_back(fence)

    def _fences(self) -> SinkState | None:
        with self._destination.refusing():
            try:
                return self._destination.stand()
            except Exception as error:
                if not lost(error):
                    raise
                return None

    def _sends(self, state: SinkState, fence: Fence) -> bool:
        """Whether the claim got a positive answer. The next round reads an unknown outcome."""
        sink = self._destination.context.sink
        try:
            commit.claim(self._destination, state, fence)
            faults.fire(Point.INSTALL_SENT)
        except NotFlushed:
            return False
        except Exception as error:
            failure = errors.read(error)
            if failure is None:
                raise OutcomeUnknown(sink, type(error).__name__) from error
            if failure.kind not in (Kind.LOST, Kind.UNREACHABLE) and not state.transaction.sent:
                raise errors.refusal(failure, self._destination.context) from error
            log.info("%s: a claim was lost (%s)", sink, failure.name)
            return False
        return True

    def _reads_back(self, fence: Fence) -> bool:
        with self._destination.refusing():
            entry = self._destination.newest()
        self._not_superseded(entry, fence)
        return entry.fence == fence

    def _not_superseded(self, entry: MarkerRecord, fence: Fence) -> None:
        superseded = check_install(self._destination.context.sink, entry.fence, fence)
        if superseded is not None:
            raise superseded

    def stand(self, fence: Fence) -> SinkState:
        """The prepared state, or a new one, under our fence. Raises as :meth:`Destination.stand`.

        Raises ``Superseded`` if another fence is installed, and E508 if none of ours is.
        """
        ready, prewarmed = self._ready, self._prewarmed
        self._ready = self._prewarmed = None
        state = ready or (prewarmed.take() if prewarmed else None)
        return state or self.stand_anew(fence)

    def stand_anew(self, fence: Fence) -> SinkState:
        """A new state under our fence. A driver that is fenced out does not disturb the current one.

        Raises as :meth:`stand`.
        """
        state = self._destination.stand(partial(self._worth, fence))
        try:
            self._must_stand(state.found, fence)
        except BaseException:
            state.transaction.drop()
            raise
        return state

    def _worth(self, fence: Fence) -> None:
        if not self._destination.tail.unmoved():
            self._must_stand(self._destination.tail.visible(), fence)

    def _must_stand(self, entry: MarkerRecord, fence: Fence) -> None:
        refused = markers.fenced(entry, fence, self._destination.context.sink)
        if refused is not None:
            raise refused

    def keep(self, state: SinkState) -> None:
        """Keep a state for the next epoch."""
        self.forget()
        self._ready = state

    def prewarm(self, fence: Fence) -> None:
        """Start to prepare the state of the next epoch, if none is ready."""
        if self._ready is not None:
            return
        self.forget()
        self._prewarmed = Prewarmed(partial(self.stand_anew, fence))

    def quiet(self, seconds: float | None = None) -> None:
        """Wait until the background thread ends, at most so many seconds."""
        if self._prewarmed is not None:
            self._prewarmed.wait(seconds)

    def forget(self) -> None:
        """Drop prepared states. May repeat."""
        if self._ready is not None:
            self._ready.transaction.drop()
        if self._prewarmed is not None:
            self._prewarmed.discard()
        self._ready = self._prewarmed = None
