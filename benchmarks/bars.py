"""The bars that a release must clear: each job, its peer and its limit."""

from __future__ import annotations

from benchmarks.model import Bar, Rule

NOOP = "noop foreachBatch"
DELTA, SPARK_DELTA = "DeltaSink", "Spark's Delta sink"
DRIVER, EXECUTORS = "PostgresSink via driver", "PostgresSink via executors"
JDBC, JDBC_REWRITE = "Spark JDBC, batchsize 10000", "Spark JDBC, batchsize 10000, reWriteBatchedInserts"
AUTO = "PostgresSink"
COPY = "COPY of CSV by hand in mapInArrow"
WRITE_DELTALAKE = "write_deltalake by hand in foreachBatch"
KAFKA, SPARK_KAFKA = "KafkaSink", "Spark's Kafka sink"
KAFKA_DRIVER = "KafkaSink via driver"
SPARK_KAFKA_TUNED = "Spark's Kafka sink, batch.size 512 KiB, linger.ms 20, buffer.memory 64 MiB"
TOGETHER = "DeltaSink, PostgresSink and KafkaSink"
THREE_WRITERS = "Spark's Delta, JDBC and Kafka writers, tuned"
THREE_THREADS = "Spark's Delta, JDBC and Kafka writers, tuned, in threads"
RECOVERY = "SIGKILL between two of three commits, to the next epoch in all three sinks"
RESOLVE = "of which: bringing the interrupted epoch to every sink"
STAGED = "DeltaSink from its stage"
TWICE = "two DeltaSinks from one stage"
LEDGER = "ledger (SQLite)"
TENDED = "DeltaSink, files compacted, log cleaned up"
UNTENDED = "DeltaSink, every file and log entry kept"
POINTS_POSTGRES = "fault points, PostgresSink"
POINTS_DELTA = "fault points, DeltaSink"

_POSTGRES, _DELTA = (JDBC, JDBC_REWRITE, COPY), (SPARK_DELTA, WRITE_DELTALAKE)
_KAFKA, _THREE = (SPARK_KAFKA, SPARK_KAFKA_TUNED), (THREE_WRITERS, THREE_THREADS)

STREAMS = (
    Bar("delta-large", "Delta append, 1M rows in 10 epochs", DELTA, _DELTA, Rule.RATE, 1.0, "large"),
    Bar("postgres-large-driver", "Postgres append, 1M rows in 10 epochs", DRIVER, _POSTGRES, Rule.RATE, 0.9, "large"),
    Bar("postgres-large-executors", "the same by executors", EXECUTORS, _POSTGRES, Rule.RATE, 0.9, "large"),
    Bar("delta-small", "Delta append, epochs of 100 rows", DELTA, _DELTA, Rule.TIME, 1.0, "small"),
    Bar("postgres-small", "Postgres append, epochs of 100 rows", DRIVER, _POSTGRES, Rule.TIME, 1.0, "small"),
    Bar("fixed-postgres", "fixed cost of an epoch of 100 rows", DRIVER, (NOOP,), Rule.ADDED_MS, 20.0, "small"),
    Bar("fixed-delta", "fixed cost of an epoch of 100 rows", DELTA, (NOOP,), Rule.ADDED_MS, 30.0, "small"),
    Bar("kafka-large", "Kafka, 1M of 200 B, 10 epochs of 2 tasks", KAFKA, _KAFKA, Rule.RATE, 0.95, "messages"),
    Bar("kafka-default", "the same by the driver alone", KAFKA_DRIVER, (SPARK_KAFKA,), Rule.RATE, 1.1, "messages"),
    Bar("fixed-kafka", "fixed cost of an epoch of 100 rows", KAFKA, (NOOP,), Rule.ADDED_MS, 50.0, "few messages"),
    Bar("several", "three sinks, 1M rows in 10 epochs", TOGETHER, _THREE, Rule.TIME, 0.65, "wide"),
    Bar("staging", "Delta from staged files, 1M rows in 10 epochs", STAGED, (DELTA,), Rule.TIME, 1.15, "large"),
    Bar("staging-two", "the same into two tables", TWICE, (DELTA,), Rule.TIME, 1.15, "large"),
)
"""Measured on running queries, interleaved in one JVM."""

MEMORY = (
    Bar("memory-postgres", "driver memory, one epoch of 1M rows", AUTO, (NOOP,), Rule.ADDED_MB, 150.0),
    Bar("memory-postgres-driver", "the same, all through the driver", DRIVER, (NOOP,), Rule.ADDED_MB, 150.0),
    Bar("memory-delta", "driver memory, one epoch of 1M rows", DELTA, (NOOP,), Rule.ADDED_MB, 150.0),
)
"""Measured in a fresh process each."""

RECOVERIES = (
    Bar("recovery", RECOVERY, TOGETHER, (), Rule.SECONDS, 12.0),
    Bar("recovery-resolve", RESOLVE, TOGETHER, (), Rule.SECONDS, 1.5),
)
"""Measured on drivers that are killed; each starts a Spark of its own."""

LONG = (
    Bar("long-postgres", "epoch 10,000 against epoch 100", AUTO, (AUTO,), Rule.GROWTH, 1.1),
    Bar("long-ledger", "epoch 10,000 against epoch 100", LEDGER, (LEDGER,), Rule.GROWTH, 1.1),
    Bar("long-delta-tended", "epoch 10,000 against epoch 100", TENDED, (TENDED,), Rule.GROWTH, 2.0),
    Bar("long-delta-untended", "epoch 10,000 against epoch 100", UNTENDED, (UNTENDED,), Rule.GROWTH, 2.0),
)
"""Measured without Spark; only when asked for."""

POINTS = (
    Bar("points-postgres", "fault points that are not armed", POINTS_POSTGRES, (), Rule.SHARE, 0.1),
    Bar("points-delta", "fault points that are not armed", POINTS_DELTA, (), Rule.SHARE, 0.1),
)
"""Measured without Spark; takes seconds."""
