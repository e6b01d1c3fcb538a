"""Write each epoch exactly once to Kafka.

Rows and marker go into one transaction. Every epoch gets a new producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly import faults, protocol
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import Column, checks_arguments, misused
from onceonly.faults import Point
from onceonly.protocol.capabilities import Span
from onceonly.protocol.row_rules import Rule
from onceonly.protocol.sink import check_prepared_by
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.model import SourceIdentity
from onceonly_sinks.kafka import commit, errors, executors, markers, read
from onceonly_sinks.kafka.cluster import Topic
from onceonly_sinks.kafka.columns import Columns, rules_of
from onceonly_sinks.kafka.commit import KafkaPrepared, ProducerSlot
from onceonly_sinks.kafka.errors import Context
from onceonly_sinks.kafka.marker_reader import HiddenTransaction
from onceonly_sinks.kafka.markers import MarkerRecord, MarkerScope, Written
from onceonly_sinks.kafka.options import TUNING, KafkaTuning, Options, address_of, default_id, read_address
from onceonly_sinks.kafka.producer import Destination, flat
from onceonly_sinks.kafka.transactions import lost

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from onceonly.protocol.health import Check, Observed

_CLOSING = 2.0


@checks_arguments
class KafkaSink(
    protocol.SinkBase,
    protocol.ReadsRows,
    protocol.DetectsChanges,
    protocol.HasConstraints,
    protocol.Inspectable,
    protocol.StreamSource,
):
    """Writes each epoch to Kafka in one transaction with its marker. Columns and options are those of Spark's own sink.

    Readers see whole epochs if they read committed records. See :func:`onceonly_sinks.kafka.read_committed`. The marker
    goes to a compacted topic beside the output, which the sink creates. Topics for rows must exist. One producer in the
    driver sends the rows. Epochs that do not fit into the driver use ``exactly_once(storage=Storage(staging=))``.

    Args:
        servers: brokers as ``host:port``, in one text with commas or in a list.
        topic: topic of the rows. ``None``: the column ``topic`` names it, row by row. The first start then does not
            notice rows that others left in such a topic before.
        options: settings of the producer, as Spark takes them: ``{"kafka.compression.type": "zstd"}``. Secrets may come
            from the environment instead: ``ONCEONLY_KAFKA_SASL_PASSWORD``.
        order: column by whose values the records of each key follow each other, or ``source`` for their offsets in the
            topic that is read. By default records of one key in one epoch may swap.
        id: the sink's id, if one pipeline writes to one topic twice. Default: ``kafka:<topic>``.
        tuning: the topic of markers, and the longest waits.

    Raises:
        ConfigurationError: E108 the client is missing. E110 an invalid option, by name.
    """

    elsewhere: ClassVar[str] = 'a setting of the client belongs in options={{"kafka.{setting}": ...}}'
    """What a name that is no argument may be."""

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str | None = None,
        *,
        options: Mapping[str, str] | None = None,
        order: Column | None = None,
        id: str | None = None,
        tuning: KafkaTuning = TUNING,
    ) -> None:
        if find_spec("confluent_kafka") is None:
            raise refuse("E108", what="KafkaSink", package="confluent-kafka", extra="kafka")
        self._options = Options.check(servers, options)
        self._topic = topic
        self._order = order or ""
        super().__init__(id or default_id(topic))
        self.named = id is not None
        self._tuning = tuning
        self._destination: Destination | None = None
        self._slot: ProducerSlot | None = None
        self._filled = ""

    @property
    def address(self) -> str:
        """Brokers, topic, and options that differ from the defaults, without secrets."""
        return address_of(self._options, self._topic, self._id, self._tuning.marker_topic, self._order)

    @property
    def capabilities(self) -> protocol.Capabilities:
        """Rows are only ever added, and can be counted between the offsets of each epoch."""
        return protocol.Capabilities(
            True,
            True,
            carries_ledger=False,
            committer=f"transaction{self._filled}",
            readers=read.READERS,
            records=True,
            order=self._order,
        )

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading, with secrets from the environment.

        Raises:
            ConfigurationError: E108 the client is missing. E110 not an address of a Kafka sink.
        """
        servers, topic, arguments = read_address(address, KafkaSink.__init__)
        return cls(servers, topic, **arguments)

    # ---- opening

    def open(self, pipeline: str) -> None:
        """Connect and check that the topic exists, without creating anything.

        Raises:
            ConfigurationError: E110, an option that the client does not take.
            DestinationError: E501 no answer. E502 login or permission refused. E508 no such topic.
        """
        self.close()
        super().open(pipeline)
        writer = MarkerScope(pipeline, self._id)
        tuning = self._tuning
        marker_topic = tuning.marker_topic or writer.topic
        spoken = self._options.settings.get("security.protocol", "PLAINTEXT")
        context = Context(self._id, self.address, self._options.timeout, protocol=spoken)
        shared = tuning.load != "driver" and self._topic is not None and not self._order
        waits = tuning.answer_timeout, tuning.hidden_timeout
        destination = Destination(self._options, writer, self._topic, marker_topic, *waits, context, shared)
        self._destination, self._slot = destination, ProducerSlot(destination)
        with self._on.refusing():
            destination.transactions.ready()
            destination.look_at([self._topic] if self._topic else [])
            _ = destination.cluster.id

    def row_rules(self, columns: pa.Schema) -> Sequence[Rule]:
        """The topic's rules for rows with these columns. If a column names the topic, rules of any topic.

        Raises:
            DestinationError: E501 no answer. E506, the columns are not those of records.
        """
        present = Columns.check(self._id, columns, self._topic).present
        with self._on.refusing():
            topics = self._own_topic()
            compacted = "key" in present and any(self._on.cluster.keeps_by_key(name) for name in topics)
        partitions = [number for topic in topics.values() for number in topic.partitions]
        return rules_of(present, partitions, compacted=compacted)

    def fence(self) -> Fence | None:
        """The newest claim or marker that readers see now."""
        with self._on.refusing():
            entry = self._visible()
        return None if entry == markers.NOTHING else entry.fence

    def look(self) -> protocol.Peek:
        """The newest epoch that readers see now, without a wait for transactions in flight."""
        with self._on.refusing():
            entry = self._visible()
            rows = not entry.epoch and read.has_rows(self._on, self._own_topic())
            entry = self._visible() if rows else entry  # an epoch may have become visible in between
        marker = entry.written.marker if entry.written else None
        return protocol.Peek(marker, entry.epoch, strangers=rows and not entry.epoch)

    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest if it is strictly greater, or find it installed. Creates the marker topic.

        Raises E514 if a transaction's end stays hidden.
        """
        self._open_slot.install(fence)

    def position(self, since: Receipt | None) -> protocol.Position:
        """The sink's position under our fence.

        Raises E508 if our fence is not installed, E514 if a transaction's end stays hidden.
        """
        fence, destination = self._open_slot.fence, self._on
        self._open_slot.quiet()
        with destination.refusing():
            entry = destination.newest()
            refused = markers.fenced(entry, fence, self._id)
            if refused is not None:
                raise refused
            names = set(entry.written.topics if entry.written else ()) | ({self._topic} if self._topic else set())
            topics = destination.cluster.topics(name for name in names if name)
            rows = read.has_rows(destination, topics)
            identity = destination.identity(topics) if self._topic is None or self._topic in topics else ""
            disturbances = read.disturbances(destination, since or read.newest_receipt(entry))
            marker = entry.written.marker if entry.written else None
            self._open_slot.prewarm(fence)  # only now: its fence would have had these reads wait for it
            return protocol.Position(fence, marker, entry.epoch, identity, rows, disturbances)

    # ---- writing

    def prepare(self, batch: protocol.Batch, epoch: int) -> KafkaPrepared:
        """Stream the rows into an open transaction.

        Raises E501 to E517 if the rows cannot be written (none of them is visible), E401 if another driver's fence is
        installed.
        """
        fence = self._open_slot.fence
        fill = commit.fill_by_tasks if self._by_tasks(batch) else commit.fill
        with self._on.refusing():
            try:
                state = self._open_slot.stand(fence)
            except protocol.Superseded as fenced:
                theirs, ours = fenced.current_fence.generation, fence.generation
                by = fenced.current_fence.who or "a newer driver"
                raise refuse("E401", sink=self._id, theirs=theirs, ours=ours, by=by) from fenced
            prepared = fill(self._on, state, batch, epoch, partial(self._open_slot.stand_anew, fence))
        try:
            faults.fire(Point.PREPARE_SENT)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def _by_tasks(self, batch: protocol.Batch) -> bool:
        """Whether Spark's tasks send the rows. Raises E110 if they must and cannot."""
        load, size = self._tuning.load, batch.estimate.size
        if load == "driver" or (load == "auto" and size is not None and size <= self._tuning.driver_limit):
            return False
        columns = Columns.check(self._id, batch.schema, self._topic)
        with self._on.refusing():
            reason = next(executors.obstacles(self._on, batch, columns, ordered=bool(self._order)), "")
        self._filled = f", filled by {f'the driver: {reason}' if reason else 'the tasks of Spark'}"
        if reason and load == "executors":
            cause, next_ = "load='executors' was asked for", "leave load= out: the driver sends where tasks cannot"
            raise misused(f"{self._id}: tasks cannot send the rows: {reason}.", cause, next_)
        return not reason

    def commit(
        self, prepared: protocol.Prepared | None, marker: Marker, ledger: protocol.Recorder | None = None
    ) -> Receipt:
        """Commit rows and marker in one transaction, if our fence and the previous chain are unchanged.

        Raises E207, E208 or E210 if the epoch does not follow the state of the sink or topic. ``OutcomeUnknown`` is
        also for a lost transaction. After ``DestinationError`` nothing was written.
        """
        ours = check_prepared_by(prepared, KafkaPrepared) or self._marker_alone(marker)
        written = self._put(ours, marker)
        self._send(ours, written)
        self._open_slot.prewarm(marker.fence)
        return written.receipt

    def _put(self, ours: KafkaPrepared, marker: Marker, *, can_retry: bool = True) -> Written:
        """Add the marker to the transaction. Until then it is certain that nothing was committed."""
        transaction = ours.state.transaction
        try:
            with self._on.refusing():
                written = self._judged(ours, marker)
                if ours.lost is None:
                    entry = MarkerRecord(marker.fence, written, claim=False)
                    commit.put(self._on, transaction, entry)
                    return written
        except Exception as error:
            transaction.end()
            if not lost(error.__cause__ or error):
                raise
            if can_retry and not ours.rows:
                # It held nothing but the marker: a producer made ready may have been fenced in vain since.
                with self._on.refusing():
                    ours.state = self._open_slot.stand_anew(marker.fence)
                return self._put(ours, marker, can_retry=False)
            ours.lost = type(error.__cause__ or error).__name__
        transaction.end()
        raise self._after_loss(marker, f"the transaction was lost before its commit ({ours.lost})")

    def _marker_alone(self, marker: Marker) -> KafkaPrepared:
        with self._on.refusing():
            state = self._open_slot.stand(marker.fence)
            now = commit.offsets_now(self._on, state.topics)
        return KafkaPrepared(state, 0, now, now)

    def _judged(self, ours: KafkaPrepared, marker: Marker) -> Written:
        """The marker record, if the epoch follows the state found under the fence."""
        now = self._on.look_at([*ours.state.topics, self._on.marker_topic])
        if ours.rows and ours.lost is None:
            commit.take_in(self._on, ours, now)
        written = commit.written(self._on, ours, marker)
        refused = markers.judge(ours.state.newest_record, marker, written.identity) or self._made_anew(
            ours, marker, now
        )
        if refused is not None:
            raise refused
        if ours.state.transaction.expired:
            raise commit.too_old(self._on, ours.state.transaction, marker.epoch.number)
        return written

    def _made_anew(self, ours: KafkaPrepared, marker: Marker, now: Mapping[str, Topic]) -> OnceOnlyError | None:
        """Refuse a topic that was recreated since the state was read. Rows and marker would be in two topics.

        Some of the rows may be in either one. So the epoch is abandoned, and the next opening judges the rest.
        """
        then = {name: topic.id for name, topic in ours.state.topics.items()}
        then[self._on.marker_topic] = ours.state.mark.topic
        changed = [name for name, id_ in then.items() if now[name].id != id_]
        if not changed:
            return None
        old_topic, is_ = (f"topic {changed[0]} of id {id_}" for id_ in (then[changed[0]], now[changed[0]].id))
        return refuse("E208", sink=self._id, was=old_topic, now=is_, pipeline=marker.pipeline)

    def _send(self, ours: KafkaPrepared, written: Written) -> None:
        """Commit, and wait until readers see it. The brokers' yes means decided, not visible."""
        transaction, marker, marker_partition = ours.state.transaction, written.marker, self._on.tail.marker_partition
        try:
            transaction.commit()
            faults.fire(Point.COMMIT_SENT)
            ends = self._on.cluster.ends([marker_partition, *flat(ours.end)])
            targets = {**flat(ours.end), marker_partition: ends[marker_partition].high}
            ends = self._on.settle(targets, ends)
            self._on.tail.landed(
                ours.state.mark, ends[marker_partition], MarkerRecord(marker.fence, written, claim=False)
            )
        except Exception as error:
            failure = errors.read(error)
            reason = failure.reason if failure else str(error) or type(error).__name__
            raise self._after_loss(marker, reason) from error
        finally:
            transaction.drop()

    def _after_loss(self, marker: Marker, reason: str) -> protocol.Superseded | protocol.OutcomeUnknown:
        """Classify a lost transaction or answer: superseded only if a newer fence can be read, else unknown."""
        try:
            refused = markers.fenced(self._on.tail.visible(), marker.fence, self._id)
        except Exception as error:
            if errors.read(error) is None and not isinstance(error, TimeoutError):
                raise
            refused = None
        return refused if isinstance(refused, protocol.Superseded) else protocol.OutcomeUnknown(self._id, reason)

    def look_up(self, marker: Marker) -> Receipt | None:
        """Find out whether an epoch landed after all. Afterwards it cannot land any more.

        Raises E508 if our fence is not installed, or a topic is gone.
        """
        self._open_slot.forget()
        self._on.forget()
        try:
            state = self._open_slot.stand_anew(marker.fence)
        except (HiddenTransaction, TimeoutError) as error:
            raise protocol.OutcomeUnknown(self._id, str(error)) from error
        except Exception as error:
            failure = errors.read(error)
            if failure is None:
                raise
            raise protocol.OutcomeUnknown(self._id, failure.reason) from error
        self._open_slot.keep(state)
        written = state.newest_record.written
        return written.receipt if written is not None and written.marker == marker else None

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first: the newest 65536 once the marker topic is compacted."""
        with self._on.refusing():
            epochs = read.epochs(self._on, after)
        for written in epochs:
            yield written.marker, written.receipt

    def recount(self) -> Mapping[int, int] | None:
        """Committed records between the offsets of each epoch. ``None`` once retention or compaction removed some."""
        with self._on.refusing():
            return read.recount(self._on)

    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """Committed records of these epochs that retention has left. ``None`` if a topic was recreated."""
        with self._on.refusing():
            selected = read.of(self._on, span)
        return self._each(selected) if selected is not None else None

    def _each(self, rows: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        with self._on.refusing():
            yield from rows

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """Check that the records as of an epoch exist. See ``ReadsRows``.

        Raises ``NotVersioned`` if the topic is compacted, E501 without an answer.
        """
        with self._on.refusing():
            read.check(self._on, at, since)

    @property
    def location_columns(self) -> tuple[str, ...]:
        """Columns with a record's location. The topic is one, unless rows name their own."""
        return read.LOCATION[0 if self._topic else 1 :]

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Committed records as of an epoch, with those of other writers in between. Raises as :meth:`check_at`."""
        with self._on.refusing():
            return read.read(self._on, at, since)

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """The same through Spark's Kafka source. Raises as :meth:`check_at`."""
        with self._on.refusing():
            return read.frame(self._on, spark, at, since)

    def identity_now(self, recorded: str) -> None:
        """None: a look hides confirmed epochs behind an open transaction, so less than a receipt proves nothing."""

    def external_changes(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        """Changes by others to the topics since a receipt: recreated, or cut off."""
        with self._on.refusing():
            entry = self._on.tail.visible() if since is None and self._on.marked() else markers.NOTHING
            return read.disturbances(self._on, since or read.newest_receipt(entry))

    def place(self) -> str:
        """Cluster and topic. Empty if rows name their topics."""
        return f"kafka:{self._on.cluster.id}/{self._topic}" if self._topic else ""

    def keep_off(self, sources: Sequence[SourceIdentity]) -> None:
        """Refuse (E147) a row of this opening that names a topic which one of these sources reads."""
        self._on.read = tuple(sources)

    def source_identity(self) -> str | None:
        """Cluster and topic ids, as Spark's Kafka source is identified. ``None`` while no row has named a topic."""
        with self._on.refusing():
            written = None if self._topic else self._visible().written
            topics = self._on.cluster.topics(written.topics) if written else self._own_topic()
            return self._on.feeds(topics) if topics else None

    def examine(self, observed: Observed) -> Sequence[Check]:
        """Check that topics keep confirmed records, and that transactions may last as long as epochs."""
        from onceonly_sinks.kafka import health

        with self._on.refusing():
            facts = health.read(self._on)
        return list(health.judge(self.address, facts, observed))

    def close(self) -> None:
        """Release connections. May repeat."""
        if self._slot is not None:
            # A fence that comes late would end the transaction of whoever opens next.
            self._slot.quiet(_CLOSING)
            self._slot.forget()
        if self._destination is not None:
            self._destination.close()

    # ---- helpers

    def _visible(self) -> MarkerRecord:
        return self._on.tail.visible() if self._on.marked() else markers.NOTHING

    def _own_topic(self) -> dict[str, Topic]:
        return self._on.cluster.topics([self._topic] if self._topic else [])

    @property
    def _on(self) -> Destination:
        if self._destination is None:
            raise RuntimeError("open the sink first")
        return self._destination

    @property
    def _open_slot(self) -> ProducerSlot:
        if self._slot is None:
            raise RuntimeError("open the sink first")
        return self._slot
