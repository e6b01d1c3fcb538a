"""The judgement over a kill: input whose every row is known, and what sink, chain, ledger and checkpoint must hold."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from integration.jobs import TABLE, Job, make_sink
from tests.kafka_client import visible

from onceonly.protocol import Sink
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Marker
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

ROWS = 50
"""Rows per file, and so per epoch."""


def rows_of(ids: Iterable[int]) -> pa.Table:
    numbers = list(ids)
    return pa.table({"id": numbers, "word": [f"w{number}" for number in numbers]})


class Inbox:
    """A directory of files; file ``n`` becomes batch ``n``, since the file source goes by modification time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.files = 0

    def fill(self, files: int) -> None:
        """Have at least so many files in all."""
        while self.files < files:
            ids = range(self.files * ROWS, (self.files + 1) * ROWS)
            path = self.folder / f"{self.files:05d}.parquet"
            hidden = path.with_name(f".{path.name}")
            pq.write_table(rows_of(ids), hidden)
            os.utime(hidden, (1_700_000_000 + self.files, 1_700_000_000 + self.files))
            hidden.rename(path)
            self.files += 1


class Scene:
    """One pipeline: input, checkpoint, sink and ledger.

    Args:
        root: directory of its own.
        kind: of the sink, as in ``Job``.
        target: DSN of a database of its own, or path of the table.
        inbox: the input; several scenes may share one.
    """

    def __init__(self, root: Path, kind: str, target: str, inbox: Inbox | None = None) -> None:
        self.root, self.kind, self.target = root, kind, target
        self.inbox = inbox or Inbox(root / "in")
        self.name = f"arrivals-{kind}"
        self.checkpoint = root / f"checkpoint-{kind}"
        self.ledger_place = str(root / f"ledger-{kind}.db") if self.delta else target

    def job(self, **changes: Any) -> Job:
        said = {"ledger": self.ledger_place if self.delta else None, **changes}
        checkpoint = str(said.pop("checkpoint", self.checkpoint))
        return Job(self.name, self.kind, self.target, str(self.inbox.folder), checkpoint, **said)

    # ---- what the world looks like

    @property
    def delta(self) -> bool:
        return self.kind.startswith("delta")

    def rows(self) -> list[tuple[int, str]]:
        """All rows of the target, read without any code of ours."""
        return rows_in(self.kind, self.target)

    def markers(self) -> list[Marker]:
        """Markers in the sink, oldest first."""
        with self._opened() as sink:
            return [marker for marker, _ in sink.history()]

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, as the sink counts them in the target."""
        with self._opened() as sink:
            return sink.recount()

    @contextmanager
    def _opened(self) -> Generator[Sink]:
        sink = make_sink(self.kind, self.target)
        sink.open(self.name)
        try:
            yield sink
        finally:
            sink.close()

    def newest(self) -> int:
        """Number of the newest epoch; 0 for none."""
        markers = self.markers()
        return markers[-1].epoch.number if markers else 0

    def events(self, kind: EventKind, place: str | None = None) -> list[Event]:
        ledger = SqlLedger(place or self.ledger_place)
        try:
            return [event for event in ledger.events(self.name) if event.kind is kind]
        finally:
            ledger.close()

    def recorded(self, place: str | None = None) -> list[int]:
        """Numbers of the epochs in the ledger."""
        ledger = SqlLedger(place or self.ledger_place)
        try:
            return [record.epoch.number for record in ledger.epochs(self.name)]
        finally:
            ledger.close()

    def batches(self, log: str, checkpoint: Path | None = None) -> list[int]:
        """Batch ids in one of the checkpoint's logs."""
        folder = (checkpoint or self.checkpoint) / log
        return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())

    def snapshot(self) -> dict[str, Any]:
        """Everything that a driver could change, but the ledger's list of events."""
        logs = {path.name for path in Path(self.target).glob("_delta_log/*.json")} if self.delta else set()
        found = {"rows": self.rows(), "markers": self.markers(), "versions": sorted(logs), "recorded": self.recorded()}
        return {**found, **{log: self.batches(log) for log in ("offsets", "commits")}}

    # ---- the judgement

    def holds_exactly(self, epochs: int) -> None:
        """Demand that the sink holds the first ``epochs`` files, each row once, under an unbroken chain."""
        found = Counter(self.rows())
        wanted = Counter((number, f"w{number}") for number in range(epochs * ROWS))
        missing, extra = wanted - found, found - wanted
        assert not missing, f"{self.kind}: {missing.total()} rows missing, e.g. {next(iter(missing))}"
        assert not extra, f"{self.kind}: {extra.total()} rows too many, e.g. {next(iter(extra))}"
        written = [marker.epoch for marker in self.markers()]
        assert [epoch.number for epoch in written] == list(range(1, epochs + 1))
        assert chain.first_break(written) is None
        assert [epoch.digest.rows for epoch in written] == [ROWS] * epochs

    def holds_everything(self) -> None:
        """The same for the whole input, with a ledger that knows all of it."""
        self.holds_exactly(self.inbox.files)
        assert self.recorded() == list(range(1, self.inbox.files + 1))
        assert self.recount() == dict.fromkeys(range(1, self.inbox.files + 1), ROWS)
        assert self.leftovers() == []

    def leftovers(self) -> list[str]:
        """Staging that dead drivers left behind."""
        if self.delta:
            return [path.name for path in Path(self.target).glob("_onceonly_staging/*/*")]
        if self.kind == "kafka":
            return []  # an open transaction is the only staging, and the next opening ends it
        return [name for (name,) in _postgres(self.target, "SELECT relname FROM pg_class WHERE relname ~ '^stage_'")]

    def has_one_owner_per_generation(self) -> None:
        owners: dict[int, set[str]] = {}
        for marker in self.markers():
            owners.setdefault(marker.fence.generation, set()).add(marker.fence.owner)
        assert all(len(found) == 1 for found in owners.values()), owners


def rows_in(kind: str, target: str) -> list[tuple[int, str]]:
    """All rows of a target, read without any code of ours."""
    return sorted(_ROWS.get(kind, _delta_rows)(target))


def _kafka_rows(target: str) -> list[tuple[int, str]]:
    servers, _, topic = target.partition(" ")
    values = (json.loads(value) for value in visible(servers, topic))
    return [(value["id"], value["word"]) for value in values]


def _postgres_rows(dsn: str) -> list[tuple[int, str]]:
    known = _postgres(dsn, f"SELECT 1 FROM pg_class WHERE relname = '{TABLE}'")
    return _postgres(dsn, f'SELECT id, word FROM "{TABLE}"') if known else []


def _postgres(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def _delta_rows(path: str) -> list[tuple[int, str]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return []
    table = DeltaTable(path).to_pyarrow_table()
    if not table.num_rows:
        return []  # a fence makes the table before anybody knows its columns
    return list(zip(table["id"].to_pylist(), table["word"].to_pylist(), strict=True))


_ROWS: Mapping[str, Callable[[str], list[tuple[int, str]]]] = {"postgres": _postgres_rows, "kafka": _kafka_rows}
"""How rows are read without any code of ours; tables of Delta otherwise."""
