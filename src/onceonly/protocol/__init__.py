"""Export the contract between the runner and a sink.

:mod:`~onceonly.protocol.sink` has the calls in order. What a sink may also do is a base class of
:mod:`~onceonly.protocol.capabilities`, which has the types of its members, too. The input of a sink is in
:mod:`~onceonly.protocol.batch`, its answers are in :mod:`~onceonly.protocol.values`.
"""

from typing import TYPE_CHECKING

from onceonly.protocol.batch import Attempt, Batch, Estimate, Task
from onceonly.protocol.capabilities import (
    DetectsChanges,
    HasConstraints,
    HostsStores,
    Inspectable,
    JoinsTransaction,
    ReadsRows,
    ReplacesRows,
    StreamSource,
)
from onceonly.protocol.sink import Conflict, OutcomeUnknown, Prepared, Recorder, Sink, SinkBase, Superseded
from onceonly.protocol.values import Capabilities, Peek, Position
from onceonly_checkpoints.epoch import Fence, Marker, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

__all__ = [
    "Attempt",
    "Batch",
    "Capabilities",
    "Conflict",
    "DetectsChanges",
    "Estimate",
    "Fence",
    "HasConstraints",
    "HostsStores",
    "Inspectable",
    "JoinsTransaction",
    "Marker",
    "OutcomeUnknown",
    "Peek",
    "Position",
    "Prepared",
    "ReadsRows",
    "Receipt",
    "Recorder",
    "ReplacesRows",
    "Sink",
    "SinkBase",
    "StreamSource",
    "Superseded",
    "Task",
]
