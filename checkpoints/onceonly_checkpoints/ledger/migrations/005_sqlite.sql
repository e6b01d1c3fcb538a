-- Epochs that readers are reading: nothing of ours that they need is pruned. A read point names the chain of its epoch.

CREATE TABLE ledger_pins (
    pipeline TEXT NOT NULL,
    token    TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    owner    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (pipeline, token)
);

DROP VIEW read_point;

CREATE VIEW read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms, sealed.chain
FROM ledger_receipts AS receipts
JOIN sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

UPDATE ledger_version SET version = 5;
