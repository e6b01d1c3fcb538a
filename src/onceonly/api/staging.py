"""What a user says of staged epochs: where they lie, and how many of them stay."""

from __future__ import annotations

import os
from dataclasses import dataclass

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.runtime.staged_files import directory


@checks_arguments
@dataclass(frozen=True, slots=True)
class Staging:
    """Where batches are written before they are committed, and how many committed ones stay there.

    The bytes of the newest epochs are what a sink that was restored is brought level from without asking the source or
    another sink: ``onceonly queries rewind``. A transaction log is kept for the same reason.

    Attributes:
        place: a directory that driver and executors share, or a URL that Spark and an installed driver of fsspec both
            reach; ``None``: beside the checkpoint.
        keep: how many of the newest epochs stay; 1, the newest alone, is what a crash between two sinks needs.

    Raises:
        ConfigurationError: E110, ``keep`` is no number from 1 on; E114, files cannot lie there, or not be read from
            here.
    """

    place: str | os.PathLike[str] | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        number = type(self.keep) is int  # neither a truth nor a text, whatever was annotated
        if not number or self.keep < 1:
            raise refuse(
                "E110",
                problem=f"Staging(keep={self.keep!r}) keeps nothing.",
                cause="the newest epoch stays until every sink holds the next one",
                next="keep=1, or a larger number: as many epochs as a sink may be brought up from there",
            )
        if self.place is not None:
            directory(os.fspath(self.place))  # what cannot be reached from here is refused before the query starts

    @classmethod
    def of(cls, staging: str | os.PathLike[str] | Staging | None) -> Staging | None:
        """What was given as ``staging=``.

        Raises:
            ConfigurationError: E114, files cannot lie there, or not be read from here.
        """
        return staging if staging is None or isinstance(staging, Staging) else cls(staging)
