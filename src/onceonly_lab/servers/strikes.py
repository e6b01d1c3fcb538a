"""Translate schedules into proxy rules for requests and answers.

The rules apply to a request on its way to a server, and to its answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceonly_lab.schedule import Action
from onceonly_lab.servers.kafkaproxy import Api, KafkaProxy
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.proxy import Act, Proxy, Rule

_HIDDEN_S = 0.5
_DECIDED_S = 10.0
_ANSWERS = {Action.LOSE_ANSWER: Act.CUT_ANSWER, Action.LOSE_REQUEST: Act.CUT_REQUEST, Action.DELAY: Act.HOLD_REQUEST}


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault in force on a wire.

    Attributes:
        rule: the fault.
        proxy: where.
    """

    rule: Rule[Any]
    proxy: Proxy[Any]

    @property
    def hit(self) -> bool:
        """Whether it met a request."""
        return bool(self.rule.hits)

    def end(self) -> None:
        """Put it out of force; what it holds goes on."""
        self.proxy.remove(self.rule)
        self.rule.release()


@dataclass(frozen=True, slots=True)
class LateEnd(Strike):
    """An EndTxn that is held. Brokers answer it once it is decided, and readers see it a moment later.

    What a producer sends within that moment is taken into the transaction that is ending, so a run in which drivers go
    on at once would have now one end and now another.

    Attributes:
        undecided: from which offset on the topic holds what is not decided; empty if all is.
    """

    undecided: Callable[[], tuple[str, ...]]

    def end(self) -> None:
        """Put it out of force; where the brokers accept what was held, return once readers see what it decided.

        Raises:
            TimeoutError: they never do.
        """
        self.proxy.remove(self.rule)
        before = self.undecided()
        if 0 not in self.rule.release() or not before:
            return
        deadline = time.monotonic() + _DECIDED_S
        while self.undecided() == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"a late end of a transaction was accepted, and still there is an {before[0]}")


def strike_commit(wire: PostgresProxy, action: Action) -> Strike | None:
    """Put a fault of the next COMMIT in force; ``None`` where no database can suffer that."""
    act = _ANSWERS.get(action)
    return Strike(wire.rule(act, times=1), wire) if act else None


def strike_end(
    wire: KafkaProxy, inner: KafkaProxy, action: Action, undecided: Callable[[], tuple[str, ...]]
) -> Strike | None:
    """Put a fault of the next EndTxn that commits in force; ``None`` where no broker can suffer that.

    A loss lasts until the client gives up, since its own retry would hide a single one.

    Args:
        wire: the proxy before the broker's clients.
        inner: the proxy before what it tells itself.
        action: the fault.
        undecided: see :class:`LateEnd`.
    """
    if action is Action.HIDE:
        hidden = inner.rule(Act.DELAY_REQUEST, Api.WRITE_TXN_MARKERS, delay_s=_HIDDEN_S, times=1)
        return Strike(hidden, inner)
    act = _ANSWERS.get(action)
    if act is None:
        return None
    if action is Action.DELAY:
        return LateEnd(wire.rule(act, Api.END_TXN, where=_committing, times=1), wire, undecided)
    return Strike(wire.rule(act, Api.END_TXN, where=_committing), wire)


def _committing(request: Any) -> bool:
    return bool(request.committing)
