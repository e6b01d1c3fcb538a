"""Wire proxy base: sockets, threads and faults for any protocol."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar

from onceonly_lab.servers.ports import free_ports

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- What a proxy does to the requests it recognises: one rule, one kind of fault, counted.

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

    def await_release(self, closed: threading.Event) -> None:
        """Block until released, or until the connection ends; for proxies whose requests go on in their place."""
        while not self._released.wait(_POLL_SECONDS) and not closed.is_set():
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


# ---- The part of a wire proxy that does not depend on the protocol: sockets, threads, and the end of a connection.


Address = tuple[str, int]

_CONNECT_SECONDS = 10.0
_JOIN_SECONDS = 10.0
_POLL_SECONDS = 0.05
_RESET = struct.pack("ii", 1, 0)


class Link(ABC, Generic[R]):
    """One client's connection and the one behind it; a thread for each direction.

    Args:
        client: the accepted connection.
        server: the connection to the server.
        rules: what to do to whom.
    """

    def __init__(self, client: socket.socket, server: socket.socket, rules: RuleBook[R]) -> None:
        self.client, self.server, self.rules = client, server, rules
        self.closed = threading.Event()
        self.failure: Exception | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._directions = 2
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @abstractmethod
    def upward(self, requests: BinaryIO) -> None:
        """Carry the client's messages to the server, until the client ends."""

    @abstractmethod
    def downward(self, answers: BinaryIO) -> None:
        """Carry the server's messages to the client, until the server ends."""

    def start(self) -> None:
        """Start both directions."""
        for work, source, sink in ((self.upward, self.client, self.server), (self.downward, self.server, self.client)):
            self._threads.append(
                threading.Thread(target=self._carry, args=(work, source, sink), name="proxy-link", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        """Reset both sides at once, as a crashed peer would. May repeat."""
        self.closed.set()
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes a thread that waits in recv; without it the close, and with it the reset, would wait for that.
                side.shutdown(socket.SHUT_RD)
            side.close()

    def join(self) -> None:
        """Wait for both directions to end."""
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _carry(self, work: Callable[[BinaryIO], None], source: socket.socket, sink: socket.socket) -> None:
        try:
            with source.makefile("rb") as messages:
                work(messages)
            if not self.closed.is_set():
                sink.shutdown(socket.SHUT_WR)
            self._direction_ended()
        except OSError:
            self.cut()
        except Exception as error:  # noqa: BLE001 - kept, and raised by stop(): a proxy that fails must fail its test
            self.failure = error
            self.cut()

    def _direction_ended(self) -> None:
        with self._lock:
            self._directions -= 1
            if self._directions:
                return
        self.closed.set()
        self.client.close()
        self.server.close()


class NotUnderstood(Exception):
    """Messages passed that a proxy could not read.

    Attributes:
        failures: what reading each of them raised.
    """

    def __init__(self, failures: Sequence[Exception]) -> None:
        super().__init__(f"the proxy did not understand what passed: {'; '.join(map(repr, failures))}")
        self.failures = tuple(failures)


class Proxy(ABC, Generic[R]):
    """Listens on ``127.0.0.1`` and leads every connection to the server. Use as a context manager.

    Attributes:
        upstream: where the server is; may change, and counts for connections that come from then on.
        refusing: close new connections at once, as a network that is cut in two.
    """

    def __init__(self, upstream: Address | None = None) -> None:
        self.upstream = upstream
        self.refusing = False
        self._rules: RuleBook[R] = RuleBook()
        self._links: list[Link[R]] = []
        self._failures: list[Exception] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Where it listens; 0 before the start."""
        return self._port

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return sum(not link.closed.is_set() for link in self._links)

    def start(self) -> None:
        """Listen. Does nothing if it does already."""
        if self._listener is not None:
            return
        (self._port,) = free_ports(1)
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), name="proxy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Reset all connections and listen no more. May repeat.

        Raises:
            NotUnderstood: messages were not understood.
        """
        listener, self._listener = self._listener, None
        if listener is not None and self._thread is not None:
            # A connection of our own wakes the thread that accepts.
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), _CONNECT_SECONDS).close()
            self._thread.join(_JOIN_SECONDS)
            listener.close()
        self.clear()
        self.cut_all()
        failures, self._failures = self._failures, []
        if failures:
            raise NotUnderstood(failures)

    def clear(self) -> None:
        """Put all rules out of force; what they hold goes on."""
        self._rules.clear()

    def remove(self, rule: Rule[R]) -> None:
        """Put one rule out of force; what it holds stays held until it is released. May repeat."""
        self._rules.remove(rule)

    def cut_all(self) -> None:
        """Reset all connections now."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.cut()
        for link in links:
            link.join()
            self._bury(link)

    @abstractmethod
    def _link(self, client: socket.socket, server: socket.socket) -> Link[R]: ...

    def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            if self._listener is None:
                client.close()
                return
            if self.refusing or self.upstream is None:
                client.close()
                continue
            # Each connects on its own: a server that does not answer must not keep other clients waiting.
            threading.Thread(target=self._connect, args=(client, self.upstream), name="proxy-link", daemon=True).start()

    def _connect(self, client: socket.socket, upstream: Address) -> None:
        try:
            server = socket.create_connection(upstream, _CONNECT_SECONDS)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        link = self._link(client, server)
        with self._lock:
            if self._listener is None:
                link.cut()
                return
            ended = [other for other in self._links if other.closed.is_set()]
            self._links = [other for other in self._links if not other.closed.is_set()] + [link]
            link.start()  # before anybody can see it, and wait for its end
        for other in ended:
            self._bury(other)

    def _bury(self, link: Link[R]) -> None:
        if link.failure is not None:
            self._failures.append(link.failure)
            link.failure = None
