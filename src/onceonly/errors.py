"""The error tree. Every error says what happened, why it matters, the likely cause and the next command.

    OnceOnlyError
    ├── ConfigurationError   E1xx  the call cannot work as written
    ├── IdentityError        E2xx  the batch, the sink or the checkpoint is not what it should be
    ├── UnresolvedOutcome    E3xx  a commit was sent and nobody can say yet whether it landed
    ├── FencedOut            E4xx  another driver owns the pipeline now
    ├── DestinationError     E5xx  the sink cannot take the rows
    └── CheckpointError      E6xx  the engine's checkpoint files cannot be read

A warning (W7xx) is no exception: it works, but a promise is weaker than it looks. It is one line, for the log and for
the pipeline's events.

Inside ``foreachBatch`` only the text survives: Spark turns it into a line of a Java traceback. So each message stands
alone.
The texts live in :mod:`onceonly.codes`; :func:`refuse` makes the error of a code.
"""

from __future__ import annotations

import difflib
import re
import shlex
import string
from collections.abc import Iterable, Mapping
from typing import Any

from onceonly.codes import CATALOGUE

_SECRETS = (
    re.compile(r"(?P<keep>://[^:/@\s]+:)[^@\s]+(?=@)"),
    re.compile(r"(?P<keep>\bpassword\s*=\s*)('[^']*'|\S+)", re.IGNORECASE),
)


def mask(text: str) -> str:
    """Replace passwords in URLs and key-value connection strings by ``***``."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: f"{match['keep']}***", text)
    return text


def nearest(wrong: Iterable[str], known: Iterable[str]) -> str:
    """`` (did you mean user?)`` where a misspelt name is close to a known one, else nothing."""
    choices = list(known)
    found = [match for name in wrong for match in difflib.get_close_matches(name, choices, 1, 0.5)]
    return f" (did you mean {', '.join(found)}?)" if found else ""


class _Words(string.Formatter):
    """Fills details into a text; ``{name:q}`` becomes one word of a shell's command line."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        return shlex.quote(str(value)) if format_spec == "q" else super().format_field(value, format_spec)


def fill(text: str, details: Mapping[str, object]) -> str:
    """Fill details into a text of a catalogue; ``{name:q}`` becomes one word of a shell's command line."""
    return _Words().vformat(text, (), details)


_UNTOLD: Mapping[str, object] = {"lost": "epochs", "copy": "", "again": "", "by": "a newer driver"}
"""Details of whoever cannot ask the ledger, as a sink in the middle of a commit."""

_OF_THE_LEDGER = frozenset({"ledger", "where", "named", "first", "last"})
"""What commands need and only an opening knows."""

_RESTART = "restart the query: its opening prints the commands that apply"


class OnceOnlyError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: stable code, ``E203``; ``onceonly explain E203`` prints its page.
        what: the first line: what happened.
        remedy: the next command or change.
    """

    def __init__(self, code: str, **details: object) -> None:
        """Fill the catalogue's texts of ``code`` with ``details``; secrets are masked."""
        entry = CATALOGUE[code]
        details = {**_UNTOLD, **details}
        self.code = code
        self.details = details
        self.what = mask(fill(entry.what, details))
        remedy = _RESTART if _fields(entry.remedy) & _OF_THE_LEDGER - details.keys() else entry.remedy
        self.remedy = mask(fill(remedy, details))
        lines = (f"[ONCE-{code}] {entry.what}", entry.matter, f"Likely cause: {entry.cause}", f"Next: {remedy}")
        super().__init__(mask("\n  ".join(fill(line, details).replace("\n", "\n  ") for line in lines)))


def _fields(text: str) -> frozenset[str]:
    """Names of the details that a text asks for."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name)


class ConfigurationError(OnceOnlyError):
    """The call cannot work as written (E1xx)."""


class IdentityError(OnceOnlyError):
    """The batch, the sink or the checkpoint is not what it should be (E2xx)."""


class UnresolvedOutcome(OnceOnlyError):
    """A commit was sent and nobody can say yet whether it landed (E3xx)."""


class FencedOut(OnceOnlyError):
    """Another driver owns the pipeline now (E4xx)."""


class DestinationError(OnceOnlyError):
    """The sink cannot take the rows (E5xx)."""


class CheckpointError(OnceOnlyError):
    """The engine's checkpoint files cannot be read (E6xx)."""


_FAMILIES: dict[str, type[OnceOnlyError]] = {
    "E1": ConfigurationError,
    "E2": IdentityError,
    "E3": UnresolvedOutcome,
    "E4": FencedOut,
    "E5": DestinationError,
    "E6": CheckpointError,
}


def refuse(code: str, **details: object) -> OnceOnlyError:
    """Make the error of a code, to be raised.

    Raises:
        KeyError: no such code, or a detail that its text needs is missing.
    """
    return _FAMILIES[code[:2]](code, **details)


def repeat(code: str, what: str, remedy: str, message: str) -> OnceOnlyError:
    """Make an error again of which only the text is left, to be raised.

    Args:
        code: of the catalogue.
        what: its first line, without the code.
        remedy: its next command or change.
        message: all of it.

    Raises:
        KeyError: no error has such a code.
    """
    family = _FAMILIES[code[:2]]
    made = family.__new__(family, message)
    made.code, made.what, made.remedy, made.details = code, what, remedy, {}
    return made


def caution(code: str, **details: object) -> str:
    """The warning of a code in one line: what is so and why it matters. The rest is in ``onceonly explain``."""
    entry = CATALOGUE[code]
    return mask(fill(f"[ONCE-{code}] {entry.what} {entry.matter}", details))
