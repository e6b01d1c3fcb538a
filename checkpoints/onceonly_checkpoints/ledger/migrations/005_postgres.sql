-- Epochs that readers are reading: nothing of ours that they need is pruned. A read point names the chain of its epoch.

CREATE TABLE onceonly.ledger_pins (
    pipeline TEXT NOT NULL,
    token    TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    owner    TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (pipeline, token)
);

DROP VIEW onceonly.read_point;

CREATE VIEW onceonly.read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms, sealed.chain
FROM onceonly.ledger_receipts AS receipts
JOIN onceonly.sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

UPDATE onceonly.ledger_version SET version = 5;
