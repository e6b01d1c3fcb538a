-- The ledger's tables in Postgres, in schema onceonly. Times are milliseconds since 1970; offsets and
-- positions are canonical JSON text: jsonb would reorder it.

CREATE TABLE onceonly.ledger_version (version INTEGER NOT NULL);

INSERT INTO onceonly.ledger_version (version) VALUES (1);

CREATE TABLE onceonly.ledger_pipelines (
    pipeline   TEXT PRIMARY KEY,
    query_id   TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    generation BIGINT NOT NULL,
    opened_ms  BIGINT NOT NULL
);

CREATE TABLE onceonly.ledger_sinks (
    pipeline TEXT NOT NULL,
    ordinal  INTEGER NOT NULL,
    sink     TEXT NOT NULL,
    address  TEXT NOT NULL,
    PRIMARY KEY (pipeline, ordinal)
);

-- One row per epoch, whoever tried it: an intent is for those who look, and no rule asks for it.
CREATE TABLE onceonly.ledger_intents (
    pipeline    TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    generation  BIGINT NOT NULL,
    owner       TEXT NOT NULL,
    slice_start TEXT NOT NULL,
    slice_end   TEXT NOT NULL,
    at_ms       BIGINT NOT NULL,
    refused     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (pipeline, epoch)
);

-- body is the whole epoch as it was hashed into its chain; the other columns repeat what people ask for.
CREATE TABLE onceonly.ledger_epochs (
    pipeline           TEXT NOT NULL,
    epoch              BIGINT NOT NULL,
    chain              TEXT NOT NULL,
    previous_chain     TEXT NOT NULL,
    slice_start        TEXT NOT NULL,
    slice_end          TEXT NOT NULL,
    row_count          BIGINT NOT NULL,
    digest             TEXT NOT NULL,
    column_fingerprint TEXT NOT NULL,
    generation         BIGINT NOT NULL,
    owner              TEXT NOT NULL,
    query_id           TEXT,
    run_id             TEXT,
    checkpoint         TEXT,
    batch_id           BIGINT,
    batch_timestamp_ms BIGINT,
    watermark_ms       BIGINT,
    manifest           TEXT,
    adoption           TEXT,
    body               TEXT NOT NULL,
    recorded_ms        BIGINT NOT NULL,
    PRIMARY KEY (pipeline, epoch)
);

-- For the epoch of a batch, which is asked for by its query and number.
CREATE INDEX ledger_epochs_by_batch ON onceonly.ledger_epochs (pipeline, query_id, batch_id, epoch);

CREATE TABLE onceonly.ledger_receipts (
    pipeline  TEXT NOT NULL,
    epoch     BIGINT NOT NULL,
    ordinal   INTEGER NOT NULL,
    sink      TEXT NOT NULL,
    chain     TEXT NOT NULL,
    identity  TEXT NOT NULL,
    position  TEXT NOT NULL,
    row_count BIGINT NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

CREATE TABLE onceonly.ledger_files (
    pipeline    TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    ordinal     INTEGER NOT NULL,
    source      TEXT NOT NULL,
    log_offset  BIGINT NOT NULL,
    path        TEXT NOT NULL,
    modified_ms BIGINT NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

CREATE TABLE onceonly.ledger_phases (
    pipeline TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    ordinal  INTEGER NOT NULL,
    phase    TEXT NOT NULL,
    seconds  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (pipeline, epoch, ordinal)
);

-- token: a call that was sent twice, since its connection broke, leaves one event.
CREATE TABLE onceonly.ledger_events (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token      TEXT NOT NULL UNIQUE,
    pipeline   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    reason     TEXT NOT NULL,
    epoch      BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    at_ms      BIGINT NOT NULL
);

CREATE INDEX ledger_events_by_pipeline ON onceonly.ledger_events (pipeline, id);

-- Epochs that every sink has committed.

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

-- Read points: the position of each sink when it held one epoch and no later one.
CREATE VIEW onceonly.read_point AS
SELECT receipts.pipeline, receipts.epoch, receipts.sink, receipts.position, receipts.identity, receipts.row_count,
       sealed.recorded_ms, sealed.chain
FROM onceonly.ledger_receipts AS receipts
JOIN onceonly.sealed AS sealed ON sealed.pipeline = receipts.pipeline AND sealed.epoch = receipts.epoch;

-- Epochs behind the one that a pipeline was rewound to: their numbers come again, with other rows or the same ones.

CREATE TABLE onceonly.ledger_superseded (
    pipeline TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    chain    TEXT NOT NULL,
    body     TEXT NOT NULL,
    why      TEXT NOT NULL,
    at_ms    BIGINT NOT NULL,
    PRIMARY KEY (pipeline, epoch, chain)
);

-- Epochs that readers are reading: nothing of ours that they need is pruned.

CREATE TABLE onceonly.ledger_pins (
    pipeline TEXT NOT NULL,
    token    TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    owner    TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (pipeline, token)
);

-- The texts behind the plan fingerprints of epochs, once each: they show what changed between two.

CREATE TABLE onceonly.ledger_plans (
    pipeline    TEXT NOT NULL,
    plan        TEXT NOT NULL,
    body        TEXT NOT NULL,
    first_epoch BIGINT NOT NULL,
    PRIMARY KEY (pipeline, plan)
);
