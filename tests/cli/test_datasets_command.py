"""``datasets``: the targets of a ledger with their writers, columns, epochs and event time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import epoch_after, record_of
from tests.cli.conftest import Run, assert_answerless, document

import onceonly
from onceonly import datasets, reading
from onceonly.reading import Dataset
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Columns, Epoch, OutputColumns
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger

ID: Columns = (("id", "bigint", False),)
WIDE: Columns = (("id", "bigint", False), ("note", "string", True))
ORDERS, LARGE, COPY = "delta:/shop/orders", "delta:/shop/large", "postgresql://db/shop#orders"
NOON_MS = 1_767_268_800_000


def history(name: str, *sinks: tuple[str, str], epochs: list[Epoch]) -> tuple[Pipeline, list[Epoch]]:
    return Pipeline(name, sinks, "q-1", "/ck", 1, 1), epochs


def web() -> tuple[Pipeline, list[Epoch]]:
    """Two sinks of all rows, one that came with epoch 2 for an output; an operator's decision at the end."""
    outputs = (OutputDigest("large", ("delta:large",), "fingerprint", Digest(3), 4),)
    time = EpochTime("ms", NOON_MS, NOON_MS, NOON_MS)
    first = replace(epoch_after(None, 7), columns=(OutputColumns("", ID),))
    second = replace(
        epoch_after(first, 7, outputs=outputs, time=time),
        columns=(OutputColumns("", WIDE, ID), OutputColumns("large", ID)),
    )
    decided = replace(epoch_after(second, 0, adoption="accept-loss"), columns_since=2, time=time)
    listed = (("delta:orders", 1), ("postgres:orders", 1), ("delta:large", 2))
    sinks = (("delta:orders", f"{ORDERS}?schema=add_columns"), ("postgres:orders", COPY), ("delta:large", LARGE))
    return history("web", *sinks, epochs=[replace(epoch, sinks=listed) for epoch in (first, second, decided)])


def app() -> tuple[Pipeline, list[Epoch]]:
    """Of an older version: columns are in none of its epochs."""
    epochs = [replace(epoch_after(None, 5), sinks=(("delta:orders", 1),))]
    return history("app", ("delta:orders", ORDERS), epochs=epochs)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    made = SqlLedger(str(tmp_path / "ledger.db"))
    made.open()
    waiting = history("waiting", ("kafka:clicks", "kafka:clicks@h:9092"), epochs=[])
    for entry, epochs in (web(), app(), waiting):
        made.enter(entry)
        for epoch in epochs:
            sinks = [sink for sink, first in epoch.sinks if first <= epoch.number]
            made.record(replace(record_of(epoch, sinks), pipeline=entry.name))
    yield made
    made.close()


def of(target: str, ledger: SqlLedger) -> Dataset:
    [found] = [dataset for dataset in datasets(ledger) if dataset.target == target]
    return found


def test_each_target_is_listed_once_by_its_address_without_options(ledger: SqlLedger) -> None:
    assert [dataset.target for dataset in datasets(ledger)] == sorted((ORDERS, LARGE, COPY, "kafka:clicks@h:9092"))


def test_writers_of_one_target_share_it_each_with_its_own_facts(ledger: SqlLedger) -> None:
    app_writer, web_writer = of(ORDERS, ledger).writers
    assert (app_writer.pipeline, web_writer.pipeline) == ("app", "web")
    assert (app_writer.columns, app_writer.complete_until, app_writer.newest) == ((), None, 1)
    assert (web_writer.columns, web_writer.complete_until) == (WIDE, "2026-01-01T12:00:00Z")
    assert (web_writer.first, web_writer.newest, web_writer.same_rows) == (1, 3, (COPY,))


def test_an_output_has_its_own_columns_also_behind_a_decision_without_rows(ledger: SqlLedger) -> None:
    [writer] = of(LARGE, ledger).writers
    assert (writer.output, writer.columns, writer.same_rows) == ("large", ID, ())
    assert (writer.first, writer.newest) == (2, 3)


def test_a_query_without_an_epoch_is_a_writer_without_epochs(ledger: SqlLedger) -> None:
    [writer] = of("kafka:clicks@h:9092", ledger).writers
    assert (writer.first, writer.newest, writer.columns, writer.complete_until) == (0, 0, (), None)


def test_columns_that_were_pruned_are_unknown(ledger: SqlLedger) -> None:
    ledger.prune("web", 3)
    assert {writer.columns for dataset in datasets(ledger) for writer in dataset.writers} == {()}


def test_it_is_the_same_in_the_package_and_where_reading_is() -> None:
    assert onceonly.datasets is reading.datasets


# ---- the command


def test_the_list_has_a_line_for_each_writer(run: Run, ledger: SqlLedger) -> None:
    lines = run("datasets", ONCEONLY_LEDGER=ledger.address, COLUMNS="200").stdout.splitlines()
    assert len(lines) == 1 + 5
    assert [line.split()[:4] for line in lines if line.startswith(ORDERS)] == [
        [ORDERS, "app", "delta:orders", "1..1"],
        [ORDERS, "web", "delta:orders", "1..3"],
    ]
    assert [line.endswith("id, note") for line in lines if line.startswith(ORDERS)] == [False, True]


@pytest.mark.parametrize("target", [LARGE, "delta:large"])
def test_one_target_is_shown_with_its_columns(run: Run, ledger: SqlLedger, target: str) -> None:
    result = run("datasets", target, ONCEONLY_LEDGER=ledger.address)
    assert [line.split() for line in result.stdout.splitlines() if line][:6] == [
        ["target", LARGE],
        ["pipeline", "web"],
        ["sink", "delta:large"],
        ["output", "large"],
        ["epochs", "2..3"],
        ["complete", "until", "2026-01-01T12:00:00Z"],
    ]
    assert ["id", "bigint", "no"] in [line.split() for line in result.stdout.splitlines()]


def test_the_json_has_the_facts_of_the_function(run: Run, ledger: SqlLedger) -> None:
    listed = document(run("datasets", "-o", "json", ONCEONLY_LEDGER=ledger.address))["datasets"]
    assert listed == json.loads(json.dumps([dataset.to_json() for dataset in datasets(ledger)]))
    shown = document(run("datasets", ORDERS, "-o", "json", ONCEONLY_LEDGER=ledger.address))["datasets"]
    assert shown == [dataset for dataset in listed if dataset["target"] == ORDERS]


def test_a_target_that_is_none_is_refused_with_those_that_are(run: Run, ledger: SqlLedger) -> None:
    assert_answerless(
        run("datasets", "delta:/shop/ordres", ONCEONLY_LEDGER=ledger.address),
        ORDERS,
        "Next: onceonly datasets --ledger",
    )
