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
