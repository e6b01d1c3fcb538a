"""Warn about text columns that order rows (W715).

Texts are compared character by character. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onceonly.errors import caution
from onceonly.machine.facts import Happening
from onceonly.protocol import Sink
from onceonly.quality.spark_outputs import ResolvedOutput
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.values import Last, Max, Min
from onceonly_checkpoints.ledger import EventKind

_TEXTS = ("string", "large_string", "char", "varchar")


def warned(
    sinks: Sequence[Sink],
    columns: Sequence[tuple[str, str]],
    outputs: Sequence[ResolvedOutput] = (),
    windows: Definition | None = None,
) -> Iterator[Happening]:
    """The warnings of a run. ``columns`` has names and types of the rows. Some sinks get ``outputs`` in their place."""
    for what, column, kind in (*_of_sinks(sinks, dict(columns), outputs), *_of_windows(windows)):
        if kind.startswith(_TEXTS):
            yield Happening(EventKind.WARNED, caution("W715", what=what, column=column))


def _of_sinks(
    sinks: Sequence[Sink], columns: Mapping[str, str], outputs: Sequence[ResolvedOutput]
) -> Iterator[tuple[str, str, str]]:
    own = {
        sink: {column.name: str(column.type) for column in found.columns}
        for found in outputs
        for sink in found.wanted.sinks
    }
    for sink in sinks:
        sequence = sink.capabilities.changes.sequence or ""
        kinds = {name.lower(): kind for name, kind in own.get(sink.id, columns).items()}
        yield f"{sink.id}, sequence=", sequence, kinds.get(sequence.lower(), "")


def _of_windows(windows: Definition | None) -> Iterator[tuple[str, str, str]]:
    for name, value in windows.panes.values.items() if windows else ():
        if isinstance(value, Last | Max | Min):
            by = value.by if isinstance(value, Last) else value.column
            yield f"{type(value).__name__} in values= ({name})", by, windows.input_kinds.get(by, "") if windows else ""
