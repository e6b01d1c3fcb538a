"""Read plan text, files and rows on Spark Connect, by public calls."""

from __future__ import annotations

import errno
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.spark import digest
from onceonly.spark.digest import behind_bracket
from onceonly_checkpoints.storage import (
    LocalStorage,
    Readable,
    UnreachableStorage,
    is_local,
    open_storage,
    visible,
    without_secrets,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

_MISSING = "PATH_NOT_FOUND"


class SessionFiles:
    """Reading half of a storage by ``spark.read``. Each call is a job, so for stores that nothing else reaches."""

    def __init__(self, session: Any, url: str) -> None:
        self._session, self._root = session, url.rstrip("/")

    @property
    def url(self) -> str:
        """The given root, without credentials."""
        return without_secrets(self._root)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return names of files in a directory, sorted, without hidden ones."""
        rows = self._files_at(directory, "path")
        return visible(str(row.path).rsplit("/", 1)[-1] for row in rows or ())

    def read(self, path: str) -> bytes:
        """Read a file."""
        rows = self._files_at(path, "content")
        if not rows:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return bytes(rows[0].content)

    def exists(self, path: str) -> bool:
        """Check whether there is a file or directory."""
        return self._files_at(path, "path") is not None

    def _files_at(self, path: str, column: str) -> Any:
        return _read_files(self._session, f"{self._root}/{path}" if path else self._root, column)


def size(session: Any, path: str) -> int | None:
    """Return bytes of a file, or ``None`` if it is gone."""
    rows = _read_files(session, path, "length")
    return int(rows[0].length) if rows else None


def _read_files(session: Any, path: str, column: str) -> Any:
    """Return rows of the files at a path, or ``None`` if there is neither file nor directory."""
    from pyspark.errors import AnalysisException

    literal = re.sub(r"([\\*?{}\[\]])", r"\\\1", path)
    try:
        # A server keeps the plans of a session by what was asked, the client's own number of the plan included; and
        # every run's worker is a client of that session that numbers from nought. What this call adds is asked never
        # again, so it is not answered out of what another client saw there.
        reader = session.read.format("binaryFile").option("onceonly.asked", uuid.uuid4().hex)
        return reader.load(literal).select(column).collect()
    except AnalysisException as error:
        if error.getCondition() != _MISSING:
            raise
        return None


def files_of(session: Any, checkpoint: str) -> Readable:
    """Return a checkpoint's files: local, by a driver of fsspec, else by the session, with the server's login."""
    if is_local(checkpoint):
        return LocalStorage(checkpoint)
    try:
        storage = open_storage(checkpoint)
        if storage.exists("metadata"):
            return storage
    except UnreachableStorage as error:
        log.info("%s is read by Spark: %s", without_secrets(checkpoint), error)
    except Exception as error:  # noqa: BLE001 - whatever a driver's own login comes to, the server's is another one
        log.info("%s is read by Spark: %s", without_secrets(checkpoint), type(error).__name__)
    return SessionFiles(session, checkpoint)


# ---- Read rows of a DataFrame on Spark Connect, by public calls.


def hashed(df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
    """Add the hash of the row as the last column."""
    return df.select("*", digest.row_hash(df.schema, leave_out).alias(digest.HASH))


class Observation:
    """A DataFrame whose first action computes its digest and the aggregates ``beside``."""

    def __init__(self, df: DataFrame, observable: digest.Observable, beside: Sequence[Column] = ()) -> None:
        from pyspark.sql import Observation

        self._observation = Observation()
        hashed = df.select("*", *observable.hashes.values()) if observable.hashes else df
        observed = hashed.observe(self._observation, *observable.metrics, *beside)
        self.dataframe: DataFrame = observed.drop(*observable.hashes) if observable.hashes else observed

    def get(self) -> Mapping[str, Any]:
        """Return the metrics by name. Waits for the end of the first action."""
        values: Mapping[str, Any] = self._observation.get
        return values


class Collected:
    """Collect all rows in one table, from the first row on. Larger epochs go by executors or by staged files."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._df.toArrow().to_batches()

    def close(self) -> None:
        """Do nothing: no resource is held between two batches."""


# ---- Parse the text of ``explain(True)``: all that Spark Connect shows. Pure.
#
# The text is made for people. It names operators and expressions. It shows neither which expressions Spark considers
# deterministic nor the effect of a user's function. :data:`UNSEEN` reports that where it affects the guarantee.

CUT = re.compile(r"\.\.\. \d+ more fields")
"""How Spark ends a list that it did not print whole."""

_STATE = re.compile(r"StateStore|state info \[")
"""What the operators that keep state print, whatever they are called."""

_UNPLANNED = "AnalysisException"
"""What Spark prints for the physical plan of some streams that are not started, such as one read by a view's name."""

_KEEPS_STATE = re.compile(r"~?(Aggregate|Distinct|GlobalLimit|\w*Deduplicate\w*|\w*WithState\w*)\b")
"""Logical operators that keep state; the mark before them is that of a stream, which some Sparks print."""

_BRANCHES = " :+-"
"""What draws the tree before the name of an operator."""

_SECTION = re.compile(r"^== (.+) ==$", re.MULTILINE)
_ANALYSED = "Analyzed Logical Plan"

_UNSTABLE = (
    "current_time",
    "input_file_block_length",
    "input_file_block_start",
    "input_file_name",
    "java_method",
    "localtime",
    "monotonically_increasing_id",
    "now",
    "rand",
    "randn",
    "random",
    "randstr",
    "reflect",
    "shuffle",
    "spark_partition_id",
    "try_reflect",
    "uniform",
    "uuid",
)
"""Functions that another run may compute otherwise, by the names under which a plan spells them."""

_CLOCKS = ("current_date", "current_timestamp", "localtimestamp")
"""The same in the callback's own part of a plan. In the query's part Spark puts the batch's time for them."""

UNSEEN = (
    "a function of your own gives another result for the same rows: on Spark Connect its calls cannot be seen",
    "a source continues where input is gone (failOnDataLoss=false, ignoreMissingFiles): the plan hides it there",
)
"""What a text does not show, as reasons for which a promise may not hold."""

TOPICS_UNSEEN = "a topic is created again under its name: on Spark Connect the brokers are not asked for its id"
"""The same of a plan that reads topics."""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan by its text. With ``clocks``, functions that read a clock count as nondeterministic."""

    all: str
    clocks: bool = False

    @property
    def stateful(self) -> bool:
        """Whether an operator keeps state."""
        if _STATE.search(self.all) or _UNPLANNED not in self.all:
            return _STATE.search(self.all) is not None
        return any(_KEEPS_STATE.match(line.lstrip(_BRANCHES)) for line in self.analysed.splitlines())

    @property
    def cut(self) -> bool:
        """Whether Spark omitted a part."""
        return CUT.search(self.all) is not None

    @property
    def analysed(self) -> str:
        """The analysed plan, without the line of its columns, or the whole text without such a part."""
        parts = _SECTION.split(self.all)
        plan = dict(zip(parts[1::2], parts[2::2], strict=True)).get(_ANALYSED)
        return self.all if plan is None else plan.lstrip("\n").partition("\n")[2]

    def text(self) -> str | None:
        """Return ``None``: Connect has no plan in JSON by which to trace columns."""
        return None

    def leaves(self) -> tuple[Any, ...]:
        """Return nothing: Connect names no relation."""
        return ()

    def nondeterministic(self) -> str | None:
        """Return the first expression that another run may compute differently, or ``None``."""
        names = (*_UNSTABLE, *(_CLOCKS if self.clocks else ()))
        return next(_calls(self.analysed, names), None)

    @property
    def relations(self) -> tuple[str, ...]:
        """Lines of the sources of a stream before its start."""
        lines = (line.lstrip(f"{_BRANCHES}~") for line in self.analysed.splitlines())
        return tuple(line for line in lines if line.startswith("StreamingRelation"))


def _calls(text: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield calls of functions, with their arguments. Column names are not calls."""
    for match in re.finditer(rf"(?<![\w.`'])({'|'.join(names)})\(", text):
        end = behind_bracket(text, match.end())
        # A column is spelled with its number behind the name: ``rand(7)#3`` is what some table calls one.
        if text[end : end + 1] != "#":
            yield text[match.start() : end]
