"""Digests of an epoch's rows: row count and fingerprint.

There is one for a whole epoch and one for each of its outputs, the rows of some sinks. Values in the one form of
``model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onceonly_checkpoints.model import ALWAYS, BY_NAME, OPTIONAL, Record, canonical


@dataclass(frozen=True, slots=True)
class Digest(Record):
    """Row count and an order-free fingerprint of the rows.

    The fingerprint is the sum of a 64-bit row hash, kept as the sums of its high and low 32-bit halves. Addition
    detects a doubled pair, which XOR does not. Halves cannot overflow a 64-bit sum below 2**31 rows.

    ``left_out`` names the columns that it excludes, sorted: another order of the same rows may change them.
    """

    rows: int
    high: int = field(default=0, metadata=ALWAYS)
    low: int = field(default=0, metadata=ALWAYS)
    left_out: tuple[str, ...] = ()

    def __add__(self, other: Digest) -> Digest:
        """Digest of both sets of rows."""
        left_out = tuple(sorted({*self.left_out, *other.left_out}))
        return Digest(self.rows + other.rows, self.high + other.high, self.low + other.low, left_out)

    def __sub__(self, other: Digest) -> Digest:
        """Digest of these rows without others that are among them."""
        return Digest(self.rows - other.rows, self.high - other.high, self.low - other.low, self.left_out)

    @property
    def text(self) -> str:
        """Spelling for people and for the ledger's column."""
        left_out = f":{canonical(list(self.left_out))}" if self.left_out else ""
        return f"{self.rows}:{self.high}:{self.low}{left_out}"


BAD = "bad"
"""Name of the output of bad rows: those that break an expectation. They are in no other output, and in no sink that
holds all rows."""

SEEN_IDS = "seen"
"""Name of the output of ids of good rows, for the sink that keeps them. It also lists the rows whose id had been seen
before."""

WINDOWS, RECORDS, STATE, LATE = "windows", "windows as records", "state", "late"
"""Names of the outputs of an epoch with windows: results, these as records of a topic, changed rows of state, and rows
that came after their window was closed. Each staged row is in one of them, so together they are all rows of the epoch,
unless its rows were divided first: then the good ones are, and those of windows come on top."""

OF_WINDOWS = (WINDOWS, RECORDS, STATE, LATE)

OURS = frozenset({BAD, SEEN_IDS, *OF_WINDOWS})
"""Names of outputs that no user gives."""


def column_of(output: str) -> str:
    """Name of an output's column in staged rows: its own, or for one of ours a name that no user gives."""
    return f"onceonly {output}" if output in OURS else output


@dataclass(frozen=True, slots=True)
class OutputDigest(Record):
    """Rows that some sinks of an epoch hold instead of all: their own selection, with columns of their own.

    A row is in it at most once. So ``digest.rows`` and ``filtered`` add up to the good rows of the epoch, or for output
    ``bad`` to all rows of the batch.

    Attributes:
        name: the user's name for it, unique in the epoch, or one of :data:`OURS`.
        sinks: ids of the sinks that hold it.
        schema: fingerprint of its columns.
        digest: of its rows, as those sinks hold them.
        filtered: rows left out, counted and not derived. For output ``bad`` these are the good ones.
        reasons: for output ``bad``, the expectations that rows broke, by name, each with their number.
        repeated: for output ``seen``, the rows whose id had been seen before, hashed as all good rows are. No sink got
            them.
        offered: for output ``seen``, rows of the batch, good, bad and repeated, counted before any was dropped.
        definition: the arguments that made it: ``where='a > 10'``, ``key='id'``. It is not compared, since another
            spelling of the same rows makes no other output.
    """

    name: str
    sinks: tuple[str, ...] = field(metadata=OPTIONAL)
    schema: str
    digest: Digest
    filtered: int = 0
    reasons: tuple[tuple[str, int], ...] = field(default=(), metadata=BY_NAME)
    repeated: Digest | None = None
    offered: int = 0
    definition: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """For people: ``alerts 87, filtered 9824``, ``bad 89 (amount 80, known customer 9)``, ``repeated 12``."""
        if self.repeated is not None:
            return f"repeated {self.repeated.rows}"
        if self.name == BAD:
            return f"{BAD} {self.digest.rows}{f' ({self.why})' if self.reasons else ''}"
        if self.name in OF_WINDOWS:
            return f"{self.name} {self.digest.rows}"
        return f"{self.name} {self.digest.rows}, filtered {self.filtered}"

    @property
    def call(self) -> str:
        """The call that made it: ``OutputDigest(..., name='alerts', where='a > 10')``."""
        named = {BAD: "quality=Quality(..., ", SEEN_IDS: "dedupe=Dedupe(..., "}.get(self.name)
        return f"{named or f'Output(..., name={self.name!r}, '}{self.definition})"

    @property
    def why(self) -> str:
        """The expectations that its rows broke, in words: ``amount 80, known customer 9``, or empty."""
        return ", ".join(f"{name} {rows}" for name, rows in self.reasons)


MOST_SAID = 2000
"""Characters of what made an output that markers keep; of longer ones nothing is kept, for they would be in each."""


def redefined(previous: tuple[OutputDigest, ...], now: tuple[OutputDigest, ...]) -> tuple[OutputDigest, ...]:
    """Former outputs that another call made than the current one of the same name, if both calls are noted."""
    texts = {output.name: output.definition for output in now}
    return tuple(
        output
        for output in previous
        if output.definition and texts.get(output.name) and output.definition != texts[output.name]
    )


def beside_windows(outputs: Sequence[OutputDigest]) -> bool:
    """Whether rows were divided before windows took the good ones, whose digest is then the epoch's."""
    names = {output.name for output in outputs}
    return not names.isdisjoint(OF_WINDOWS) and not names.issubset(OF_WINDOWS)


def bad_in(outputs: tuple[OutputDigest, ...]) -> OutputDigest | None:
    """The output of bad rows, or ``None`` without expectations."""
    return next((output for output in outputs if output.name == BAD), None)


def repeated_in(outputs: tuple[OutputDigest, ...]) -> Digest | None:
    """The rows whose id had been seen before, or ``None`` if ids are not kept."""
    return next((output.repeated for output in outputs if output.name == SEEN_IDS), None)
