"""Old epoch rows go where nothing needs them, and leave what an audit goes on from."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.audit.histories import PIPELINE, epoch_after
from tests.audit.stores import Stored
from tests.sinks.postgres_writer import run

from onceonly.audit import Verdict, audit
from onceonly.errors import ConfigurationError
from onceonly.protocol.registry import sink_from_address
from onceonly.protocol.values import PrunedEpochs
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt, ResumePoint
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.proxy import Act
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning, prune
from onceonly_sinks.postgres.errors import Context
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.prune import last_to_go
from onceonly_sinks.postgres.server import Server
from onceonly_sinks.postgres.transaction import Transactions

# ---- what may go


@pytest.mark.parametrize(
    ("newest", "kept", "recorded", "last"),
    [
        (5000, 1000, 5000, 4000),
        (5000, 1000, 3000, 2900),  # this opening was long ago: what is above the ledger's head stays
        (5000, 1000, 0, 0),  # no ledger
        (900, 1000, 900, 0),
        (5000, 200, 5000, 4800),
        (5000, 200, 150, 50),
    ],
)
def test_what_an_opening_needs_stays(newest: int, kept: int, recorded: int, last: int) -> None:
    assert last_to_go(newest, kept, recorded) == last


@pytest.mark.parametrize("markers", [199, 300.5, "300", True], ids=repr)
def test_fewer_markers_than_a_restart_compares_are_refused_and_what_is_no_number(markers: Any) -> None:
    with pytest.raises(ConfigurationError, match="E110"):
        PostgresSink("dbname=none", "orders", keep=Keep(markers=markers))


@pytest.mark.parametrize("said", ["many", "300.5", "", "199"])
def test_an_address_that_says_no_number_of_markers_is_refused(said: str) -> None:
    address = PostgresSink("dbname=none", "orders", keep=Keep(markers=5000)).address
    assert "markers=5000" in address
    with pytest.raises(ConfigurationError, match="E110"):
        PostgresSink.from_address(address.replace("markers=5000", f"markers={said}"))


@pytest.mark.parametrize("markers", [200, 5000, "all"])
def test_an_address_says_how_many_are_kept(markers: Any) -> None:
    address = PostgresSink("dbname=none", "orders", keep=Keep(markers=markers)).address
    assert "markers=" in address
    assert PostgresSink.from_address(address).address == address


# ---- a real table
#
# Markers go once 256 epochs stand, so each of these writes as many. That they go, and what an audit makes of rows
# below, is tried each time; what else may be in the way is slow.


@pytest.fixture
def stored(dsn: str, tmp_path: Path) -> Iterator[Stored]:
    stored = Stored(PostgresSink(dsn, "orders", keep=Keep(markers=200)), tmp_path)
    yield stored
    stored.sink.close()
    stored.ledger.close()


def marks(stored: Stored, upto: int) -> None:
    """Epochs without rows of their own, quicker than real ones: markers are what this is about."""
    while len(stored.line) < upto:
        epoch = epoch_after(stored.line[-1] if stored.line else None, 0, sinks=(stored.sink.id,))
        receipt = stored.sink.commit(None, Marker(PIPELINE, stored.sink.id, stored.fence, epoch))
        stored.ledger.record(EpochRecord(PIPELINE, stored.fence, epoch, (receipt,)))
        stored.line.append(epoch)


def reopens(stored: Stored, generation: int) -> Receipt:
    """Another opening, which knows the ledger's head."""
    stored.open(generation)
    head = stored.ledger.head(PIPELINE)
    assert head is not None
    stored.sink.position(head.receipts[0])
    return head.receipts[0]


def kept(dsn: str) -> tuple[int, int]:
    [(oldest, count)] = run(dsn, "SELECT min(epoch), count(*) FROM onceonly.epoch")
    return oldest, count


def judged(stored: Stored) -> tuple[Verdict, list[tuple[str, int | None]]]:
    reader = sink_from_address(stored.sink.address)
    try:
        result = audit(stored.ledger, PIPELINE, [reader])
    finally:
        reader.close()
    return result.verdict, [(finding.code, finding.epoch) for finding in result.findings]


@pytest.mark.postgres
def test_old_markers_go_under_one_opening_and_the_audit_goes_on_from_the_milestone(stored: Stored, dsn: str) -> None:
    stored.write(5)
    stored.write(3)
    marks(stored, 600)  # a first run: its opening found an empty ledger
    assert kept(dsn) == (313, 288)  # 512 - 200
    assert stored.sink.pruned_epochs() == PrunedEpochs(312, stored.line[311].chain, 8)
    stored.write(4)
    marks(stored, 768)
    assert kept(dsn) == (569, 200)
    assert stored.sink.pruned_epochs() == PrunedEpochs(568, stored.line[567].chain, 8)
    assert judged(stored) == (Verdict.EXACTLY_ONCE, [("A166", 568)])
    reopens(stored, 2)
    marks(stored, 1024)
    assert kept(dsn) == (825, 200)
    assert stored.sink.pruned_epochs() == PrunedEpochs(824, stored.line[823].chain, 12)
    assert judged(stored) == (Verdict.EXACTLY_ONCE, [("A166", 824)])
    position = stored.sink.position(None)
    assert (position.epoch, position.marker is not None) == (1024, True)


@pytest.mark.slow
@pytest.mark.postgres
def test_the_first_epoch_of_an_opening_takes_nothing_away_that_the_ledger_was_not_found_to_hold(
    stored: Stored, dsn: str
) -> None:
    marks(stored, 255)
    stored.open(2)  # the ledger is gone: only the markers can fill a new one
    marks(stored, 256)
    assert kept(dsn) == (1, 256)
    marks(stored, 512)
    assert kept(dsn) == (313, 200)


@pytest.mark.postgres
def test_rows_below_the_milestone_are_compared_in_sum(stored: Stored, dsn: str) -> None:
    stored.write(5)
    stored.write(3)
    marks(stored, 256)
    run(dsn, "DELETE FROM orders WHERE id = 1000")
    assert judged(stored) == (Verdict.GAPS, [("A121", 56)])
    run(dsn, "INSERT INTO orders SELECT * FROM orders WHERE _epoch = 2")
    assert judged(stored) == (Verdict.DUPLICATES, [("A122", 56)])


def adopts(stored: Stored, kind: str, *sinks: str) -> None:
    """An epoch by which an operator accepts something, in these sinks."""
    epoch = epoch_after(stored.line[-1], 0, adoption=f"{kind}: known", sinks=(stored.sink.id,))
    assert epoch.adoption is not None
    decided = replace(epoch.adoption, sinks=sinks)
    epoch = chain.linked(replace(epoch, adoption=decided, carried=ResumePoint(accepted=(decided,))))
    receipt = stored.sink.commit(None, Marker(PIPELINE, stored.sink.id, stored.fence, epoch))
    stored.ledger.record(EpochRecord(PIPELINE, stored.fence, epoch, (receipt,)))
    stored.line.append(epoch)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("kind", "sink"),
    [
        ("continue", ""),
        ("accept-state-loss", ""),
        ("drop-sink", "kafka:b"),
        ("accept-loss", "kafka:b"),
    ],
    ids=str,
)
def test_an_adoption_that_takes_no_rows_of_this_sink_leaves_them_compared(
    stored: Stored, dsn: str, kind: str, sink: str
) -> None:
    stored.write(5)
    adopts(stored, kind, *([sink] if sink else []))
    marks(stored, 256)
    assert ("A166", 56) in judged(stored)[1]
    run(dsn, "DELETE FROM orders WHERE id = 1000")
    verdict, found = judged(stored)
    assert verdict == Verdict.GAPS
    assert ("A121", 56) in found


@pytest.mark.slow
@pytest.mark.postgres
def test_rows_that_went_before_they_were_accepted_are_let_be_and_those_after_are_compared(
    stored: Stored, dsn: str
) -> None:
    stored.write(5)
    run(dsn, "DELETE FROM orders WHERE id = 1000")
    adopts(stored, "accept-loss", stored.sink.id)
    stored.write(3)
    marks(stored, 256)
    assert stored.sink.pruned_epochs() == PrunedEpochs(56, stored.line[55].chain, 3, accepted=2)
    assert judged(stored) == (Verdict.EXACTLY_ONCE, [("A166", 56)])
    marks(stored, 512)
    assert stored.sink.pruned_epochs() == PrunedEpochs(312, stored.line[311].chain, 3, accepted=2)
    run(dsn, "DELETE FROM orders WHERE id = 3000")
    assert judged(stored) == (Verdict.GAPS, [("A121", 312)])


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("text", ["{}", '{"pipeline"'], ids=["another form", "not JSON"])
def test_a_marker_that_cannot_be_read_takes_no_commit_with_it(
    stored: Stored, dsn: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    marks(stored, 255)
    run(dsn, "UPDATE onceonly.epoch SET marker = %s WHERE epoch = 7", text)
    marks(stored, 256)
    assert kept(dsn) == (1, 256)
    assert "old epoch rows are left to the next time" in caplog.text


@pytest.mark.slow
@pytest.mark.postgres
def test_a_server_that_hangs_while_rows_go_is_not_waited_for_without_end(
    postgres: EmbeddedPostgres, dsn: str, tmp_path: Path
) -> None:
    with PostgresProxy(("127.0.0.1", postgres.port)) as wire, ThreadPoolExecutor(1) as pool:
        address = dsn.replace(f":{postgres.port}/", f":{wire.port}/")
        stored = Stored(
            PostgresSink(address, "orders", keep=Keep(markers=200), tuning=PostgresTuning(commit_timeout=1)), tmp_path
        )
        marks(stored, 255)
        rule = wire.rule(Act.HOLD_REQUEST, "DELETE FROM onceonly.epoch", times=1)
        try:
            pool.submit(marks, stored, 256).result(20)
        finally:
            rule.release()
        marks(stored, 512)
        assert kept(dsn) == (313, 200)
        stored.sink.close()
        stored.ledger.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_milestone_that_the_next_epoch_does_not_follow_is_found(stored: Stored, dsn: str) -> None:
    stored.write(5)
    marks(stored, 256)
    run(dsn, "UPDATE onceonly.pruned SET chain = 'another'")
    assert ("A112", 57) in judged(stored)[1]


@pytest.mark.postgres
def test_a_fenced_driver_takes_no_marker_away(stored: Stored, dsn: str) -> None:
    marks(stored, 250)
    before = stored.fence
    stored.open(2)
    transactions = Transactions(Server.parse(dsn), Context(stored.sink.id, stored.sink.address), 60, 30)
    writer = PostgresHeadScope(PIPELINE, stored.sink.id)
    prune.prune(transactions, writer, before, 100)
    assert kept(dsn) == (1, 250)
    prune.prune(transactions, writer, stored.fence, 100)
    assert kept(dsn) == (101, 150)
    transactions.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_sink_that_keeps_all_keeps_all(dsn: str, tmp_path: Path) -> None:
    stored = Stored(PostgresSink(dsn, "orders", keep=Keep(markers="all")), tmp_path)
    marks(stored, 256)
    assert kept(dsn) == (1, 256)
    stored.sink.close()
    stored.ledger.close()
