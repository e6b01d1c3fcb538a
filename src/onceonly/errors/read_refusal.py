"""Parse a refusal back from an error or a stopped query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from onceonly.errors import OnceOnlyError, repeat
from onceonly.errors.options import checks_arguments

_MESSAGE = re.compile(r"\[ONCE-([EW]\d{3})\] (.*)((?:\r?\n(?: {2,}\S.*|[ ]*(?=\r?\n {2,}\S)))*)")
"""A message as Spark hands it on: its lines are indented, a reason within it may be so further or hold empty lines, and
what follows them, of Python or Java, is not so."""

_CAUSE, _NEXT = "Likely cause: ", "Next: "


class StreamingQuery(Protocol):
    """Spark's query, with the error that stopped it."""

    def exception(self) -> BaseException | None:
        """The error that stopped it."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal in its parts.

    Attributes:
        code: ``E203``. ``onceonly explain`` has its page.
        what: the first line: what happened.
        matter: why it matters, and the work that was not done.
        cause: the likely cause.
        next: the next commands or changes, one a line.
    """

    code: str
    what: str
    matter: str
    cause: str
    next: str

    @property
    def error(self) -> OnceOnlyError | None:
        """The error again, for raising or for a check of its class. ``None`` for a warning, which stops no query."""
        try:
            return repeat(self.code, self.what, self.next, str(self))
        except KeyError:
            return None

    @property
    def retry(self) -> bool:
        """Whether a restart alone can help: the obstacle can pass by itself."""
        return self.error is not None and self.error.retry

    def to_dict(self) -> Mapping[str, str]:
        """Field names to values."""
        return asdict(self)

    def __str__(self) -> str:
        """The message, as it is logged."""
        lines = (f"[ONCE-{self.code}] {self.what}", self.matter, f"{_CAUSE}{self.cause}", f"{_NEXT}{self.next}")
        return "\n  ".join(line.replace("\n", "\n  ") for line in lines)


@checks_arguments
def refusal(of: BaseException | StreamingQuery) -> Refused | None:
    """Find the refusal of this package that stopped a query.

    Spark turns an error inside ``foreachBatch`` into text, so you cannot catch ``OnceOnlyError`` around
    ``awaitTermination()``. This finds the text. :attr:`Refused.error` makes the error of it again.

    Args:
        of: the caught error, of any type, or the query itself.

    Returns:
        The refusal. ``None`` if the query runs, or another error stopped it.
    """
    error = of if isinstance(of, BaseException) else of.exception()
    return next((refused for text in _texts(error) if (refused := read(text))), None)


def told_by(error: BaseException) -> OnceOnlyError | None:
    """The error of this package that a task raised on an executor. ``None`` if it was another one.

    Spark passes on only its text, within an error of its own.
    """
    refused = refusal(error)
    return refused.error if refused else None


def _texts(error: BaseException | None) -> Iterator[str]:
    met: set[int] = set()
    while error is not None and id(error) not in met:
        met.add(id(error))
        yield str(error)
        error = error.__cause__ or error.__context__


def read(text: str) -> Refused | None:
    """The first refusal in a text. ``None`` if there is none."""
    match = _MESSAGE.search(text)
    if match is None:
        return None
    code, what, rest = match.groups()
    lines = [line.strip("\r")[2:] for line in rest.split("\n")[1:]]
    parts: dict[str, list[str]] = {"what": [what.strip("\r")], "matter": [], "cause": [], "next": []}
    at = "matter"
    for line in lines:
        at = "cause" if line.startswith(_CAUSE) else "next" if line.startswith(_NEXT) else at
        parts[at].append(line.removeprefix(_CAUSE if at == "cause" else _NEXT))
    return Refused(code, **{name: "\n".join(lines) for name, lines in parts.items()})
