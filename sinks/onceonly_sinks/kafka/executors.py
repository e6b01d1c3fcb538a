"""Send an epoch's rows by Spark's tasks, in the driver's transaction.

The driver fences, brings the marker and ends the transaction, as for rows that it sends itself. A task makes a producer
of Kafka's Java client that resumes the driver's transaction: the class ``Fill`` in ``fill.jar``, which
``sinks/java`` holds in source. The idea is that of Flink's connector, which resumes a transaction to commit it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol import Batch
from onceonly.spark.engine import is_remote
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.kafka.options import SECRETS, environment_name
from onceonly_sinks.kafka.producer import Destination, SinkState
from onceonly_sinks.kafka.transactions import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAR = Path(__file__).with_name("fill.jar")
_FILL, _PLACE = "onceonly.kafka.Fill", "onceonly.kafka.Place"

_USUAL: Mapping[str, str] = {
    "batch.size": "524288",
    "buffer.memory": "67108864",
    "linger.ms": "20",
    "retry.backoff.ms": "10",
    "max.request.size": "1048576",
}
"""What a user may overrule. The client's own defaults send small batches. A producer that resumes a transaction does
not know its coordinator, which the client takes for a failure: it would sleep 100 ms before its first batch."""

_LOADED: dict[str, _Jar] = {}
"""By Spark's id of the application."""


@dataclass(frozen=True, slots=True)
class _Jar:
    """Classes of the jar in the JVM of a session. ``lacks``: why they cannot be used there, or empty."""

    jvm: Any
    loader: Any
    lacks: str


def obstacles(destination: Destination, batch: Batch, columns: Columns, *, ordered: bool) -> Iterator[str]:
    """Yield each reason why tasks cannot send these rows. The last ones are asked of Spark and of the brokers."""
    session: SparkSession | None = getattr(batch, "session", None)
    if columns.topic is None:
        yield "rows name their topics"
    yield from (f"rows have a column {name}" for name in sorted(columns.present - {"key", "topic"}))
    if ordered:
        yield "order= is given"
    if any(os.environ.get(environment_name(name)) for name in SECRETS):
        yield "a secret comes from the environment"
    if session is None or is_remote(session):
        yield "the session is not a classic one"
        return
    if session.conf.get("spark.speculation", "false") == "true":
        yield "spark.speculation is true"
    jar = _loaded(session)
    if jar.lacks:
        yield jar.lacks
        return
    names = jar.jvm.org.apache.kafka.clients.producer.ProducerConfig.configNames()
    unknown = (name for name in destination.options.user_options if not names.contains(name))
    yield from (f"kafka.{name} is no setting of Kafka's Java client" for name in unknown)
    if not destination.verified:
        yield "the brokers do not say that they verify transactions, as Kafka does since 3.6"
    if not destination.largest_batch:
        yield "the brokers do not say how large a batch may be"


def send(destination: Destination, state: SinkState, batch: Batch, epoch: int) -> int:
    """Send all rows to the sink's topic, and return how many they were. The batch's digest is of the same action.

    Raises KafkaException with the code that a task met, and E533 if Spark ran one again.
    """
    from confluent_kafka import KafkaError, KafkaException

    name = destination.topic or ""
    rows, partitions = batch.dataframe, len(state.topics[name].partitions)
    session = rows.sparkSession
    jar = _loaded(session)
    context: Any = session.sparkContext
    together = bool(context._jsc.sc().isLocal())
    producer_id, producer_epoch = state.transaction.ids()
    java_settings = jar.jvm.java.util.HashMap()
    for setting, value in _settings(destination, state.transaction).items():
        java_settings.put(setting, value)
    fill = _made(session, _FILL, java_settings, name, producer_id, producer_epoch, together, partitions)
    encoder = jar.jvm.org.apache.spark.sql.Encoders.STRING()
    shaped: Any = _shaped(rows) if together else _placed(session, _shaped(rows), partitions)
    # As a text: the end of an iterator is an exception of the JVM, which costs PySpark more than the whole list.
    listed = str(shaped._jdf.mapPartitions(fill, encoder).collectAsList().toString())
    answers = [answer.partition(" ") for answer in listed.strip("[]").split(", ") if answer]
    for said, _, code in answers:
        if said == "KAFKA":
            raise KafkaException(KafkaError(int(code)))
    if any(said == "AGAIN" for said, _, _ in answers):
        raise refuse("E533", sink=destination.context.sink, epoch=epoch)
    return sum(int(count) for _, _, count in answers)


def _settings(destination: Destination, transaction: Transaction) -> dict[str, str]:
    """Of a task's producer, as Java's client spells them."""
    options = destination.options
    wanted = {**_USUAL, **options.user_options}
    return {
        **wanted,
        # A batch that its topic refuses is split into batches of this size: for ever, where that is more (KAFKA-8350).
        # So is one of a row that is too large, where a small one found room beside it.
        **{size: str(min(int(wanted[size]), destination.largest_batch)) for size in ("batch.size", "max.request.size")},
        "acks": "all",
        "bootstrap.servers": options.servers,
        "enable.idempotence": "true",
        "max.block.ms": str(int(transaction.patience * 1000)),
        "transaction.timeout.ms": str(int(options.timeout * 1000)),
        "transactional.id": transaction.id,
    }


def _shaped(rows: DataFrame) -> DataFrame:
    """Value, and key if there is one, as bytes."""
    names = ["value", *(["key"] if "key" in rows.columns else [])]
    return rows.selectExpr(*(f"CAST({name} AS BINARY) AS {name}" for name in names))


def _placed(session: SparkSession, rows: DataFrame, partitions: int) -> DataFrame:
    """The same, each partition of the topic in one task: two producers must not write one."""
    if "key" not in rows.columns:
        return rows.coalesce(partitions)
    from pyspark.sql import functions as f

    tasks = min(partitions, int(session.conf.get("spark.sql.shuffle.partitions") or partitions))
    place = _made(session, _PLACE, partitions)
    key: Any = f.col("key")
    value: Any = f.col("value")
    placed = rows.withColumn("partition", type(key)(place.of(key._jc, value._jc)))
    slots = f.array(*(f.lit(slot) for slot in place.slots(tasks)))
    return placed.repartition(tasks, f.element_at(slots, f.col("partition") + 1))


def _made(session: SparkSession, name: str, *given: Any) -> Any:
    """An object of a class of the jar: as an attribute of the gateway, only classes of the class path are found."""
    jar = _loaded(session)
    [constructor] = jar.loader.loadClass(name).getConstructors()
    context: Any = session.sparkContext
    arguments = context._gateway.new_array(jar.jvm.java.lang.Object, len(given))
    for at, value in enumerate(given):
        arguments[at] = value
    return constructor.newInstance(arguments)


def _loaded(session: SparkSession) -> _Jar:
    context = session.sparkContext
    if (found := _LOADED.get(context.applicationId)) is None:
        found = _LOADED[context.applicationId] = _load(context)
    return found


def _load(context: Any) -> _Jar:
    jvm = context._jvm
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    urls = context._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(JAR)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, parent)
    try:
        lacks = str(loader.loadClass(_FILL).getMethod("lacks", None).invoke(None, None))
    except Exception as error:  # noqa: BLE001  whatever py4j wraps, the driver can send
        missing = "org/apache/kafka" in str(error)
        what = "Spark has no kafka-clients on its class path" if missing else f"{JAR.name} cannot be loaded: {error}"
        return _Jar(jvm, loader, what.splitlines()[0])
    if not lacks:
        context._jsc.addJar(str(JAR))
    return _Jar(jvm, loader, lacks)
