"""The error tree of onceonly, and the code of each error.

Every error has four parts: what happened, why it matters, the likely cause and the next command.

    OnceOnlyError
    ├── ConfigurationError           E1xx  the call cannot work as written
    ├── IdentityError                E2xx  the batch, the sink or the checkpoint is not as expected
    │   ├── OverlapError             the batch offers rows that epochs hold, or may hold
    │   ├── GapError                 rows would be lost: the batch starts further on, or its input is gone
    │   ├── StateError               Spark's state does not belong to the rows in the sinks
    │   └── SinkChangedError         a sink was set back, made anew or changed by others
    ├── UnresolvedOutcome            E3xx  a commit was sent, and its outcome is not known yet
    ├── FencedOut                    E4xx  another driver owns the pipeline now
    │   └── SupersededRun            it goes on from the same place, so there is nothing to do
    ├── DestinationError             E5xx  the sink cannot take the rows
    │   ├── DestinationUnavailable   not now: the obstacle can pass by itself
    │   └── RowsRefused              not these: another start brings the same rows or columns
    └── CheckpointError              E6xx  the engine's checkpoint files cannot be read

A warning (W7xx) is no exception: the query works, but its guarantee is weaker than it looks. It is one line, for the
log and for the pipeline's events.

Inside ``foreachBatch`` only the text survives: Spark turns it into a line of a Java traceback. So each message is
complete, and :func:`onceonly.errors.refusal` makes the error of it again, by its class. The texts are in
:mod:`onceonly.errors.codes`. :func:`refuse` makes the error of a code.
"""

from __future__ import annotations

import difflib
import re
import shlex
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from onceonly.errors.codes import CATALOGUE, Family
from onceonly_checkpoints.install import hint

__all__ = ["OnceOnlyError", "Refused", "refusal", "refuse"]
__all__ += ["ConfigurationError", "IdentityError", "OverlapError", "GapError", "StateError", "SinkChangedError"]
__all__ += ["UnresolvedOutcome", "FencedOut", "SupersededRun"]
__all__ += ["DestinationError", "DestinationUnavailable", "RowsRefused", "CheckpointError"]

_SECRETS = (
    re.compile(r"(?P<keep>://[^:/@\s]+:)[^@\s]+(?=@)"),
    re.compile(r"(?P<keep>\bpassword\s*=\s*)('[^']*'|\S+)", re.IGNORECASE),
)


def mask(text: str) -> str:
    """Replace passwords in URLs and key-value connection strings by ``***``."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: f"{match['keep']}***", text)
    return text


def nearest(wrong: Iterable[str], valid_names: Iterable[str]) -> str:
    """`` (did you mean user?)`` where a misspelt name is close to a known one, otherwise nothing."""
    choices = list(valid_names)
    matches = [match for name in wrong for match in difflib.get_close_matches(name, choices, 1, 0.5)]
    return f" (did you mean {', '.join(matches)}?)" if matches else ""


_COMMANDS: Mapping[str, Callable[[str], str]] = {"q": shlex.quote, "i": hint}


class _Words(string.Formatter):
    """Fills details into a text. See :func:`fill`."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec in _COMMANDS:
            return _COMMANDS[format_spec](str(value))
        return (
            (format_spec if value is None else str(value)) if format_spec else super().format_field(value, format_spec)
        )


def fill(text: str, details: Mapping[str, object]) -> str:
    """Fill details into a text of a catalogue.

    ``{name:q}`` becomes one word of a shell's command line, ``{name:i}`` the command that installs an extra.
    ``{name:some words}`` becomes these words where ``name`` is ``None``.
    """
    return _Words().vformat(text, (), details)


UNTOLD: Mapping[str, object] = {
    **{"lost": "epochs", "copy": "", "again": "", "undo": "", "dump": "", "by": "a newer driver"},
    **{"because": None, "mend": None, "aside": None, "mismatch": None},
}
"""Details of whoever cannot ask the ledger, as a sink in the middle of a commit; and those for which the text of a code
has words of its own, ``{because:the most likely cause}``, for whoever knows nothing more exact."""

OF_THE_LEDGER = frozenset({"ledger", "where", "named", "first", "last"})
"""What commands need and only an opening knows."""

_RESTART = "restart the query: its opening prints the commands that apply"

_LINES, _CHARACTERS = 3, 360
"""Of a foreign text in a message: a server's words, a traceback, a list of a hundred columns. A remedy stays whole."""


def _shortened(detail: object) -> object:
    """The beginning and the end of a long text, without its secrets."""
    if not isinstance(detail, str):
        return detail
    text = mask(detail)  # first, as half a secret is not recognised
    # The user's own exception is the last line before Spark's description of the query.
    lines = text.partition("\n=== Streaming Query ===")[0].splitlines() or [text]
    text = f"{lines[0]} ... {lines[-1]}" if len(lines) > _LINES else text
    half = _CHARACTERS // 2
    return text if len(text) <= _CHARACTERS else f"{text[:half]} ... {text[-half:]}"


class OnceOnlyError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: stable code, ``E203``. ``onceonly explain E203`` prints its page.
        what: the first line: what happened.
        remedy: the next command, or the change to make.
        retry: whether the obstacle can pass by itself, so that an unchanged restart of the query may succeed. A
            restart is always safe: a batch that is not proven is refused again.
    """

    retry: ClassVar[bool] = False

    def __init__(self, code: str, **details: object) -> None:
        """Fill the catalogue's texts of ``code`` with ``details``. Secrets are masked."""
        entry = CATALOGUE[code]
        details = {**UNTOLD, **details}
        brief = {name: _shortened(detail) for name, detail in details.items()}
        self.code = code
        self.details = details
        self.what = mask(fill(entry.what, brief))
        remedy = _RESTART if fields(entry.remedy) & OF_THE_LEDGER - details.keys() else entry.remedy
        self.remedy = mask(fill(remedy, details))
        texts = (self.what, fill(entry.matter, brief), f"Likely cause: {fill(entry.cause, brief)}")
        lines = (f"[ONCE-{code}] {texts[0]}", *texts[1:], f"Next: {self.remedy}")
        super().__init__(mask("\n  ".join(line.replace("\n", "\n  ") for line in lines)))


def fields(text: str) -> frozenset[str]:
    """Names of the details that a text needs."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name)


class ConfigurationError(OnceOnlyError):
    """The call cannot work as written (E1xx)."""


class IdentityError(OnceOnlyError):
    """The batch, the sink or the checkpoint is not as expected (E2xx)."""


class OverlapError(IdentityError):
    """The batch offers rows that epochs hold, or may hold: continuing would write them twice."""


class GapError(IdentityError):
    """Rows would be lost: the batch starts past the last epoch's end, or input of a planned batch is gone."""


class StateError(IdentityError):
    """Spark's state is gone, or does not fit the sinks' rows."""


class SinkChangedError(IdentityError):
    """A sink has changed: restored, recreated, moved, or changed by another program."""


class UnresolvedOutcome(OnceOnlyError):
    """A commit was sent, but its outcome is unknown (E3xx). The next start looks it up."""

    retry = True


class FencedOut(OnceOnlyError):
    """Another driver owns the pipeline now (E4xx)."""


class SupersededRun(FencedOut):
    """A newer driver or run continues from the same place. You have nothing to do."""


class DestinationError(OnceOnlyError):
    """The sink cannot take the rows (E5xx)."""


class DestinationUnavailable(DestinationError):
    """The sink or ledger cannot be used now: no answer, a lock, or rows not kept. Another start may succeed."""

    retry = True


class RowsRefused(DestinationError):
    """The sink answers, but these rows or columns do not fit it. Another start brings the same ones."""


class CheckpointError(OnceOnlyError):
    """The engine's checkpoint files cannot be read (E6xx)."""


_OF_A_FAMILY: Mapping[Family, type[OnceOnlyError]] = {
    Family.CONFIGURATION: ConfigurationError,
    Family.IDENTITY: IdentityError,
    Family.OUTCOME: UnresolvedOutcome,
    Family.FENCED: FencedOut,
    Family.DESTINATION: DestinationError,
    Family.CHECKPOINT: CheckpointError,
}

CLASSES: Mapping[str, type[OnceOnlyError]] = {
    **dict.fromkeys(("E203", "E211", "E220"), OverlapError),
    **dict.fromkeys(("E204", "E214", "E229"), GapError),
    **dict.fromkeys(("E206", "E215", "E235", "E248"), StateError),
    **dict.fromkeys(("E207", "E208", "E209", "E228", "E233"), SinkChangedError),
    **dict.fromkeys(("E401", "E402"), SupersededRun),
    **dict.fromkeys(("E501", "E510", "E511", "E514", "E516", "E526", "E529"), DestinationUnavailable),
    **dict.fromkeys(
        ("E503", "E504", "E505", "E506", "E517", "E520", "E522", "E524", "E528", "E530", "E531"), RowsRefused
    ),
}
"""Classes of single codes; every other code has its family's."""


def class_of(code: str) -> type[OnceOnlyError]:
    """The class of a code's error. :class:`KeyError` if no error has such a code."""
    family = Family.of(code)
    if family is None or family is Family.WARNINGS:
        raise KeyError(code)
    return CLASSES.get(code, _OF_A_FAMILY[family])


def refuse(code: str, **details: object) -> OnceOnlyError:
    """Make the error of a code, for raising.

    :class:`KeyError` if there is no such code, or a detail that its text needs is missing.
    """
    return class_of(code)(code, **details)


def repeat(code: str, what: str, remedy: str, message: str) -> OnceOnlyError:
    """Make an error again from its text, for raising. :class:`KeyError` if no error has such a code.

    ``what`` is its first line, without the code, ``remedy`` its next command or change, ``message`` all of it.
    """
    kind = class_of(code)
    made = kind.__new__(kind, message)
    made.code, made.what, made.remedy, made.details = code, what, remedy, {}
    return made


def caution(code: str, **details: object) -> str:
    """The warning of a code in one line: what happened and why it matters. The rest is in ``onceonly explain``."""
    entry = CATALOGUE[code]
    return mask(fill(f"[ONCE-{code}] {entry.what} {entry.matter}", details))


# At the end, because it needs the classes above.
from onceonly.errors.read_refusal import Refused, refusal  # noqa: E402
