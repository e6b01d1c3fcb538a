"""A sink of eight members: it passes the suite, which names what it leaves out; the core runs it as any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.memory_harness import MemoryHarness
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly.errors import ConfigurationError
from onceonly.protocol import Batch, Capabilities, Peek, Position, Prepared, Recorder, Sink, SinkBase
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.conformance import CLAIMS, check
from onceonly_lab.conformance.scenario import is_default
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.sql import SqlSink

EIGHT = {"capabilities", "fence", "install", "position", "prepare", "commit", "look_up", "history"}


class EightMembers(SinkBase):
    """A store in memory, by what must be written and no more."""

    def __init__(self, store: MemoryStore, id: str = "small") -> None:
        super().__init__(id)
        self._store = store
        self._fence: Fence | None = None

    capabilities = Capabilities(True, recountable=False, carries_ledger=False, committer="memory", readers="nothing")

    @property
    def _inner(self) -> MemorySink:
        inner = MemorySink(self.id, self._store)
        inner.open(self.pipeline)
        if self._fence:
            inner._fence = self._fence
        return inner

    def fence(self) -> Fence | None:
        return self._inner.fence()

    def install(self, fence: Fence) -> None:
        self._inner.install(fence)
        self._fence = fence

    def position(self, since: Receipt | None) -> Position:
        return self._inner.position(since)

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        return self._inner.prepare(batch, epoch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        return self._inner.commit(prepared, marker)

    def look_up(self, marker: Marker) -> Receipt | None:
        return self._inner.look_up(marker)

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        return self._inner.history(after)


class EightHarness(MemoryHarness):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.answers = frozenset()

    def connect(self) -> Any:
        return EightMembers(self.store)

    def values(self) -> list[Any]:
        return self.store.table().column("value").to_pylist() if self.store.schema else []


def test_eight_members_are_to_be_written() -> None:
    assert SinkBase.__abstractmethods__ == EIGHT
    assert vars(EightMembers).keys() >= EIGHT


def test_a_sink_of_eight_members_is_a_sink_to_the_core() -> None:
    sink: Sink = EightMembers(MemoryStore())
    assert isinstance(sink, Sink)
    assert (sink.id, sink.address, sink.ledger_url, sink.recount()) == ("small", "unaddressed:small", None, None)


def test_a_sink_of_eight_members_is_certified_and_what_it_leaves_out_is_named() -> None:
    quick = [claim for claim in CLAIMS if claim.name != "every_type_comes_back_or_is_refused"]
    report = check(EightHarness, quick)
    assert report.conforms, str(report)
    left_out = {result.claim.name: result.untested for result in report.untested}
    assert "it has no look()" in str(left_out["a_look_shows_the_newest_marker"])
    assert "the sink has no from_address()" in str(left_out["the_address_finds_the_target_again"])


def test_a_look_that_is_not_written_shows_the_newest_marker_of_the_history() -> None:
    sink = EightMembers(MemoryStore())
    sink.open("orders")
    assert sink.look() == Peek(None, 0)


def test_a_sink_that_no_address_leads_to_says_so() -> None:
    with pytest.raises(ConfigurationError, match="EightMembers is not found by an address") as caught:
        EightMembers.from_address("small:here")
    assert caught.value.code == "E110"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger that knows a sink without an address, whose id reads like another sink's address."""
    monkeypatch.chdir(tmp_path)
    sink = EightMembers(MemoryStore(), "delta:orders")
    with closing(SqlLedger("ledger.db")) as ledger:
        ledger.open()
        ledger.enter(Pipeline("shop", ((sink.id, sink.address),), "", "", 1, 1))
    return "ledger.db"


@pytest.mark.parametrize("verb", [("recover", "resolve", "--yes"), ("audit",)], ids=" ".join)
def test_a_command_takes_the_id_of_a_sink_for_nobodys_address(ledger: str, verb: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*verb, "--ledger", ledger, "--query", "shop"])
    assert result.exit_code == 2
    assert "E110" in result.output, result.output
    assert "implement address and from_address()" in result.stderr
    assert not Path("orders").exists()


def test_what_a_sink_leaves_as_it_is_can_be_told() -> None:
    sink = EightMembers(MemoryStore())
    optional = {"address", "from_address", "look", "recount", "sweep", "open", "close", "ledger_url", "id"}
    assert all(is_default(sink, member) for member in optional)
    assert not any(is_default(sink, member) for member in EIGHT)
    left = {"id", "ledger_url", "open", "sweep"}
    assert {member for member in optional | EIGHT if is_default(MemorySink(), member)} == left
    without_base = type("WithoutBase", (), dict.fromkeys(optional | EIGHT, lambda *_: None))()
    assert not any(is_default(without_base, member) for member in optional | EIGHT)
    assert not is_default(object.__new__(SqlSinkOfNothing), "look")


class SqlSinkOfNothing(SqlSink):
    def connect(self) -> None:
        raise NotImplementedError

    def columns(self, db: object, table: str) -> tuple[str, ...]:
        return ()
