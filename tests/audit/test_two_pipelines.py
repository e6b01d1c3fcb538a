"""Two pipelines on one target: each sink knows them by their markers, and an audit says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.audit.histories import epoch_after
from tests.audit.stores import Stored, table

from onceonly.audit import audit
from onceonly.protocol import Peek, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.registry import sink_from_address
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture(params=["memory", "delta", pytest.param("postgres", marks=pytest.mark.postgres)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stored]:
    """The pipeline ``orders`` with four epochs."""
    if request.param == "postgres":
        sink: Sink = PostgresSink(
            request.getfixturevalue("server").database(f"two_{next(_numbers)}"),
            "both",
            tuning=PostgresTuning(epoch_column=None),
        )
    else:
        sink = DeltaSink(tmp_path / "both") if request.param == "delta" else MemorySink()
    stored = Stored(sink, tmp_path).write_all()
    yield stored
    sink.close()
    stored.ledger.close()


def second_pipeline_writes(address: str) -> None:
    sink = sink_from_address(address)
    fence = Fence(1, "b" * 32)
    sink.open("second")
    sink.install(fence)
    sink.position(None)
    epoch = epoch_after(None, 3, sinks=(sink.id,))
    sink.commit(sink.prepare(ArrowBatch(table(9, 3)), 1), Marker("second", sink.id, fence, epoch))
    sink.close()


def test_a_newcomer_learns_whose_rows_there_are(stored: Stored) -> None:
    newcomer = sink_from_address(stored.sink.address)
    newcomer.open("second")
    assert newcomer.look() == Peek(None, 0, strangers=True)
    assert list(newcomer.pipelines()) == ["orders"]  # type: ignore[attr-defined]
    newcomer.close()


def test_a_driver_that_only_opened_is_no_writer(stored: Stored) -> None:
    stranger = sink_from_address(stored.sink.address)
    stranger.open("second")
    stranger.install(Fence(1, "b" * 32))
    assert list(stranger.pipelines()) == ["orders"]  # type: ignore[attr-defined]
    stranger.close()


def test_an_audit_names_the_other_pipeline_that_writes_there(stored: Stored) -> None:
    reader = sink_from_address(stored.sink.address)
    before = audit(stored.ledger, "orders", [reader])
    assert not [one for one in before.findings if one.code == "A128"]
    second_pipeline_writes(stored.sink.address)
    (finding,) = [one for one in audit(stored.ledger, "orders", [reader]).findings if one.code == "A128"]
    reader.close()
    assert 'pipeline "second" writes to this very target' in finding.evidence
