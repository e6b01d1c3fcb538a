"""What Spark's file and Delta sources were told to do with files: to pass over unreadable ones, or to clear up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.kafkasource import private

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PASSING = ("ignoreMissingFiles", "ignoreCorruptFiles")
_READ_FILES = ("FileStreamSource", "DeltaSource")


def passes_over(df: DataFrame, source: Any) -> str | None:
    """The setting with which a source in the JVM reads files that are gone or damaged as no rows; ``None``: it stops.

    An option of the source counts before the session's setting of the same name.
    """
    if not _class_of(source).endswith(_READ_FILES):
        return None
    given = _options(source)
    for name in _PASSING:
        said = _option(given, name)
        if said is None and _session(df, name):
            return f"spark.sql.files.{name}"
        if said is not None and said.lower() == "true":
            return name
    return None


def clears_up(source: Any) -> str | None:
    """What a source in the JVM does with files that it has read: ``archive``, ``delete``, or ``None`` for nothing."""
    if not _class_of(source).endswith("FileStreamSource"):
        return None
    said = (_option(_options(source), "cleanSource") or "off").lower()
    return None if said == "off" else said


def reads_on(source: Any) -> bool:
    """Whether a Delta source in the JVM goes on past versions that are gone (``failOnDataLoss=false``)."""
    return _class_of(source).endswith("DeltaSource") and not bool(private(source, "options").failOnDataLoss())


def _class_of(source: Any) -> str:
    return str(source.getClass().getName())


def _session(df: DataFrame, name: str) -> bool:
    return str(df.sparkSession.conf.get(f"spark.sql.files.{name}", "false")).lower() == "true"


def _options(source: Any) -> Any:
    """The source's own options, a Scala map that does not mind the case of names."""
    if _class_of(source).endswith("DeltaSource"):
        return private(source, "options").options()
    return private(private(source, "sourceOptions"), "parameters")


def _option(options: Any, name: str) -> str | None:
    found = options.get(name)
    return None if found.isEmpty() else str(found.get())
