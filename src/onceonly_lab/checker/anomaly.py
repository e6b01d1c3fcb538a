"""The thirteen anomalies: for each, what must hold. Every anomaly has one rule, and every wrong row one anomaly."""

from __future__ import annotations

from enum import StrEnum


class Anomaly(StrEnum):
    """A way in which a run can break its promise; the name says which, :data:`MUST_HOLD` says the promise."""

    LOSS = "X-LOSS"
    DUP = "X-DUP"
    PHANTOM = "X-PHANTOM"
    TORN = "X-TORN"
    CROSS = "X-CROSS"
    ORDER = "X-ORDER"
    GAP = "X-GAP"
    EARLY = "X-EARLY"
    REGRESS = "X-REGRESS"
    AUDIT = "X-AUDIT"
    ZOMBIE = "X-ZOMBIE"
    STUCK = "X-STUCK"
    NONDET = "X-NONDET"


MUST_HOLD: dict[Anomaly, str] = {
    Anomaly.LOSS: "Every row of the input is in every sink at the end.",
    Anomaly.DUP: "No read of a sink shows a row more often than the input has it.",
    Anomaly.PHANTOM: "Every row that a read shows is a row of the input, in an epoch that brought it and has a marker.",
    Anomaly.TORN: "A read shows all rows of an epoch or none.",
    Anomaly.CROSS: "Sinks that hold an epoch hold the same rows of it.",
    Anomaly.ORDER: "Rows of one key stand in a sink in the order of the input.",
    Anomaly.GAP: "The slices of a sink's epochs meet: each starts where the one before it ended.",
    Anomaly.EARLY: "Nothing of an epoch is visible before its bytes are staged and its commit is sent.",
    Anomaly.REGRESS: "What a reader has seen in a sink it sees there again, unless the sink was restored.",
    Anomaly.AUDIT: "What the ledger records and the engine was told is in every sink, and the reverse.",
    Anomaly.ZOMBIE: "Nothing appears in a sink under a fence that another one has replaced there.",
    Anomaly.STUCK: "Once nothing is broken any more all input is taken, and nothing stays open or behind.",
    Anomaly.NONDET: "A batch that is computed again gives the same rows, where the plan promises it.",
}
