"""Health checks of a destination and durations of past epochs. Pure.

Limits are derived from those durations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from onceonly.errors import fill, mask
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Pin
from onceonly_checkpoints.strenum import StrEnum

# ---- The catalogue of the doctor's codes: what is wrong, why that matters, what to do. Codes are stable.


@dataclass(frozen=True, slots=True)
class Page:
    """The texts of one code. Details are in braces, as in :mod:`onceonly.errors.codes`.

    ``matter`` is the effect on the guarantee.
    """

    what: str
    matter: str
    remedy: str


_KAFKA = {
    "D101": Page(
        "epochs kept their transaction open for up to {longest}; the brokers end one after {limit} "
        "(kafka.transaction.timeout.ms)",
        "A batch that takes longer is refused (E513), and the query stops at the same batch each time.",
        "set kafka.transaction.timeout.ms to {enough_ms} in options= of KafkaSink (transaction.max.timeout.ms of the "
        "brokers is {most_ms}), or make batches smaller, e.g. with maxOffsetsPerTrigger",
    ),
    "D102": Page(
        "the marker topic {topic} has {found}",
        "Without its markers, or without a single order of them, the position of a pipeline is unknown.",
        "{command}",
    ),
    "D103": Page(
        "{topic} is on one broker only",
        "An epoch that was confirmed is gone with that broker's disk.",
        "give it more replicas: kafka-reassign-partitions.sh --bootstrap-server {servers:q} ...; for a new one: "
        "kafka-topics.sh --create --topic {topic:q} --replication-factor 3 --config min.insync.replicas=2",
    ),
    "D104": Page(
        "{topic} takes a write that {least} of {replicas} replicas have (min.insync.replicas)",
        "With acks=all a confirmed epoch can still be held by one broker alone, and be lost with it.",
        "kafka-configs.sh --bootstrap-server {servers:q} --alter --topic {topic:q} "
        "--add-config min.insync.replicas={enough}",
    ),
    "D105": Page(
        "{topic} lets a replica lead that lacks confirmed rows (unclean.leader.election.enable=true)",
        "Confirmed epochs can vanish without a trace, in the middle of the topic.",
        "kafka-configs.sh --bootstrap-server {servers:q} --alter --topic {topic:q} "
        "--add-config unclean.leader.election.enable=false",
    ),
    "D106": Page(
        "{topic} is compacted: of the rows with one key only the newest stays",
        "Rows that were written once are taken away later; an audit cannot count them.",
        "if every row is to stay: kafka-configs.sh --bootstrap-server {servers:q} --alter --topic {topic:q} "
        "--add-config cleanup.policy=delete",
    ),
    "D107": Page(
        "the sink asks for {limit} for a transaction, the brokers allow {most} (transaction.max.timeout.ms)",
        "The brokers refuse the producer; the query stops at its start (E110).",
        "set kafka.transaction.timeout.ms to at most {most_ms} in options= of KafkaSink, or raise "
        "transaction.max.timeout.ms of the brokers",
    ),
    "D108": Page(
        "{topic} keeps its records for {kept} (retention.ms), and a reader has read one epoch for {pinned}",
        "Records that the reader has not come to yet can go while it reads; then it stops (E243).",
        "kafka-configs.sh --bootstrap-server {servers:q} --alter --topic {topic:q} "
        "--add-config retention.ms={enough_ms}",
    ),
}

_POSTGRES = {
    "D201": Page(
        "fsync is off: a crash of the machine loses commits, or the whole database",
        "A confirmed epoch is not on the disk.",
        "set fsync = on in postgresql.conf and reload",
    ),
    "D202": Page(
        "full_page_writes is off: a crash can leave torn pages",
        "Rows and markers can be damaged without anybody noticing.",
        "set full_page_writes = on in postgresql.conf and reload",
    ),
    "D203": Page(
        "synchronous_commit is off: a confirmed commit can vanish in a crash",
        "A marker that was seen is gone after the crash, and its rows with it; Spark does not offer them again.",
        "set synchronous_commit = on for the server, the database or the role",
    ),
    "D204": Page(
        "synchronous_commit is {found} although standbys are waited for (synchronous_standby_names = {standbys})",
        "A standby that takes over after a crash can lack confirmed epochs; the query stops then (E207).",
        "set synchronous_commit = on, or take the loss at a failover into account",
    ),
    "D205": Page(
        "the database takes no writes (a standby, or default_transaction_read_only)",
        "No epoch can be written.",
        "point the sink at the primary",
    ),
    "D206": Page(
        "{setting} is {limit}, and epochs kept their transaction open for up to {longest}",
        "The server ends a transaction that takes longer; the query stops at the same batch each time.",
        "raise it for the role that writes: ALTER ROLE ... SET {setting} = '{enough_ms}ms'",
    ),
    "D207": Page(
        "no unique index of {table} is on exactly ({key})",
        "An upsert cannot find its row; the first epoch is refused (E506).",
        "CREATE UNIQUE INDEX CONCURRENTLY ON {on} ({columns})",
    ),
    "D208": Page(
        "role {role} cannot keep markers in schema onceonly: {found}",
        "Fences and markers lie there; the query is refused at its start (E502).",
        "{command}",
    ),
    "D209": Page(
        "role {role} lacks {rights} on {table}",
        "The first epoch that needs it is refused (E502).",
        "GRANT {rights} ON {on} TO {to}",
    ),
    "D210": Page(
        "{table} is not there, and role {role} may not create it",
        "The first epoch, which would make it, is refused (E502).",
        "create {table}, or let the role make it: GRANT CREATE ON SCHEMA {schema} TO {to}",
    ),
    "D211": Page(
        "row security of {table} is active for role {role}",
        "COPY is refused there, and rows that the role may not see are missing from an audit.",
        "ALTER ROLE {to} BYPASSRLS",
    ),
    "D212": Page(
        "triggers run on {table} within the epoch's transaction: {count}",
        "What they do in this database is part of the epoch; their effects outside are repeated with each attempt.",
        "keep them to tables of this database",
    ),
    "D213": Page(
        "{table} has no column {columns}, which key= or sequence= names",
        "An upsert cannot find its row; the first epoch is refused (E506).",
        "correct key= or sequence= of the sink, or add the column",
    ),
    "D214": Page(
        "{setting} is {limit}, and how long epochs keep their transaction open is not known yet",
        "The server ends a transaction that takes longer; the query stops at the same batch each time.",
        "ALTER ROLE ... SET {setting} = 0, or once epochs are recorded: onceonly doctor --ledger LEDGER",
    ),
    "D215": Page(
        "{found}",
        "Epochs are exact without these functions; that a database was put in the place of another one is noticed "
        "later, or not at all.",
        "where the server allows it: {command}",
    ),
}

_DELTA = {
    "D301": Page(
        "the table forgets markers after {retention} (delta.setTransactionRetentionDuration)",
        "A stop longer than that would make the table look unwritten; the query refuses to start (E509).",
        "ALTER TABLE ... UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
    ),
    "D302": Page(
        "the log is kept for {retention} (delta.logRetentionDuration), the pipeline stopped for up to {longest}",
        "After a stop that long the marker's text can be gone from the log. Without the ledger the newest epoch is"
        " then unknown (E216), and restores by other programs go unseen.",
        "ALTER TABLE ... SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval {enough_days} days')",
    ),
    "D303": Page(
        "{place} cannot be written",
        "No epoch can be written (E507).",
        "give this user write access to {place}",
    ),
    "D304": Page(
        "only Spark's own Delta can commit there, because of {beyond}",
        "Each epoch takes longer, and the session needs Delta's jars.",
        "give the session Delta's jars: with_delta(builder)",
    ),
    "D305": Page(
        "delta.appendOnly is true, and an upsert replaces rows",
        "The first epoch that replaces a row is refused.",
        "ALTER TABLE ... UNSET TBLPROPERTIES ('delta.appendOnly')",
    ),
    "D306": Page(
        "{files} files of {size} on average",
        "Each commit goes through all files of the table, and so does each reader: epochs get slower.",
        "ALTER TABLE ... SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true'), and OPTIMIZE it once",
    ),
    "D307": Page(
        "VACUUM removes files that were replaced {kept} ago (delta.deletedFileRetentionDuration), and a reader has "
        "read one epoch for {pinned}",
        "Files of the version that it reads can go while it reads; then it stops (E243).",
        "ALTER TABLE ... SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval {enough_hours} hours')",
    ),
}

_AROUND = {
    "D401": Page(
        "the clock of {place} is {skew} {way} this machine's",
        "Times in markers and ledger, the retention of Delta's log and the timestamps of Kafka come from different "
        "clocks; what looks older can be younger.",
        "let both machines follow one time server (chrony, systemd-timesyncd): timedatectl timesync-status",
    ),
    "D402": Page(
        "the checkpoint {checkpoint} is on {kind}",
        "Two drivers can both write a batch's entry, or one can be seen half-written: offsets of a batch are lost or "
        "doubled before any sink is asked. Fences keep the sinks exact, but the query can stop for good.",
        "put checkpointLocation on hdfs://, abfss:// or a disk that is shared by file locks; on S3 use a checkpoint "
        "file manager with conditional writes (spark.sql.streaming.checkpointFileManagerClass)",
    ),
    "D403": Page(
        'two queries write as pipeline "{pipeline}": batches of {one} and {other} follow each other by turns',
        "They fence each other out, and each one's rows are gaps or overlaps to the other.",
        'give each its own name: exactly_once(..., name="...") or .queryName("...")',
    ),
    "D404": Page(
        '{sink} was opened as "{pipeline}" by a driver (generation {theirs}) that this ledger does not know (it knows '
        "{ours})",
        "Another deployment runs under the same name, with a ledger of its own.",
        "stop one of the two, or give one another name=; see who it was: onceonly epochs list --query {pipeline:q}",
    ),
    "D405": Page(
        '"{pipeline}" left {writer} out as idle after {waited}, and epochs of {writer} are up to {usual} apart',
        "A writer that is only slow counts as gone: the dataset is called complete without it, and its rows come late.",
        'give each writer of the dataset a longer one: Writers(..., timeout="{enough_s} seconds")',
    ),
}

PAGES: dict[str, Page] = {**_KAFKA, **_POSTGRES, **_DELTA, **_AROUND}
"""Every code, in the order of its families."""


# ---- One check of the doctor: what was looked at, what was seen, what to do.


class State(StrEnum):
    """Result of a check."""

    OK = "ok"
    HINT = "hint"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    Attributes:
        state: only a problem changes the exit code.
        remedy: empty if there is nothing to do.
        code: stable code, ``D101``, whose page ``onceonly explain`` prints. Empty where there is none.
    """

    name: str
    state: State
    message: str
    remedy: str = ""
    code: str = ""


def spot(code: str, name: str, state: State = State.PROBLEM, **details: object) -> Check:
    """Make the check of a code. ``details`` fill the texts of its page.

    :class:`KeyError` if there is no such code, or a detail is missing.
    """
    page = PAGES[code]
    return Check(name, state, mask(fill(page.what, details)), mask(fill(page.remedy, details)), code)


# ---- What past epochs say of a pipeline: how long transactions stay open, how long it stands still. Pure.

_OPEN = ("prepare", "commit")
"""Phases in which a sink's transaction is open."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Durations of past epochs.

    Attributes:
        longest_open_s: longest time from the first row to the answer of the commit, seconds.
        longest_gap_s: longest time between two epochs, or since the newest, seconds.
        longest_pin_s: longest time for which a reader has pinned an epoch that it still reads, seconds.
    """

    epochs: int = 0
    longest_open_s: float = 0.0
    longest_gap_s: float = 0.0
    longest_pin_s: float = 0.0


UNOBSERVED = Observed()
"""Nothing is known yet."""


def observe(records: Sequence[EpochRecord], now_ms: int, pins: Sequence[Pin] = ()) -> Observed:
    """Measure recorded epochs, oldest first, and current pins, at ``now_ms`` (milliseconds since 1970)."""
    pinned = max(((now_ms - pin.since_ms) / 1000 for pin in pins), default=0.0)
    times = [record.recorded_ms for record in records if record.recorded_ms] + [now_ms]
    gaps = [(after - before) / 1000 for before, after in pairwise(times)]
    opened = [sum(seconds for phase, seconds in record.phases if phase in _OPEN) for record in records]
    return Observed(len(records), max(opened, default=0.0), max(gaps, default=0.0), pinned)


def worst(observations: Sequence[Observed]) -> Observed:
    """The longest times of several pipelines."""
    return Observed(
        sum(observation.epochs for observation in observations),
        max((observation.longest_open_s for observation in observations), default=0.0),
        max((observation.longest_gap_s for observation in observations), default=0.0),
        max((observation.longest_pin_s for observation in observations), default=0.0),
    )


def spell(seconds: float) -> str:
    """A time in words: ``12.5 s``, ``3 min``, ``40 days``."""
    for limit, unit, size in ((120.0, "s", 1.0), (7200.0, "min", 60.0), (172800.0, "h", 3600.0)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.0f} days"
