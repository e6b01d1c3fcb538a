"""Windows of recorded epochs, computed again from the source: the same results and state, or the epoch that differs."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from integration.targets import PostgresTarget
from integration.test_panes_audited import BATCHES, EARLY, NOTED, WIDE, shaped
from integration.test_panes_kept import Events, panes
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once, repair
from onceonly.audit.recompute import Answer, Certificate
from onceonly.errors import OnceOnlyError
from onceonly.panes import AtWatermark, Sessions
from onceonly.runtime import operator
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def events(spark: SparkSession, tmp_path: Any) -> Events:
    return Events(spark, tmp_path, "scores")


def again(events: Events, pg: PostgresTarget, said: Any, epochs: range | None = None, **more: Any) -> Certificate:
    given = {"job": lambda _: events.read(), **more}
    return repair.recompute("scores", epochs, panes=said, ledger=pg.dsn, spark=events.spark, **given)


@pytest.mark.parametrize(
    "said",
    [
        {"accumulation": "retracting", "window": Sessions("30 seconds")},
        {"accumulation": "discarding"},
    ],
    ids=["sessions that take back", "what came since"],
)
def test_every_epoch_of_windows_is_computed_again_with_its_results_and_its_state(
    events: Events, pg: PostgresTarget, said: dict[str, Any]
) -> None:
    late = PostgresSink(pg.dsn, table="late")
    made = panes(key=["team", "part", "day"], values=WIDE, trigger=EARLY, late_rows=late, **said)
    events.come(*BATCHES, [("a", 1, 3), ("d", 2, 300)]).run(
        exactly_once(pg.sink(), note_time=NOTED, panes=made, before=shaped)
    )
    found = again(events, pg, made, before=shaped)
    assert [(span.first, span.last, span.answer) for span in found.spans] == [(1, 5, Answer.EQUAL)]
    assert found.spans[0].recorded.rows > 20
    assert again(events, pg, made, range(4, 6), before=shaped).equal


def test_other_code_differs_from_the_epoch_on_in_which_it_counts_otherwise(events: Events, pg: PostgresTarget) -> None:
    made = panes(trigger=EARLY)
    events.come(*BATCHES).run(exactly_once(pg.sink(), note_time=NOTED, panes=made))

    def other(_: SparkSession) -> DataFrame:
        return events.read().where("value <> 7")

    found = again(events, pg, made, job=other)
    assert [(span.first, span.last, span.answer) for span in found.spans] == [
        (1, 2, Answer.EQUAL),
        (3, 3, Answer.DIFFERS),
        (4, 4, Answer.EQUAL),
    ]
    assert [(span.answer, "--panes" in span.why) for span in again(events, pg, None).spans] == [(Answer.CANNOT, True)]
    with pytest.raises(OnceOnlyError, match="was written by other panes") as refused:
        again(events, pg, panes(trigger=AtWatermark()))
    assert refused.value.code == "E110"


def test_windows_that_were_given_up_begin_anew(events: Events, pg: PostgresTarget) -> None:
    made = panes(trigger=EARLY)

    def write() -> Any:
        return exactly_once(pg.sink(), note_time=NOTED, panes=made)

    events.come(*BATCHES[:2]).run(write())
    sinks = write()._arguments.sinks
    with closing(SqlLedger(pg.dsn)) as ledger:
        operator.reset_panes(sinks, ledger, "scores", Adoption(AdoptionKind.RESET_PANES, last=2))
    for sink in sinks:
        sink.close()
    events.come(*BATCHES[2:]).run(write())
    assert again(events, pg, made).equal
    assert again(events, pg, made, range(5, 6)).equal
