-- A read point needs the receipt of every sink of its epoch, and what was refused is remembered with all that it names.

CREATE VIEW sealed AS
SELECT epochs.pipeline, epochs.epoch, epochs.chain, epochs.recorded_ms
FROM ledger_epochs AS epochs
WHERE NOT EXISTS (
    SELECT 1
    FROM json_each(epochs.body, '$.sinks') AS listed
    WHERE NOT EXISTS (
        SELECT 1
        FROM ledger_receipts AS receipts
        WHERE receipts.pipeline = epochs.pipeline
          AND receipts.epoch = epochs.epoch
          AND receipts.sink = json_extract(listed.value, '$[0]')
          AND receipts.chain = epochs.chain
    )
);

-- Made anew: the columns stay, but SQLite replaces no view.
DROP VIEW read_point;

CREATE VIEW read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms
FROM ledger_receipts AS receipts
JOIN sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

ALTER TABLE ledger_intents ADD COLUMN refused TEXT NOT NULL DEFAULT '';

UPDATE ledger_version SET version = 3;
