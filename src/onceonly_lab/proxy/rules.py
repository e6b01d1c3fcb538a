"""What a proxy does to the requests it recognises: one rule, one kind of fault, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

R = TypeVar("R")


class Act(Enum):
    """What happens to a request that a rule wants, or to its answer.

    After an act on the *answer* the server has carried the request out; after one on the *request* it has not, unless
    the request is passed on later.
    """

    PASS = "pass"
    """Nothing but the rule's callback; then the request goes on."""
    DROP_REQUEST = "drop the request"
    """It is swallowed; the client waits until it loses patience."""
    CUT_REQUEST = "cut at the request"
    """It is swallowed, and both sides of this connection are reset at once."""
    DELAY_REQUEST = "delay the request"
    """It goes on later; what follows on this connection waits behind it."""
    HOLD_REQUEST = "hold the request"
    """It is parked until ``Rule.release``."""
    DROP_ANSWER = "drop the answer"
    """The answer is swallowed; the client waits until it loses patience."""
    CUT_ANSWER = "cut at the answer"
    """The answer is awaited and swallowed; then both sides of this connection are reset."""
    DELAY_ANSWER = "delay the answer"
    """The answer goes on later; what follows on this connection waits behind it."""
    REPLACE_CODE = "replace the error code"
    """The answer goes on with another error code in it."""


ON_ANSWER = frozenset({Act.DROP_ANSWER, Act.CUT_ANSWER, Act.DELAY_ANSWER, Act.REPLACE_CODE})
"""Acts for which the request itself passes."""


@dataclass(eq=False)
class Rule(Generic[R]):
    """One fault. A proxy makes it; it is in force until it has been used up or removed.

    Attributes:
        act: what to do.
        wanted: whether the rule is for this request.
        times: how often at most; ``None``: until removed. A single loss is often hidden by the client's own retry.
        skip: how many wanted requests pass before the first one is met.
        delay_s: seconds, for the acts that delay.
        code: the server's error code to put into the answer, for ``REPLACE_CODE``.
        call: called with the request right before the act, on the proxy's thread: to kill a server at this very point.
        hits: requests that the rule has met, in order.
    """

    act: Act
    wanted: Callable[[R], bool]
    times: int | None = None
    skip: int = 0
    delay_s: float = 0.0
    code: int = 0
    call: Callable[[R], object] | None = None
    hits: list[R] = field(default_factory=list[R])
    _done: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _on_release: list[Callable[[], int | None]] = field(default_factory=list[Callable[[], "int | None"]])

    def wait(self, timeout: float) -> None:
        """Wait until the rule has been carried out once.

        Raises:
            TimeoutError: ``timeout`` seconds passed without it.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"nothing met the rule to {self.act.value} within {timeout:g} s")

    def release(self) -> list[int | None]:
        """Send on what is parked, park nothing more, and return the codes of late answers, where they are known."""
        with self._lock:
            self._released.set()
            parked, self._on_release = self._on_release, []
        return [send() for send in parked]

    def carry_out(self, request: R) -> None:
        """Call the callback; for proxies."""
        if self.call is not None:
            self.call(request)

    def done(self) -> None:
        """Note that the act has been carried out; for proxies."""
        self._done.set()

    def park(self, send: Callable[[], int | None]) -> bool:
        """Keep what sends a parked request; ``False`` after the release. For proxies that can send it on its own."""
        with self._lock:
            if self._released.is_set():
                return False
            self._on_release.append(send)
            return True

    def await_release(self, closed: threading.Event, poll_s: float = 0.05) -> None:
        """Block until released, or until the connection ends; for proxies whose requests go on in their place."""
        while not self._released.wait(poll_s) and not closed.is_set():
            pass


class RuleBook(Generic[R]):
    """The rules in force, asked by many threads; of several that want a request, the oldest meets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule[R]] = []

    def add(self, rule: Rule[R]) -> Rule[R]:
        """Put a rule in force."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule[R]) -> None:
        """Put it out of force. May repeat."""
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]

    def clear(self) -> None:
        """Put all out of force, and release what they hold."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def meet(self, request: R) -> Rule[R] | None:
        """The rule that meets this request, now counted; ``None``: it passes."""
        with self._lock:
            for rule in self._rules:
                if rule.times == len(rule.hits) or not rule.wanted(request):
                    continue
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.hits.append(request)
                return rule
        return None
