"""Time that goes on from an upstream: what was complete at a slice's end, never more; no wait for whoever is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.reading.writing import Writer

from onceonly import OnceOnlyError
from onceonly.event_time import FromUpstream, TimedEpoch
from onceonly.event_time.upstream import Upstream
from onceonly.machine.source_order import kafka_identity, position_in, read_of
from onceonly.machine.writer_progress import WriterSet
from onceonly.protocol.row_times import NoEventTime
from onceonly_checkpoints.epoch_time import END
from onceonly_checkpoints.model import Slice, SourceIdentity, SourceOffsets
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.kafka.markers import as_java_spells
from onceonly_sinks.memory import MemorySink


def in_log(table: str, version: int, index: int = -1, *, snapshot: bool = False) -> str:
    """An offset as Spark's Delta source logs it."""
    place = {"reservoirId": table, "reservoirVersion": version, "index": index, "isStartingVersion": snapshot}
    return json.dumps({"sourceVersion": 1, **place})


class Reading:
    """A query that reads a table."""

    def __init__(self, path: Path, name: str | None = None, beside: tuple[SourceIdentity, ...] = ()) -> None:
        self.path, self.beside = path, beside
        self.upstream = Upstream("second", DeltaSink(path), name, "integer")

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def sources(self, table: str | None = None) -> tuple[SourceIdentity, ...]:
        return (SourceIdentity("0", table or str(DeltaTable(self.path).metadata().id)), *self.beside)

    def end(self, version: int, index: int = -1, *, snapshot: bool = False) -> SourceOffsets:
        table = self.sources()[0].identity
        return SourceOffsets.of({"0": in_log(str(table), version, index, snapshot=snapshot)})

    def at(self, version: int, index: int = -1, *, snapshot: bool = False) -> int | NoEventTime | None:
        end = self.end(version, index, snapshot=snapshot)
        return self.upstream(TimedEpoch(1, Slice(SourceOffsets(()), end), 0, None, None, 0, None, self.sources()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def test_an_offset_has_passed_the_versions_before_it_and_in_the_first_snapshot_none() -> None:
    assert position_in(in_log("t", 6)) == 5
    assert position_in(in_log("t", 6, 3)) == 5
    assert position_in(in_log("t", 6, 3, snapshot=True)) is None
    assert position_in(in_log("t", 0)) is None
    assert position_in('{"clicks":{"0":5}}') == '{"clicks":{"0":5}}'
    assert position_in(None) is None


def test_a_source_reads_a_target_of_its_own_identity_or_one_of_its_topics() -> None:
    here, there = kafka_identity("c", {"a": "1"}), kafka_identity("c", {"a": "1", "b": "2"})
    other, nameless = kafka_identity("d", {"a": "1"}), SourceIdentity("1", None)
    end = SourceOffsets.of({"0": '{"a":{"0":5},"b":{"0":7}}', "1": "12"})
    assert read_of(here, (SourceIdentity("0", there), nameless), end) == ('{"a":{"0":5},"b":{"0":7}}',)
    assert read_of(here, (SourceIdentity("0", other), nameless), end) == ()
    assert read_of(here, (SourceIdentity("0", None), nameless), end) is None, "its brokers did not answer"
    assert read_of("table", (SourceIdentity("0", None), nameless), end) == ()


def test_what_was_complete_where_a_slice_ends_is_said_however_far_the_table_is_since(path: Path) -> None:
    web, reading = Writer("web", DeltaSink(path)), Reading(path)
    ends = {}
    for noted in (None, 3, 3, 6):
        web.write(noted or 1, noted=noted)
        ends[reading.version] = noted
    assert [reading.at(version + 1) for version in ends] == [None, 3, 3, 6]
    assert [reading.at(version) for version in ends] == [None, None, 3, 3], "inside of the version"
    assert reading.at(max(ends), 0, snapshot=True) is None


def test_writers_that_do_not_know_each_other_count_by_the_least_unless_one_is_named(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(5, noted=5)
    reading = Reading(path)
    Writer("app", DeltaSink(path)).write(9, noted=9)
    assert reading.at(reading.version + 1) == 5
    assert Reading(path, "app").at(reading.version + 1) == 9


def test_writers_of_one_dataset_are_complete_through_what_it_concluded(path: Path) -> None:
    both = WriterSet(("web", "app"))
    web, app = Writer("web", DeltaSink(path), both), Writer("app", DeltaSink(path), both)
    web.write(100, noted=100)
    reading = Reading(path)
    assert reading.at(reading.version + 1) is None
    app.write(70, noted=70, sees=[web])
    assert [reading.at(reading.version + more) for more in (0, 1)] == [None, 70]


def test_an_upstream_that_was_retired_does_not_retire_who_reads_it(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(5, noted=END)
    assert Reading(path).at(DeltaTable(path).version() + 1) == END - 1


def test_a_writer_that_notes_no_time_is_named_and_nothing_is_said(path: Path) -> None:
    Writer("old", DeltaSink(path)).commit((1,), None)
    Writer("web", DeltaSink(path)).write(9, noted=9)
    reading = Reading(path)
    assert reading.at(reading.version + 1) == NoEventTime('pipeline "old" records no time in delta:clicks')
    assert Reading(path, "web").at(reading.version + 1) == 9


def test_an_upstream_that_cannot_be_read_says_nothing_until_it_can(path: Path) -> None:
    Writer("web", DeltaSink(path)).write(5, noted=5)
    reading = Reading(path)
    after, sources, end = reading.version + 1, reading.sources(), reading.end(reading.version + 1)
    path.rename(path.with_name("away"))
    path.write_text("not a table")
    reading.upstream.check(sources, end)
    gone = reading.upstream(TimedEpoch(1, Slice(end, end), 0, None, None, 0, None, sources))
    assert isinstance(gone, NoEventTime)
    assert gone.reason.startswith("delta:clicks could not be read: [ONCE-E508]")
    path.unlink()
    path.with_name("away").rename(path)
    assert reading.at(after) == 5


def test_a_table_that_no_source_reads_is_refused_and_so_is_one_that_counts_otherwise(path: Path) -> None:
    reading = Reading(path)
    reading.upstream.check((SourceIdentity("0", "other"),), SourceOffsets(()))  # there is no table yet
    Writer("web", DeltaSink(path)).write(5, noted=5)
    end = reading.end(reading.version + 1)
    with pytest.raises(OnceOnlyError, match=r'E132.*no source of pipeline "second" reads'):
        reading.upstream.check(reading.sources("other"), end)
    with pytest.raises(OnceOnlyError, match="E134"):
        Upstream("second", DeltaSink(path), None, "ms").check(reading.sources(), end)
    reading.upstream.check(reading.sources(), end)


def test_a_sink_of_which_no_stream_knows_places_or_writers_is_refused_with_the_way_out() -> None:
    with pytest.raises(OnceOnlyError, match="no stream reads what MemorySink writes") as caught:
        FromUpstream(MemorySink())
    assert caught.value.code == "E132"
    with pytest.raises(OnceOnlyError, match="has no pipeline=") as caught:
        FromUpstream(KafkaSink("localhost:9092", "clicks"))
    assert 'FromUpstream(sink, pipeline="clicks")' in caught.value.remedy
    assert FromUpstream(KafkaSink("localhost:9092", "clicks"), pipeline="clicks").pipeline == "clicks"
    with pytest.raises(OnceOnlyError, match="E110"):
        FromUpstream("/tables/clicks")  # type: ignore[arg-type]


def test_a_topic_id_is_compared_as_java_spells_it() -> None:
    assert as_java_spells("Vx3+ab/cQ0a==") == "Vx3-ab_cQ0a"
