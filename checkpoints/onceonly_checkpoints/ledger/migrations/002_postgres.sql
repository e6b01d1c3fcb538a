-- Read points in SQL: where each sink stood when it held one epoch and no later one.

CREATE VIEW onceonly.read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       epochs.recorded_ms
FROM onceonly.ledger_receipts AS receipts
JOIN onceonly.ledger_epochs AS epochs ON epochs.pipeline = receipts.pipeline AND epochs.epoch = receipts.epoch;

UPDATE onceonly.ledger_version SET version = 2;
