"""One pipeline into Postgres, Kafka and Delta: what it holds together, and the judgement over all three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from integration.jobs import Job
from integration.processes import until
from integration.stage import ROWS, Inbox, Scene


class Several:
    """A pipeline into Postgres, Kafka and Delta, in this order, over one directory of files."""

    def __init__(self, root: Path, database: str, topic: str) -> None:
        self.root = root
        self.inbox = Inbox(root / "in")
        self.postgres = Scene(root, "postgres", database, self.inbox)
        self.kafka = Scene(root, "kafka", topic, self.inbox)
        self.delta = Scene(root, "delta", str(root / "table"), self.inbox)
        for scene in self.scenes:
            scene.name, scene.ledger_place = "arrivals", database
            scene.checkpoint = root / "checkpoint"

    @property
    def scenes(self) -> tuple[Scene, Scene, Scene]:
        return self.postgres, self.kafka, self.delta

    def job(self, **changes: object) -> Job:
        also = (("kafka", self.kafka.target), ("delta", self.delta.target))
        return replace(self.postgres.job(), also=also, **changes)  # type: ignore[arg-type]

    def newest(self) -> list[int]:
        """Newest epoch per sink, once a topic shows the rows that its marker names."""
        counts = [scene.newest() for scene in self.scenes]
        until(lambda: len(self.kafka.rows()) == counts[1] * ROWS, "the topic shows what was committed")
        return counts

    def hold_everything(self) -> None:
        """All rows once in each sink, one chain, and no staged bytes but the newest epoch's."""
        self.newest()
        for scene in self.scenes:
            scene.holds_everything()
        chains = [[marker.epoch.chain for marker in scene.markers()] for scene in self.scenes]
        assert chains[0] == chains[1] == chains[2]
        newest = (self.postgres.markers()[-1].epoch.manifest or "").rpartition("#")[0]
        assert {str(path) for path in self.staged()} <= {newest}, "bytes that no newest marker names"

    def staged(self) -> list[Path]:
        return list((self.root / "checkpoint.onceonly.staging").glob("*/*"))
