"""The contract between the runner and a sink: every name that a sink, or whoever calls one, needs.

:mod:`~onceonly.protocol.sink` says who calls what and when, :mod:`~onceonly.protocol.optional` what only some sinks can
do, :mod:`~onceonly.protocol.batch` what a sink is given to write, and :mod:`~onceonly.protocol.values` what it answers.
"""

from typing import TYPE_CHECKING

from onceonly.protocol.batch import (
    AsOf,
    Attempt,
    Batch,
    Estimate,
    InFiles,
    Recalling,
    Task,
    TooLargeForDriver,
)
from onceonly.protocol.optional import (
    EPOCH,
    Demanding,
    Enlists,
    Examinable,
    Expires,
    Feeds,
    Forgets,
    Identified,
    Keeps,
    KeepsTransactions,
    Legible,
    LogsIn,
    Lookup,
    NeedsSpark,
    Peered,
    Permissive,
    Readable,
    Remembers,
    Replaces,
    Shared,
    Witness,
)
from onceonly.protocol.sink import (
    UNADDRESSED,
    Conflict,
    OutcomeUnknown,
    Prepared,
    Recorder,
    Sink,
    SinkBase,
    Superseded,
    is_default,
    own,
)
from onceonly.protocol.values import (
    Allowed,
    Capabilities,
    Disturbance,
    Expired,
    Milestone,
    Position,
    Sight,
    Sums,
    Transaction,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

__all__ = [
    "UNADDRESSED",
    "Allowed",
    "AsOf",
    "Attempt",
    "Batch",
    "Capabilities",
    "Conflict",
    "Demanding",
    "Disturbance",
    "EPOCH",
    "Enlists",
    "Estimate",
    "Examinable",
    "Expired",
    "Expires",
    "Forgets",
    "Identified",
    "InFiles",
    "Keeps",
    "KeepsTransactions",
    "Legible",
    "LogsIn",
    "Lookup",
    "NeedsSpark",
    "Milestone",
    "OutcomeUnknown",
    "Feeds",
    "Peered",
    "Permissive",
    "Position",
    "Prepared",
    "Readable",
    "Recalling",
    "Recorder",
    "Remembers",
    "Replaces",
    "Shared",
    "Sight",
    "Sink",
    "SinkBase",
    "Sums",
    "Superseded",
    "Task",
    "TooLargeForDriver",
    "Transaction",
    "Witness",
    "is_default",
    "own",
]
