"""Columns are in the epoch that changes them, with an event of both sides, whatever is killed on the way."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.several import CRASHES, Crash, Driver, Pipeline, crash, offered, rows
from tests.core.stories import epochs, marked

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.admission import columns_changed, columns_to_record
from onceonly.machine.state import Job
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Columns, Epoch, Marker, OutputColumns
from onceonly_checkpoints.ledger import EventKind

ID: Columns = (("id", "bigint", False),)
WIDE: Columns = (("id", "bigint", True), ("note", "string", True))
CHANGE = "id: bigint not null -> bigint null; note: none -> string null"


def whole(columns: Columns, before: Columns = ()) -> tuple[OutputColumns, ...]:
    return (OutputColumns("", columns, before),)


def writes(driver: Driver, number: int, columns: Columns) -> Epoch:
    offer = replace(offered(number), columns=whole(columns) if columns else ())
    if driver.state is None:
        ids = tuple(sink.id for sink in driver.sinks)
        state = coordinator.start(Job("orders", ids, secrets.token_hex(4), offer, stages=len(ids) == 1))
    else:
        state = coordinator.resume(driver.state, offer)
    driver.state = driver.runner.run(state, ArrowBatch(rows(number)))
    return driver.state.current


def recorded(pipeline: Pipeline) -> list[tuple[tuple[OutputColumns, ...], int]]:
    records = pipeline.ledger.epochs("orders")
    return [(record.epoch.columns, record.epoch.columns_since) for record in records]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path)
    yield made
    made.ledger.close()


# ---- the form


def test_an_epoch_with_columns_comes_back_from_its_text_and_its_chain_covers_them():
    (plain,) = epochs(10)
    columns = (*whole(WIDE, ID), OutputColumns("large", ID))
    epoch = chain.linked(replace(plain, columns=columns))
    marker = marked(epoch)
    assert Marker.from_json(marker.to_json()) == marker
    assert epoch.chain != plain.chain
    assert not {"columns", "columns_since"} & {*plain.to_json()}
    assert epoch.to_json()["columns"][1] == {"output": "large", "columns": [["id", "bigint", False]]}


def test_a_change_shows_each_column_with_both_sides():
    texts = {
        CHANGE: OutputColumns("", WIDE, ID),
        "note: string null -> none; id: bigint null -> bigint not null": OutputColumns("", ID, (WIDE[1], WIDE[0])),
        "order: id, note -> note, id": OutputColumns("", (WIDE[1], WIDE[0]), WIDE),
        "": OutputColumns("", WIDE),
    }
    assert [part.text for part in texts.values()] == [*texts]


# ---- the rule


def test_columns_are_recorded_only_if_they_differ_from_the_newest_known_ones():
    large, late = OutputColumns("large", ID), OutputColumns("late", WIDE)
    assert columns_to_record((), whole(ID)) == whole(ID)
    assert columns_to_record(whole(WIDE, ID), whole(WIDE)) == ()
    assert columns_to_record((*whole(ID), large), (large,)) == ()
    assert columns_to_record((), ()) == ()
    assert set(columns_to_record((*whole(ID), late), (*whole(WIDE), large))) == {*whole(WIDE, ID), large, late}


def test_only_columns_with_a_known_former_side_make_an_event():
    (epoch,) = epochs(10)
    assert columns_changed(replace(epoch, columns=whole(ID))) == ()
    parts = (*whole(ID), OutputColumns("large", WIDE, ID))
    (happening,) = columns_changed(replace(epoch, columns=parts))
    assert (happening.kind, happening.reason) == (EventKind.SCHEMA_CHANGED, f"output large: {CHANGE}")


# ---- epoch after epoch


def test_the_first_epoch_has_its_columns_and_the_next_ones_point_to_them(three: Pipeline):
    driver = three.driver()
    for number in (1, 2, 3):
        writes(driver, number, ID)
    writes(three.driver(), 4, ID)
    assert recorded(three) == [(whole(ID), 0), ((), 1), ((), 1), ((), 1)]
    assert three.events(EventKind.SCHEMA_CHANGED) == []


def test_epochs_of_an_older_version_make_no_event_and_the_next_one_records_the_columns(three: Pipeline):
    writes(three.driver(), 1, ())
    driver = three.driver()
    writes(driver, 2, WIDE)
    writes(driver, 3, ID)
    assert recorded(three) == [((), 0), (whole(WIDE), 0), (whole(ID, WIDE), 0)]
    assert len(three.events(EventKind.SCHEMA_CHANGED)) == 1


def test_columns_that_the_ledger_forgot_are_recorded_again(three: Pipeline):
    driver = three.driver()
    for number in (1, 2):
        writes(driver, number, ID)
    three.ledger.prune("orders", 2)
    writes(three.driver(), 3, ID)
    assert recorded(three) == [((), 1), (whole(ID), 0)]


@pytest.mark.parametrize(("point", "hit"), CRASHES)
def test_a_change_is_noted_once_whatever_is_killed_and_every_sink_keeps_the_marker_it_has(
    point: Point, hit: int, three: Pipeline
):
    first = three.driver()
    writes(first, 1, ID)
    faults.arm(point, crash, hit)
    with pytest.raises(Crash):
        writes(first, 2, WIDE)
    faults.disarm()
    before = {
        marker.epoch.chain for sink in three.sinks_open() for marker, _ in sink.history() if marker.epoch.number > 1
    }
    second = three.driver()
    assert writes(second, 2, WIDE).columns == whole(WIDE, ID)
    assert writes(second, 3, WIDE).columns_epoch == 2
    three.holds(3)
    assert three.events(EventKind.SCHEMA_CHANGED) == [CHANGE]
    assert recorded(three) == [(whole(ID), 0), (whole(WIDE, ID), 0), ((), 2)]
    assert before <= {record.epoch.chain for record in three.ledger.epochs("orders")}
