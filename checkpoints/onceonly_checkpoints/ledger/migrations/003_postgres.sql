-- A read point needs the receipt of every sink of its epoch, and what was refused is remembered with all that it names.

CREATE VIEW onceonly.sealed AS
SELECT epochs.pipeline, epochs.epoch, epochs.chain, epochs.recorded_ms
FROM onceonly.ledger_epochs AS epochs
WHERE NOT EXISTS (
    SELECT 1
    FROM jsonb_array_elements(epochs.body::jsonb -> 'sinks') AS listed (pair)
    WHERE NOT EXISTS (
        SELECT 1
        FROM onceonly.ledger_receipts AS receipts
        WHERE receipts.pipeline = epochs.pipeline
          AND receipts.epoch = epochs.epoch
          AND receipts.sink = listed.pair ->> 0
          AND receipts.chain = epochs.chain
    )
);

-- Made anew: the columns stay, but SQLite replaces no view.
DROP VIEW onceonly.read_point;

CREATE VIEW onceonly.read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms
FROM onceonly.ledger_receipts AS receipts
JOIN onceonly.sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

ALTER TABLE onceonly.ledger_intents ADD COLUMN refused TEXT NOT NULL DEFAULT '';

UPDATE onceonly.ledger_version SET version = 3;
