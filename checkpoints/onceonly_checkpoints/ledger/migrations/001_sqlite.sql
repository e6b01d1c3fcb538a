-- The ledger's tables in SQLite. Times are milliseconds since 1970; offsets and positions are canonical JSON text.

CREATE TABLE ledger_version (version INTEGER NOT NULL);

INSERT INTO ledger_version (version) VALUES (1);

CREATE TABLE ledger_pipelines (
    pipeline   TEXT PRIMARY KEY,
    query_id   TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    generation INTEGER NOT NULL,
    opened_ms  INTEGER NOT NULL
);

CREATE TABLE ledger_sinks (
    pipeline TEXT NOT NULL,
    ordinal  INTEGER NOT NULL,
    sink     TEXT NOT NULL,
    address  TEXT NOT NULL,
    PRIMARY KEY (pipeline, ordinal)
);

-- One row per epoch, whoever tried it: an intent is for those who look, and no rule asks for it.
CREATE TABLE ledger_intents (
    pipeline    TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    owner       TEXT NOT NULL,
    slice_start TEXT NOT NULL,
    slice_end   TEXT NOT NULL,
    at_ms       INTEGER NOT NULL,
    refused     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (pipeline, epoch)
);

-- body is the whole epoch as it was hashed into its chain; the other columns repeat what people ask for.
CREATE TABLE ledger_epochs (
    pipeline           TEXT NOT NULL,
    epoch              INTEGER NOT NULL,
    chain              TEXT NOT NULL,
    previous_chain     TEXT NOT NULL,
    slice_start        TEXT NOT NULL,
    slice_end          TEXT NOT NULL,
    row_count          INTEGER NOT NULL,
    digest             TEXT NOT NULL,
    column_fingerprint TEXT NOT NULL,
    generation         INTEGER NOT NULL,
    owner              TEXT NOT NULL,
    query_id           TEXT,
    run_id             TEXT,
    checkpoint         TEXT,
    batch_id           INTEGER,
    batch_timestamp_ms INTEGER,
    watermark_ms       INTEGER,
    manifest           TEXT,
    adoption           TEXT,
    body               TEXT NOT NULL,
    recorded_ms        INTEGER NOT NULL,
    PRIMARY KEY (pipeline, epoch)
);

-- For the epoch of a batch, which is asked for by its query and number.
CREATE INDEX ledger_epochs_by_batch ON ledger_epochs (pipeline, query_id, batch_id, epoch);

CREATE TABLE ledger_receipts (
    pipeline  TEXT NOT NULL,
    epoch     INTEGER NOT NULL,
    ordinal   INTEGER NOT NULL,
    sink      TEXT NOT NULL,
    chain     TEXT NOT NULL,
    identity  TEXT NOT NULL,
    position  TEXT NOT NULL,
    row_count INTEGER NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

CREATE TABLE ledger_files (
    pipeline    TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    ordinal     INTEGER NOT NULL,
    source      TEXT NOT NULL,
    log_offset  INTEGER NOT NULL,
    path        TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

CREATE TABLE ledger_phases (
    pipeline TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    phase    TEXT NOT NULL,
    seconds  REAL NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

-- token: a call that was sent twice, since its connection broke, leaves one event.
CREATE TABLE ledger_events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    token      TEXT NOT NULL UNIQUE,
    pipeline   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    reason     TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL
);

CREATE INDEX ledger_events_by_pipeline ON ledger_events (pipeline, id);

-- Epochs that every sink has committed.

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

-- Read points: the position of each sink when it held one epoch and no later one.
CREATE VIEW read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms, sealed.chain
FROM ledger_receipts AS receipts
JOIN sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

-- Epochs behind the one that a pipeline was rewound to: their numbers come again, with other rows or the same ones.

CREATE TABLE ledger_superseded (
    pipeline TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    chain    TEXT NOT NULL,
    body     TEXT NOT NULL,
    why      TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (pipeline, epoch, chain)
);

-- Epochs that readers are reading: nothing of ours that they need is pruned.

CREATE TABLE ledger_pins (
    pipeline TEXT NOT NULL,
    token    TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    owner    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (pipeline, token)
);

-- The texts behind the plan fingerprints of epochs, once each: they show what changed between two.

CREATE TABLE ledger_plans (
    pipeline    TEXT NOT NULL,
    plan        TEXT NOT NULL,
    body        TEXT NOT NULL,
    first_epoch INTEGER NOT NULL,
    PRIMARY KEY (pipeline, plan)
);
