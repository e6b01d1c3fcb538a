"""The bars that a release must clear: each job, its peer and its limit."""

from __future__ import annotations

from benchmarks.model import Bar, Rule

NOOP = "noop foreachBatch"
DELTA, SPARK_DELTA = "DeltaSink", "Spark's Delta sink"
DRIVER, EXECUTORS = "PostgresSink via driver", "PostgresSink via executors"
JDBC, JDBC_REWRITE = "Spark JDBC, batchsize 10000", "Spark JDBC, batchsize 10000, reWriteBatchedInserts"
AUTO = "PostgresSink"
LEDGER = "ledger (SQLite)"

_JDBC = (JDBC, JDBC_REWRITE)

STREAMS = (
    Bar("delta-large", "Delta append, 1M rows in 10 epochs", DELTA, (SPARK_DELTA,), Rule.RATE, 2.0, "large"),
    Bar("postgres-large-driver", "Postgres append, 1M rows in 10 epochs", DRIVER, _JDBC, Rule.RATE, 1.8, "large"),
    Bar("postgres-large-executors", "the same by executors", EXECUTORS, _JDBC, Rule.RATE, 1.25, "large"),
    Bar("delta-small", "Delta append, epochs of 100 rows", DELTA, (SPARK_DELTA,), Rule.TIME, 0.35, "small"),
    Bar("postgres-small", "Postgres append, epochs of 100 rows", DRIVER, _JDBC, Rule.TIME, 1.0, "small"),
    Bar("fixed-postgres", "fixed cost of an epoch of 100 rows", DRIVER, (NOOP,), Rule.ADDED_MS, 20.0, "small"),
    Bar("fixed-delta", "fixed cost of an epoch of 100 rows", DELTA, (NOOP,), Rule.ADDED_MS, 30.0, "small"),
)
"""Measured on running queries, interleaved in one JVM."""

MEMORY = (
    Bar("memory-postgres", "driver memory, one epoch of 1M rows", AUTO, (NOOP,), Rule.ADDED_MB, 150.0),
    Bar("memory-postgres-driver", "the same, all through the driver", DRIVER, (NOOP,), Rule.ADDED_MB, 150.0),
    Bar("memory-delta", "driver memory, one epoch of 1M rows", DELTA, (NOOP,), Rule.ADDED_MB, 150.0),
)
"""Measured in a fresh process each."""

LONG = (
    Bar("long-postgres", "epoch 10,000 against epoch 100", AUTO, (AUTO,), Rule.GROWTH, 1.1),
    Bar("long-ledger", "epoch 10,000 against epoch 100", LEDGER, (LEDGER,), Rule.GROWTH, 1.1),
    Bar("long-delta", "epoch 10,000 against epoch 100", DELTA, (DELTA,), Rule.GROWTH, 2.0),
)
"""Measured without Spark; only when asked for."""
