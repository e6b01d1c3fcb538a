-- What the fingerprints of plans that epochs note were made of, once each: to show what changed between two.

CREATE TABLE onceonly.ledger_plans (
    pipeline    TEXT NOT NULL,
    plan        TEXT NOT NULL,
    body        TEXT NOT NULL,
    first_epoch BIGINT NOT NULL,
    PRIMARY KEY (pipeline, plan)
);

UPDATE onceonly.ledger_version SET version = 6;
