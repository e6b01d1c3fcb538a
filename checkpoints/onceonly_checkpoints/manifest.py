"""Manifest of an epoch's staged files, and its reference in markers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.model import OPTIONAL, Record, Slice, UnreadableMarker, canonical, members_of

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1
"""Version of the durable form. A reader refuses a higher one."""

NAME = "manifest.json"
"""Its name in the directory of the staged files."""


class UnreadableManifest(ValueError):
    """A manifest is missing, was changed, or cannot be understood by this version. The text names the case."""


class UnreachableManifest(UnreadableManifest):
    """The store of a manifest gives this process no answer. Another machine may reach it."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One Parquet file.

    ``path`` is relative to the directory of the manifest. ``size`` is in bytes, and ``rows`` comes from the footer.
    """

    path: str
    size: int
    rows: int

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(*value)

    def to_json(self) -> list[Any]:
        """Path, size and rows."""
        return [self.path, self.size, self.rows]


@dataclass(frozen=True, slots=True)
class Manifest(Record):
    """The bytes of one epoch, written once and read by every sink and by every retry.

    Attributes:
        sinks: ``(id, address)`` of those it was staged for, sorted.
        generation: of the opening that staged it.
        digest: of the rows, computed in the action that wrote them.
        schema: Arrow schema of the rows: its IPC form in base64.
        files: the files, none of them empty of rows.
        outputs: rows of the sinks that do not get all rows. Each is in a column of its name, as one structure of its
            columns, null for other rows. ``schema`` has those columns too.
    """

    pipeline: str
    sinks: tuple[tuple[str, str], ...]
    epoch: int
    generation: int
    slice: Slice
    digest: Digest
    schema: str
    files: tuple[StagedFile, ...] = field(metadata=OPTIONAL)
    outputs: tuple[OutputDigest, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def text(self) -> str:
        """Canonical spelling, as stored and hashed."""
        return canonical({"format": FORMAT, **members_of(self)})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Inverse of :attr:`text`. Raises :class:`UnreadableManifest` for a newer format or another text."""
        try:
            value: dict[str, Any] = json.loads(text)
            if (version := value.pop("format")) != FORMAT:
                raise UnreadableManifest(f"it has format {version!r}; this version reads {FORMAT}")
            return cls.from_json(value)
        except UnreadableManifest:
            raise
        except UnreadableMarker as error:
            raise UnreadableManifest(str(error)) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableManifest(f"it is damaged: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Reference:
    """Location of a manifest and the hash of its text, carried by every marker of the epoch.

    ``directory`` is the URL or absolute path of the directory that holds manifest and files. ``hash`` is the SHA-256 of
    the text, 64 hex digits.
    """

    directory: str
    hash: str

    @classmethod
    def to(cls, manifest: Manifest, directory: str) -> Self:
        """Refer to a manifest in ``directory``."""
        return cls(directory, _hash(manifest.text))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Inverse of :attr:`text`. Raises :class:`UnreadableManifest` if it is not a reference."""
        directory, mark, hash_ = text.rpartition("#sha256=")
        if not mark:
            raise UnreadableManifest(f"{text!r} does not refer to a manifest")
        return cls(directory, hash_)

    @property
    def text(self) -> str:
        """``<directory>#sha256=<hash>``, as stored in ``Epoch.manifest``."""
        return f"{self.directory}#sha256={self.hash}"

    def check(self, text: str) -> Manifest:
        """Parse a manifest's text from this place. Raises :class:`UnreadableManifest` for another hash or damage."""
        if _hash(text) != self.hash:
            raise UnreadableManifest("its text has another hash than the marker names")
        return Manifest.parse(text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
