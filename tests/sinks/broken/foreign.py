"""A broken sink that only a reader of somebody else's notices."""

from __future__ import annotations

from dataclasses import replace

from onceonly.protocol import Batch, Prepared
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.prepared import DataFile, WrittenFiles


class LeavesTheZoneOut(DeltaSink):
    """Writes an instant that is the value of a partition without its zone, as deltalake does."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        prepared = super().prepare(batch, epoch)
        if isinstance(prepared, WrittenFiles):
            prepared.files = [_without_zone(file) for file in prepared.files]
        return prepared


def _without_zone(file: DataFile) -> DataFile:
    values = {
        name: value.replace("T", " ")[:-1] if value and value.endswith("Z") else value
        for name, value in file.partition.items()
    }
    return replace(file, partition=values)
