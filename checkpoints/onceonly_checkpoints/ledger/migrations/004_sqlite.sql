-- Epochs that a pipeline was cut back behind: their numbers come again, with other rows or the same ones.

CREATE TABLE ledger_superseded (
    pipeline TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    chain    TEXT NOT NULL,
    body     TEXT NOT NULL,
    why      TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (pipeline, epoch, chain)
);

UPDATE ledger_version SET version = 4;
