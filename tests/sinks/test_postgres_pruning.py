"""Old epoch rows go where nothing needs them, and leave what an audit goes on from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.audit.histories import PIPELINE, epoch_after
from tests.audit.stores import Stored
from tests.sinks.postgres_writer import run

from onceonly.audit import Verdict, audit
from onceonly.errors import ConfigurationError
from onceonly.protocol import Milestone
from onceonly.registry import sink_from_address
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt
from onceonly_sinks.postgres import PostgresSink, pruning
from onceonly_sinks.postgres.classify import Context
from onceonly_sinks.postgres.head import Writer
from onceonly_sinks.postgres.pruning import last_to_go
from onceonly_sinks.postgres.server import Server
from onceonly_sinks.postgres.transactions import Transactions

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


def test_fewer_markers_than_a_restart_compares_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="E110"):
        PostgresSink("dbname=none", "orders", markers=199)


@pytest.mark.parametrize("markers", [200, 5000, None])
def test_an_address_says_how_many_are_kept(markers: int | None) -> None:
    address = PostgresSink("dbname=none", "orders", markers=markers).address
    assert "markers=" in address
    assert PostgresSink.from_address(address).address == address


# ---- a real table


@pytest.fixture
def stored(dsn: str, tmp_path: Path) -> Iterator[Stored]:
    stored = Stored(PostgresSink(dsn, "orders", markers=200), tmp_path)
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
def test_old_markers_go_and_the_audit_goes_on_from_the_milestone(stored: Stored, dsn: str) -> None:
    stored.write(5)
    stored.write(3)
    marks(stored, 600)
    assert kept(dsn) == (1, 600)  # this opening found an empty ledger: nothing goes
    reopens(stored, 2)
    stored.write(4)
    marks(stored, 768)
    assert kept(dsn) == (501, 268)  # 600 - 100: what the ledger held when this opening began
    assert stored.sink.milestone() == Milestone(500, stored.line[499].chain, 8)
    assert judged(stored) == (Verdict.EXACTLY_ONCE, [("A166", 500)])
    reopens(stored, 3)
    marks(stored, 1024)
    assert kept(dsn) == (669, 356)
    assert stored.sink.milestone() == Milestone(668, stored.line[667].chain, 12)
    assert judged(stored) == (Verdict.EXACTLY_ONCE, [("A166", 668)])
    position = stored.sink.position(None)
    assert (position.epoch, position.marker is not None) == (1024, True)


@pytest.mark.postgres
def test_rows_below_the_milestone_are_compared_in_sum(stored: Stored, dsn: str) -> None:
    stored.write(5)
    stored.write(3)
    marks(stored, 400)
    reopens(stored, 2)
    marks(stored, 512)
    run(dsn, "DELETE FROM orders WHERE id = 1000")
    assert judged(stored) == (Verdict.GAPS, [("A121", 300)])
    run(dsn, "INSERT INTO orders SELECT * FROM orders WHERE _epoch = 2")
    assert judged(stored) == (Verdict.DUPLICATES, [("A122", 300)])


@pytest.mark.postgres
def test_a_milestone_that_the_next_epoch_does_not_follow_is_found(stored: Stored, dsn: str) -> None:
    stored.write(5)
    marks(stored, 400)
    reopens(stored, 2)
    marks(stored, 512)
    run(dsn, "UPDATE onceonly.pruned SET chain = 'another'")
    assert ("A112", 301) in judged(stored)[1]


@pytest.mark.postgres
def test_a_fenced_driver_takes_no_marker_away(stored: Stored, dsn: str) -> None:
    marks(stored, 300)
    before = stored.fence
    stored.open(2)
    transactions = Transactions(Server.parse(dsn), Context(stored.sink.id, stored.sink.address), 60, 30)
    writer = Writer(PIPELINE, stored.sink.id)
    pruning.prune(transactions, writer, before, 100)
    assert kept(dsn) == (1, 300)
    pruning.prune(transactions, writer, stored.fence, 100)
    assert kept(dsn) == (101, 200)
    transactions.close()


@pytest.mark.postgres
def test_a_sink_that_keeps_all_keeps_all(dsn: str, tmp_path: Path) -> None:
    stored = Stored(PostgresSink(dsn, "orders", markers=None), tmp_path)
    marks(stored, 400)
    reopens(stored, 2)
    marks(stored, 512)
    assert kept(dsn) == (1, 512)
    stored.sink.close()
    stored.ledger.close()
