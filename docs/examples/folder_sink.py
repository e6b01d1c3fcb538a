"""A sink of your own for a store without transactions: a folder with one JSON document for each key.

python docs/examples/folder_sink.py
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from onceonly import exactly_once, faults
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.protocol import Batch, Capabilities, OutcomeUnknown, Peek, Position, Prepared, Recorder, SinkBase
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows, check_install
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.conformance import SinkHarness, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Waiting:
    """Prepared rows. No reader sees them."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.rows = table, table.num_rows

    def abandon(self) -> None:
        """Drop the rows."""
        self.table = self.table.schema.empty_table()


class FolderSink(SinkBase):
    """Upserts into a folder: one JSON document for each key. Replacing a document is the only atomic step."""

    def __init__(self, root: str | Path, key: str, id: str | None = None) -> None:
        self.root, self.key = Path(root), key
        super().__init__(id or f"folder:{self.root.name}")
        self._fence: Fence | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the guarantee is derived from."""
        return Capabilities(
            append_only=False,
            recountable=False,
            carries_ledger=False,
            transactional=False,
            committer="one document for each key",
            readers="each document is whole",
        )

    @property
    def address(self) -> str:
        """Where a command finds the folder again."""
        return f"folder:{self.root}#{self.key}#{self.id}"

    @classmethod
    def from_address(cls, address: str) -> FolderSink:
        """Inverse of :attr:`address`."""
        root, key, id_ = address.removeprefix("folder:").split("#")
        return cls(root, key, id_)

    # Opening

    def fence(self) -> Fence | None:
        """The fence that is installed."""
        found = self._get(self._ours / "fence.json")
        return Fence(found["generation"], found["owner"]) if found else None

    def look(self) -> Peek:
        """Peek before the fence: the newest marker, or rows of another writer."""
        strangers = self._strangers()  # before the marker is read: a first epoch may commit between the two
        marker = self._newest()
        return Peek(marker, marker.epoch.number if marker else 0, strangers=marker is None and strangers)

    def install(self, fence: Fence) -> None:
        """Put the fence if it is higher than the one found."""
        if refused := check_install(self.id, self.fence(), fence):
            raise refused
        if not self._get(self.root / "identity.json"):
            self._put(self.root / "identity.json", {"id": uuid.uuid4().hex})
        with self._sending(Point.INSTALL_SENT):
            self._put(self._ours / "fence.json", {"generation": fence.generation, "owner": fence.owner})
        self._fence = fence

    def position(self, since: Receipt | None) -> Position:
        """The newest epoch, read under our fence."""
        assert self._fence is not None, "install() comes first"
        self._under(self._fence)
        marker = self._newest()
        has_rows = self._has_rows() if marker else self._strangers()
        return Position(self._fence, marker, marker.epoch.number if marker else 0, self._identity(), has_rows)

    # Writing

    def prepare(self, batch: Batch, epoch: int) -> Waiting:
        """Keep the rows in memory. Refuse null keys, keys that come twice, and values that are no JSON."""
        table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
        for key, times in Counter(table.column(self.key).to_pylist()).items():
            if key is None:
                raise refuse("E504", sink=self.id, key=self.key, count=times)
            if times > 1:
                raise refuse("E505", sink=self.id, key=self.key, example=key, next="keep the newest row of each key")
        json.dumps(table.to_pylist())  # what cannot be a document is refused before anything is put
        return Waiting(table)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Put the rows, then the marker."""
        self._under(marker.fence)
        if refused := check_follows(marker, NewestEpoch.of(self._newest())):
            raise refused
        if isinstance(prepared, Waiting):
            self._put_rows(prepared.table, marker)
        faults.fire(Point.PREPARE_SENT)  # a driver can die here, between rows and marker
        self._put_marker(marker, prepared.rows if prepared else 0)
        return self._receipt(marker, prepared.rows if prepared else 0)

    def _put_rows(self, table: pa.Table, marker: Marker) -> None:
        self._put(self._ours / "begun.json", {"epoch": marker.epoch.number})  # rows from here on are ours
        for row in table.to_pylist():
            self._put(self.root / "rows" / f"{quote('=' + str(row[self.key]), safe='')}.json", row)

    def _put_marker(self, marker: Marker, rows: int) -> None:
        with self._sending(Point.COMMIT_SENT):
            self._put(self._epoch(marker.epoch.number), {"marker": marker.text, "rows": rows})

    def look_up(self, marker: Marker) -> Receipt | None:
        """Find the epoch after a lost answer."""
        self._under(marker.fence)
        found = self._get(self._epoch(marker.epoch.number))
        # A local file appears at once or never. Over a network a put may land late: raise OutcomeUnknown until then.
        return self._receipt(marker, found["rows"]) if found and found["marker"] == marker.text else None

    # Reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first."""
        for number in self._numbers():
            found = self._get(self._epoch(number)) if number > after else None
            if found:
                marker = Marker.from_json(json.loads(found["marker"]))
                yield marker, self._receipt(marker, found["rows"])

    def close(self) -> None:
        """Forget the fence."""
        self._fence = None

    # Files

    @property
    def _ours(self) -> Path:
        return self.root / "onceonly" / quote(self.pipeline, safe="") / quote(self.id, safe="")

    def _epoch(self, number: int) -> Path:
        return self._ours / "epochs" / f"{number}.json"

    def _get(self, path: Path) -> Any:
        return json.loads(path.read_text()) if path.exists() else None

    def _put(self, path: Path, document: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{uuid.uuid4().hex}")
        fresh.write_text(json.dumps(document))
        fresh.replace(path)

    @contextmanager
    def _sending(self, sent: Point) -> Iterator[None]:
        try:
            yield
            faults.fire(sent)
        except Exception as error:
            raise OutcomeUnknown(self.id, type(error).__name__) from error

    def _under(self, fence: Fence) -> None:
        if refused := check_fence(self.id, self.fence(), fence, lost="the folder was restored or made anew"):
            raise refused

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in (self._ours / "epochs").glob("[0-9]*.json"))

    def _newest(self) -> Marker | None:
        return next((marker for marker, _ in self.history(max(self._numbers(), default=0) - 1)), None)

    def _has_rows(self) -> bool:
        return any(True for _ in (self.root / "rows").glob("%3D*.json"))

    def _strangers(self) -> bool:
        return self._has_rows() and not self._get(self._ours / "begun.json")

    def _identity(self) -> str:
        found = self._get(self.root / "identity.json")
        return found["id"] if found else ""

    def _receipt(self, marker: Marker, rows: int) -> Receipt:
        epoch = marker.epoch
        return Receipt(self.id, epoch.number, epoch.chain, self._identity(), (("epoch", epoch.number),), rows)


class FolderHarness(SinkHarness):
    """A fresh folder for each claim of the conformance suite."""

    moments = 24

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._root = Path(self._folder.name, "orders")

    def connect(self) -> FolderSink:
        """Another handle on the folder."""
        return FolderSink(self._root, "id")

    def rows(self) -> list[dict[str, Any]]:
        """The documents, read without the sink."""
        return [json.loads(path.read_text()) for path in (self._root / "rows").glob("%3D*.json")]

    def replace(self) -> bool:
        """Remove the folder."""
        shutil.rmtree(self._root)
        return True

    def another(self) -> FolderHarness:
        """Another fresh folder."""
        return type(self)()

    def close(self) -> None:
        """Remove what is left."""
        self._folder.cleanup()


def main(spark: SparkSession, work: Path) -> None:
    """Write two files, lose Spark's note of the second batch, which is offered again; then write a third."""
    from local import forget_last_commit, read, receive, run

    inbox, store, checkpoint = work / "in", work / "store", work / "checkpoint"
    receive(inbox, "1", {"id": 1, "item": "pen"}, {"id": 2, "item": "ink"})
    receive(inbox, "2", {"id": 2, "item": "red ink"})
    run(read(spark, inbox), exactly_once(FolderSink(store, "id")), checkpoint)

    forget_last_commit(checkpoint)
    receive(inbox, "3", {"id": 3, "item": "pad"})
    run(read(spark, inbox), exactly_once(FolderSink(store, "id")), checkpoint)

    documents = [json.loads(path.read_text()) for path in (store / "rows").glob("*.json")]
    found = {document["id"]: document["item"] for document in documents}
    assert found == {1: "pen", 2: "red ink", 3: "pad"}


if __name__ == "__main__":
    from local import session, work_folder

    main(session(), work_folder())
    report = check(FolderHarness)
    print(report)
    assert report.certified == "idempotent"
