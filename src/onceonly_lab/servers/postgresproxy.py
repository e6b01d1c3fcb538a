"""``PostgresProxy``: inject faults into statements of a Postgres session.

Its main target is the COMMIT.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from onceonly_lab.servers.proxy import ON_ANSWER, Act, Link, Proxy, Rule, RuleBook

# ---- Enough of SQL's surface to tell the statements of one text apart and to see what each begins with.

_QUOTED = re.compile(
    r"""
      '(?:[^']|'')*'                       # literal; one with backslashes before quotes is not told apart
    | "(?:[^"]|"")*"                       # identifier
    | (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag)    # body of a function
    | --[^\n]*
    | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)


def statements(text: str) -> list[str]:
    """The statements of one text, without comments, literals emptied, each word one blank from the next."""
    bare = _QUOTED.sub(lambda match: _emptied(match.group()), text)
    parts = (" ".join(part.split()) for part in bare.split(";"))
    return [part for part in parts if part]


def _emptied(quoted: str) -> str:
    if quoted.startswith('"'):
        return quoted.replace(";", " ")
    return "''" if quoted.startswith(("'", "$")) else " "


# ---- ``PostgresProxy``: faults at single statements of a Postgres session, above all at its COMMIT.

COMMIT = r"(COMMIT|END)\b"
"""Pattern of the statement that ends a transaction for good. It also finds the ``END`` of a body in standard SQL."""

_CANCEL, _SSL, _GSS = 80877102, 80877103, 80877104
_NO_ENCRYPTION = b"N"
_SYNC, _EXECUTE, _QUERY, _PARSE, _BIND, _FUNCTION = b"S", b"E", b"Q", b"P", b"B", b"F"
_PARAMETER = b"S"
_COMPLETE, _EMPTY, _SUSPENDED, _ERROR, _READY = b"C", b"I", b"s", b"E", b"Z"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as it is sent to be executed.

    Attributes:
        text: without comments and literals, words separated by one blank.
        extended: sent by the extended protocol (parse, bind, execute), not as a simple query.
        application: ``application_name`` of the session, as the server told it last.
        user: of the session.
        database: of the session.
    """

    text: str
    extended: bool
    application: str
    user: str
    database: str


class PostgresProxy(Proxy[Statement]):
    """Clients connect to its port instead of the server's. Sessions are not encrypted: ``sslmode=require`` fails."""

    def rule(
        self,
        act: Act,
        statement: str = COMMIT,
        *,
        application: str | None = None,
        where: Callable[[Statement], bool] | None = None,
        times: int | None = None,
        skip: int = 0,
        delay_s: float = 0.0,
        call: Callable[[Statement], object] | None = None,
    ) -> Rule[Statement]:
        """Put a fault in force.

        A session is one stream. ``DROP_REQUEST`` therefore swallows everything that the client sends from there on,
        and ``DROP_ANSWER`` everything that the server answers, as a network does that has gone silent.
        ``HOLD_REQUEST`` stops the stream; ``Rule.release`` lets it go on, also when the client has given up meanwhile.

        Args:
            act: what to do.
            statement: pattern that the statement begins with, whatever its case.
            application: pattern of the whole ``application_name``.
            where: only if this holds, too.
            times: see :class:`Rule`, as for the others.
            skip: matches that pass first.
            delay_s: seconds.
            call: called right before the act.

        Raises:
            ValueError: the act is not for Postgres.
        """
        if act is Act.REPLACE_CODE:
            raise ValueError("an answer to COMMIT carries no error code that could be replaced")
        begins = re.compile(statement, re.IGNORECASE)

        def wanted(sent: Statement) -> bool:
            return (
                begins.match(sent.text) is not None
                and (application is None or re.fullmatch(application, sent.application) is not None)
                and (where is None or where(sent))
            )

        return self._rules.add(Rule(act, wanted, times, skip, delay_s, 0, call))

    def _link(self, client: socket.socket, server: socket.socket) -> Link[Statement]:
        return _PostgresLink(client, server, self._rules)


_Sent = tuple[Statement, "Rule[Statement] | None"]


@dataclass(eq=False)
class _Round:
    """What goes to the server up to one synchronisation point, which it answers with ReadyForQuery."""

    sent: deque[_Sent] = field(default_factory=deque[_Sent])


class _PostgresLink(Link[Statement]):
    def __init__(self, client: socket.socket, server: socket.socket, rules: RuleBook[Statement]) -> None:
        super().__init__(client, server, rules)
        self._order = threading.Lock()
        # The first round is the start of the session.
        self._rounds: deque[_Round] = deque([_Round()])
        self._open: _Round | None = None
        self._texts: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._session: dict[str, str] = {}
        self._client_dropped = threading.Event()
        self._server_dropped = threading.Event()

    def upward(self, requests: BinaryIO) -> None:
        if not self._startup(requests):
            return
        while not self.closed.is_set() and (message := _message(requests)) is not None:
            if not self._client_dropped.is_set():
                self._pass_request(*message)

    def downward(self, answers: BinaryIO) -> None:
        while not self.closed.is_set() and (message := _message(answers)) is not None:
            if not self._server_dropped.is_set():
                self._pass_answer(*message)

    def _startup(self, requests: BinaryIO) -> bool:
        """Pass the one message that has no type; ``False`` if no session follows."""
        while (head := requests.read(8)) and len(head) == 8:
            size, code = struct.unpack(">ii", head)
            if code in (_SSL, _GSS):
                # Answered here: what is encrypted could not be read.
                self.client.sendall(_NO_ENCRYPTION)
                continue
            body = requests.read(size - 8)
            self.server.sendall(head + body)
            texts = [text.decode(errors="replace") for text in body.split(b"\0")]
            self._session = dict(zip(texts[::2], texts[1::2], strict=False))
            return bool(code != _CANCEL)
        return False

    def _pass_request(self, kind: bytes, body: bytes) -> None:
        for statement in self._note(kind, body):
            rule = self.rules.meet(statement)
            with self._order:
                self._current().sent.append((statement, rule))
            if rule is not None and rule.act not in ON_ANSWER:
                self._act_on_request(statement, rule)
            if self._client_dropped.is_set() or self.closed.is_set():
                return
        if kind in (_SYNC, _QUERY, _FUNCTION):
            with self._order:
                self._current()
                self._open = None
        self.server.sendall(kind + struct.pack(">i", len(body) + 4) + body)

    def _note(self, kind: bytes, body: bytes) -> list[Statement]:
        """Keep what is prepared under which name; return what is now executed."""
        if kind == _PARSE:
            name, text = body.split(b"\0", 2)[:2]
            self._texts[name] = next(iter(statements(text.decode(errors="replace"))), "")
        elif kind == _BIND:
            portal, name = body.split(b"\0", 2)[:2]
            self._portals[portal] = self._texts.get(name, "")
        elif kind == _EXECUTE:
            return [self._statement(self._portals.get(body.split(b"\0", 1)[0], ""), extended=True)]
        elif kind == _QUERY:
            texts = statements(body.rstrip(b"\0").decode(errors="replace"))
            return [self._statement(text, extended=False) for text in texts]
        return []

    def _statement(self, text: str, extended: bool) -> Statement:
        parameter = self._session.get
        user = parameter("user", "")
        return Statement(text, extended, parameter("application_name", ""), user, parameter("database", user))

    def _current(self) -> _Round:
        if self._open is None:
            self._open = _Round()
            self._rounds.append(self._open)
        return self._open

    def _act_on_request(self, statement: Statement, rule: Rule[Statement]) -> None:
        rule.carry_out(statement)
        if rule.act is Act.DROP_REQUEST:
            self._client_dropped.set()
        elif rule.act is Act.CUT_REQUEST:
            self.cut()
        elif rule.act is Act.HOLD_REQUEST:
            rule.await_release(self.closed)
        else:
            self.closed.wait(rule.delay_s)
        rule.done()

    def _pass_answer(self, kind: bytes, body: bytes) -> None:
        if kind == _PARAMETER:
            # A session may rename itself at any time; the server tells.
            name, value = body.split(b"\0")[:2]
            self._session[name.decode()] = value.decode(errors="replace")
        for statement, rule in self._answered(kind):
            if rule is not None and rule.act in ON_ANSWER:
                self._act_on_answer(statement, rule)
            if self._server_dropped.is_set() or self.closed.is_set():
                return
        self.client.sendall(kind + struct.pack(">i", len(body) + 4) + body)

    def _answered(self, kind: bytes) -> list[_Sent]:
        """The statements that this message ends: one that is complete; after an error, all that the server skips."""
        with self._order:
            if not self._rounds:
                return []
            sent = self._rounds[0].sent
            if kind in (_COMPLETE, _EMPTY, _SUSPENDED):
                return [sent.popleft()] if sent else []
            if kind not in (_ERROR, _READY):
                return []
            ended = list(sent)
            sent.clear()
            if kind == _READY:
                self._rounds.popleft()
            return ended

    def _act_on_answer(self, statement: Statement, rule: Rule[Statement]) -> None:
        rule.carry_out(statement)
        if rule.act is Act.DROP_ANSWER:
            self._server_dropped.set()
        elif rule.act is Act.CUT_ANSWER:
            self.cut()
        else:
            self.closed.wait(rule.delay_s)
        rule.done()


def _message(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    kind = stream.read(1)
    size = stream.read(4)
    if not kind or len(size) < 4:
        return None
    length = struct.unpack(">i", size)[0] - 4
    body = stream.read(length) if length else b""
    return (kind, body) if len(body) == length else None
