"""Store a marker in a Delta log.

It consists of the application id, the packed version, and the note in a commit's metadata. Both committers write the
note into ``userMetadata`` of ``commitInfo``. Only this key is shared by Spark's writer option, deltalake's commit
properties and ``DESCRIBE HISTORY``. The packed version outlives the note, as checkpoints keep it for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from onceonly.errors import refuse
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.model import canonical

if TYPE_CHECKING:
    from typing_extensions import Self

GENERATION_BITS = 23
EPOCH_BITS = 40

FORMAT = 1
"""Version of the note's format."""

METADATA_KEY = "userMetadata"
"""Field of ``commitInfo`` that holds the note."""

_ROOT = "onceonly"


def application_id(pipeline: str, sink: str) -> str:
    """One application id per pipeline and sink, so that two sinks or pipelines of one table never fence each other."""
    return "/".join((_ROOT, quote(pipeline, safe=""), quote(sink, safe="")))


def pipeline_of(app: str) -> str | None:
    """The pipeline of an application id. ``None`` if it is not one of ours."""
    root, _, rest = app.partition("/")
    return unquote(rest.partition("/")[0]) if root == _ROOT else None


def pack(sink: str, generation: int, epoch: int) -> int:
    """Combine generation (high bits) and epoch, so that a later opening exceeds every epoch of an earlier one.

    Raises E512 if one of them has too many bits.
    """
    for name, number, bits in (("generation", generation, GENERATION_BITS), ("epoch", epoch, EPOCH_BITS)):
        if not 0 <= number < 1 << bits:
            raise refuse("E512", sink=sink, number=f"{name} {number}")
    return generation << EPOCH_BITS | epoch


def unpack(version: int) -> tuple[int, int]:
    """``(generation, epoch)`` of a packed version."""
    return version >> EPOCH_BITS, version & ((1 << EPOCH_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata of each of our commits.

    Attributes:
        fence: the fence in force after this commit.
        epoch: number of the newest epoch after this commit. 0 before the first.
        marker: the newest marker after this commit, in full. ``None`` before the first, or if its text has aged out.
        at: version of the commit that brought the rows of ``marker``. ``None``: this commit.
        read: version that the commit of those rows was checked against. -1 for none.
        judged: version up to which other writers are known to have left our rows alone. A fence advances it, so that an
            idle pipeline does not depend on a log that is cleaned away.
        rows: rows of that epoch.
        mode: ``append`` or ``merge``.
        identity: id of the table that took those rows, or empty. A replaced table keeps log and application versions.
        token: unique to this commit, so that it is recognised in any version.
    """

    app: str
    fence: Fence
    epoch: int
    marker: Marker | None
    at: int | None
    read: int
    judged: int
    rows: int
    mode: str
    identity: str
    token: str

    @property
    def brings_epoch(self) -> bool:
        """Whether this commit brings an epoch. False for a fence that repeats one."""
        return self.marker is not None and self.at is None

    @property
    def replaces(self) -> bool:
        """Whether this commit removes all earlier rows."""
        return self.brings_epoch and self.marker is not None and self.marker.epoch.replaces is not None

    @property
    def text(self) -> str:
        """The note as stored."""
        marker = None if self.marker is None else self.marker.to_json()
        fields: dict[str, Any] = {
            _ROOT: FORMAT,
            "app": self.app,
            "fence": self.fence.to_json(),
            "epoch": self.epoch,
            "marker": marker,
            "at": self.at,
            "read": self.read,
            "judged": self.judged,
            "rows": self.rows,
            "mode": self.mode,
            "identity": self.identity,
            "token": self.token,
        }
        return canonical(fields)

    @property
    def packed(self) -> tuple[int, int]:
        """``(generation, epoch)``, as in the application version of this commit."""
        return self.fence.generation, self.epoch

    def repeated(self, fence: Fence, version: int, judged: int, token: str) -> Note:
        """The note of a commit that brings no epoch: the newest marker in full, under ``fence``.

        ``version`` is that of this note's own commit. ``token`` is unique to the new one.
        """
        at = self.at if self.at is not None or self.marker is None else version
        return replace(self, fence=fence, at=at, judged=judged, token=token)

    @classmethod
    def parse(cls, text: object, app: str) -> Self | None:
        """Parse the note of an application. ``None`` for another application's, or for no note.

        Raises E508 if a newer version wrote it, and ``UnreadableMarker`` if its marker is damaged or of a newer format.
        """
        # The application id stands in the text as it is, so most commits of others are told apart without parsing.
        if not isinstance(text, str) or app not in text:
            return None
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict) or value.get("app") != app or _ROOT not in value:
            return None
        if value[_ROOT] != FORMAT:
            raise refuse(
                "E508",
                sink=app,
                reason=f"its log holds notes of format {value[_ROOT]!r}; this version reads {FORMAT}",
                cause="a newer onceonly wrote to the table",
                next="upgrade onceonly here",
            )
        marker = value["marker"]
        return cls(
            app,
            Fence.from_json(value["fence"]),
            value["epoch"],
            None if marker is None else Marker.from_json(marker),
            value["at"],
            value["read"],
            value["judged"],
            value["rows"],
            value["mode"],
            value["identity"],
            value["token"],
        )

    def receipt(self, sink: str, version: int) -> Receipt | None:
        """Receipt of the epoch whose marker this note carries. ``version`` is that of the note's commit."""
        if self.marker is None:
            return None
        epoch = self.marker.epoch
        coordinates = (("read", self.read), ("version", version if self.at is None else self.at))
        return Receipt(sink, epoch.number, epoch.chain, self.identity, coordinates, self.rows)
