"""The Postgres sink: rows, marker and, if it lies there too, the ledger's record in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import (
    Batch,
    Capabilities,
    Disturbance,
    Estimate,
    OutcomeUnknown,
    Position,
    Prepared,
    Superseded,
)
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.ledger import Ledger, LedgerUnavailable
from onceonly_sinks.postgres import options, server
from onceonly_sinks.postgres.options import Options
