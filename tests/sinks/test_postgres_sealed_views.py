"""Views that show no epoch before all sinks of the pipeline hold it: one statement over several sees one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.several import Crash, Pipeline, crash, rows
from tests.sinks.postgres_writer import run

from onceonly import OnceOnlyError, faults
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.reading import read_point
from onceonly.runtime import ledger_sync
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres


class Views(Pipeline):
    """Tables of Postgres with views, and a memory sink that commits after them."""

    def __init__(self, root: Path, dsn: str, *tables: str, **options: Any) -> None:
        super().__init__(root, ("z",))
        self.dsn, self.tables, self.made = dsn, tables, list[PostgresSink]()
        self.options = {"sealed_view": True, **options}
        # Patience differs, so that the tables do not share a transaction.
        self.apart = {name: {"tuning": PostgresTuning(commit_timeout=60.0 + at)} for at, name in enumerate(tables)}

    def sinks(self) -> list[Sink]:  # type: ignore[override]
        made = [PostgresSink(self.dsn, name, **self.options, **self.apart[name]) for name in self.tables]
        self.made += made
        return [*made, *super().sinks()]

    def seen(self, *names: str) -> list[int]:
        """Rows in views, counted in one statement."""
        counted = ", ".join(f"(SELECT count(*) FROM {name}_sealed)" for name in names or self.tables)
        return [int(count) for count in run(self.dsn, f"SELECT {counted}")[0]]

    def dies_after(self, commits: int, *numbers: int) -> None:
        driver = self.driver()
        driver.writes(*numbers[:-1])
        faults.arm(Point.COMMIT_AFTER, crash, commits)
        with pytest.raises(Crash):
            driver.writes(numbers[-1])
        faults.disarm()
        for sink in driver.sinks:
            sink.close()


@pytest.fixture
def pipelines(dsn: str, tmp_path: Path) -> Iterator[Any]:
    made: list[Views] = []

    def make(*tables: str, **options: Any) -> Views:
        made.append(Views(tmp_path / f"p{len(made)}", dsn, *tables, **options))
        return made[-1]

    yield make
    for one in made:
        one.ledger.close()
        for sink in one.made:
            sink.close()  # a connection that is left to the garbage collector is a warning wherever that comes


def test_an_epoch_is_shown_once_it_is_recorded(pipelines: Any) -> None:
    pipeline = pipelines("a")
    driver = pipeline.driver()
    for epoch in (1, 2, 3):
        driver.writes(epoch)
        assert pipeline.seen() == [10 * epoch]


def test_an_epoch_that_another_sink_lacks_is_not_shown(pipelines: Any, dsn: str) -> None:
    pipeline = pipelines("a")
    pipeline.dies_after(1, 1, 2)
    assert run(dsn, "SELECT count(*) FROM a") == [(20,)]
    assert pipeline.seen() == [10]
    pipeline.driver().writes(3)
    assert pipeline.seen() == [30]


def test_an_epoch_whose_driver_died_between_record_and_seal_is_shown_with_the_next_one(
    pipelines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipelines("a")
    driver = pipeline.driver()
    driver.writes(1)
    with monkeypatch.context() as dying:
        dying.setattr(ledger_sync, "seal", lambda *_: crash())
        with pytest.raises(Crash):
            driver.writes(2)
    for sink in driver.sinks:
        sink.close()
    assert [epoch.epoch.number for epoch in pipeline.ledger.epochs("orders")] == [1, 2]
    assert read_point("orders", ledger=pipeline.ledger).epoch == 2  # whoever asks the ledger sees it
    assert pipeline.seen() == [10]
    pipeline.driver().writes(3)
    assert pipeline.seen() == [30]


def test_tables_of_one_pipeline_show_one_epoch_wherever_its_driver_died(pipelines: Any, dsn: str) -> None:
    pipeline = pipelines("a", "b")
    for commits, epoch in ((1, 2), (2, 4), (3, 6)):
        pipeline.dies_after(commits, *range(epoch - 1, epoch + 1))
        shown = pipeline.seen()
        assert shown[0] == shown[1] == 10 * (epoch - 1), (commits, shown)
        pipeline.resolve()
        assert pipeline.seen() == [10 * epoch] * 2


def test_tables_that_share_a_transaction_show_their_epoch_with_it(pipelines: Any) -> None:
    pipeline = pipelines("a", "b")
    pipeline.apart, pipeline.stores = {"a": {}, "b": {}}, {}
    faults.arm(Point.RECORD_BEFORE, crash)
    with pytest.raises(Crash):
        pipeline.driver().writes(1)
    assert pipeline.seen() == [10, 10]


def test_a_view_has_the_columns_that_its_table_gets(pipelines: Any, dsn: str) -> None:
    pipeline = pipelines("a", schema="add_columns")
    pipeline.stores = {}
    pipeline.driver().writes(1)
    wider = rows(2).append_column("more", pa.array([7] * 10))
    driver = pipeline.driver()
    driver.writes(2, table=wider)
    assert run(dsn, "SELECT count(more), count(*) FROM a_sealed") == [(10, 20)]


def test_a_table_that_was_there_gets_its_view_with_the_next_opening(pipelines: Any, dsn: str) -> None:
    run(dsn, "CREATE TABLE a (id bigint, text text, _epoch bigint)")
    pipeline = pipelines("a")
    pipeline.driver().writes(1)
    assert pipeline.seen() == [10]


def test_a_table_without_an_epoch_column_has_no_view(pipelines: Any, dsn: str) -> None:
    run(dsn, "CREATE TABLE a (id bigint, text text)")
    with pytest.raises(OnceOnlyError, match="E506"):
        pipelines("a").driver().writes(1)


@pytest.mark.parametrize(
    "options",
    [{"key": "id"}, {"tuning": PostgresTuning(epoch_column=None)}, {"sealed_view": "yes"}],
)
def test_what_a_view_cannot_show_is_refused_when_it_is_said(dsn: str, options: dict[str, Any]) -> None:
    with pytest.raises(OnceOnlyError, match="E110"):
        PostgresSink(dsn, "a", **{"sealed_view": True, **options})


def test_a_name_that_would_be_too_long_is_refused(dsn: str) -> None:
    with pytest.raises(OnceOnlyError, match="longer than a name may be"):
        PostgresSink(dsn, "a" * 60, sealed_view=True)


def test_an_address_says_it(dsn: str) -> None:
    sink = PostgresSink(dsn, "a", key="id", keep=Keep(history=100), sealed_view=True)
    assert PostgresSink.from_address(sink.address).address == sink.address
