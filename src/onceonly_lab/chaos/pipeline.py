"""``@pipeline``: declare a user's job and its input for the lab."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly_lab.history import Entry, Op, Range, Row
from onceonly_lab.history import Kind as EntryKind
from onceonly_lab.reading import Invariant

if TYPE_CHECKING:
    from onceonly_lab.chaos.environment import Env


# ---- ``@pipeline``: a user's job as the lab needs it: how much input, which column tells rows apart, what is in
# order.

MakeRow = Callable[[int], Mapping[str, Any]]
"""The row of a number, counted from 0, as column name to value."""

_KEYS = 7
"""Different keys in generated input: small and odd, so that every batch holds each and no batch size divides it."""


@dataclass(frozen=True)
class Pipeline:
    """A job under test; what :func:`pipeline` returns.

    Attributes:
        function: builds the query from an :class:`~onceonly_lab.chaos.environment.Env`.
        rows: of the whole input.
        batches: micro-batches that the input makes.
        identity: column that is unique in the input.
        order_by: key column and a column that grows within each key; empty: no order is judged.
        values: columns of the sinks whose values must be those of a run without faults.
        invariant: judges the rows of each look at a sink; ``None``: nothing is asked.
        keeps: rows stay once they are in the sink; false for upserts and aggregates, judged at the end alone.
        row: makes the input's rows.
        options: Spark's settings beside the lab's own.
        patience: seconds for one driver to reach the end of its input.
        workers: of a standalone cluster that executors run on; 0: they live in the driver's JVM.
    """

    function: Callable[[Env], Any]
    rows: int
    batches: int
    identity: str
    order_by: tuple[str, ...]
    values: tuple[str, ...]
    keeps: bool
    row: MakeRow | None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    patience: float = 120.0
    workers: int = 0
    invariant: Invariant | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def key(self) -> str | None:
        """Column of the key whose rows have an order; ``None``: none is judged."""
        return self.order_by[0] if self.order_by else None

    @property
    def name(self) -> str:
        """Where it is defined, as :func:`load` takes it: ``module:name``, or ``file.py:name``."""
        module, file = self.function.__module__, Path(self.function.__code__.co_filename).resolve()
        directory = Path.cwd()
        if _found_from(directory, module) == file:
            return f"{module}:{self.function.__name__}"
        return f"{file.relative_to(directory) if file.is_relative_to(directory) else file}:{self.function.__name__}"

    def made(self, number: int) -> Mapping[str, Any]:
        """The row of a number."""
        if self.row is not None:
            return self.row(number)
        key, sequence = (*self.order_by, "key", "seq")[:2] if len(self.order_by) != 1 else (self.order_by[0], "seq")
        made = {key: f"k{number % _KEYS}", sequence: number // _KEYS, "word": f"w{number}"}
        return {self.identity: number, **made}

    def __call__(self, env: Env) -> Any:
        """Build the query, as the undecorated function does."""
        return self.function(env)


def pipeline(
    *,
    rows: int = 600,
    batches: int = 3,
    identity: str = "id",
    order_by: Sequence[str] = (),
    values: Sequence[str] = (),
    keeps: bool = True,
    row: MakeRow | None = None,
    options: Mapping[str, str] | None = None,
    patience: float = 120.0,
    workers: int = 0,
    invariant: Invariant | None = None,
) -> Callable[[Callable[[Env], Any]], Pipeline]:
    """Declare a job for the fault lab. The ``chaos`` fixture and ``onceonly lab run --level L3`` break and judge it.

    The function gets an ``env`` and returns a ``DataStreamWriter`` (the lab starts it) or a started ``StreamingQuery``.
    It runs in a driver process of its own, so it must stand at the top level of a module.

    Args:
        rows: of the whole input.
        batches: micro-batches that the input makes.
        identity: column that is unique in the input, and kept in the sinks.
        order_by: key column and a column that grows within each key. Judged in Kafka and Postgres; a Delta table has
            no order of rows.
        values: columns of the sinks whose values must be those of a run without faults. Leave out what differs by
            itself.
        keeps: false where rows are replaced later: upserts, aggregates.
        row: makes the row of a number; default the identity, key, sequence and a word.
        options: Spark's settings beside the lab's own.
        patience: seconds for one driver to reach the end of its input.
        workers: of a standalone cluster that executors run on, so that they can be killed; 0: they live in the driver's
            JVM.
        invariant: whether the rows of a look at a sink are together as they must be, each as a mapping of identity,
            ``order_by`` and ``values``: ``lambda rows: sum(row["amount"] for row in rows) == 0``. It is asked at every
            look, also between kills (X-INVARIANT).

    Raises:
        ConfigurationError: E110, the declaration cannot work.
    """

    def declare(function: Callable[[Env], Any]) -> Pipeline:
        return Pipeline(
            function,
            rows,
            batches,
            identity,
            tuple(order_by),
            tuple(values),
            keeps,
            row,
            dict(options or {}),
            patience,
            workers,
            invariant,
        )

    return declare


def _check(job: Pipeline) -> None:
    wrong = ""
    if not 1 <= job.batches <= job.rows:
        wrong = f"rows={job.rows} cannot be cut into batches={job.batches}"
    elif len(job.order_by) not in (0, 2):
        wrong = f"order_by={job.order_by} is not (key column, sequence column)"
    elif "<locals>" in job.function.__qualname__:
        wrong = f"{job.function.__qualname__} is defined inside of a function, where a driver process cannot find it"
    else:
        absent = sorted({job.identity, *job.order_by} - {*job.made(0)})
        wrong = f"the input has no column {', '.join(absent)}" if absent and job.row is not None else ""
    if wrong:
        raise refuse(
            "E110",
            problem=f"@pipeline on {job.function.__qualname__}: {wrong}.",
            cause="the declaration and the job do not fit",
            next="correct the arguments of @pipeline",
        )


def load(location: str) -> Pipeline:
    """Find a job again.

    Args:
        location: ``module:name`` or ``file.py:name``.

    Raises:
        ConfigurationError: E110, there is none.
    """
    where, colon, name = location.rpartition(":")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        job = getattr(module, name)
    except (ImportError, OSError, ValueError, AttributeError, SyntaxError) as error:
        raise _no_job(location, f"{type(error).__name__}: {error}") from error
    if not colon or not isinstance(job, Pipeline):
        raise _no_job(location, f"{name} is a {type(job).__name__}, not a function under @pipeline")
    return job


def _from_file(path: Path) -> Any:
    resolved = path.resolve(strict=True)
    spec = importlib.util.spec_from_file_location(resolved.stem, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    spec.loader.exec_module(module)
    return module


def _found_from(directory: Path, module: str) -> Path | None:
    """The file that is imported from a directory: a test runner has put others on the path, for itself alone."""
    path, spec = [str(directory)], None
    names = module.split(".")
    for length in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:length]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin).resolve() if spec and spec.origin else None


def _no_job(location: str, cause: str) -> Exception:
    return refuse(
        "E110",
        problem=f"There is no job {location!r}.",
        cause=cause,
        next="name it as module:function or path/to/file.py:function, and decorate it with onceonly_lab.pipeline",
    )


# ---- The input of a job: Parquet files, one for each micro-batch, and the entries that tell the checker what they
# hold.

_OLDEST = 1_700_000_000
"""Time of the first file: the file source goes by modification time, a second apart in the order of their numbers."""


def write_source(job: Pipeline, folder: Path, batches: int, rows: int) -> None:
    """Write the input.

    Args:
        job: knows the rows.
        folder: is made.
        batches: how many files.
        rows: of each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for batch, numbers in enumerate(_cut(batches, rows)):
        path = folder / f"{batch:05d}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(job.made(number)) for number in numbers]), path)
        os.utime(path, (_OLDEST + batch, _OLDEST + batch))


def source_entries(job: Pipeline, batches: int, rows: int) -> Iterator[Entry]:
    """The same rows for the checker."""
    for batch, numbers in enumerate(_cut(batches, rows)):
        made = map(job.made, numbers)
        listed = tuple(Row(str(row[job.identity]), key=_text(row, job.key)) for row in made)
        yield Entry("source", EntryKind.OK, Op.INPUT, slice=(Range("files", batch, batch + 1),), rows=listed)


def _text(row: Mapping[str, Any], column: str | None) -> str | None:
    cell = row[column] if column is not None else None
    return None if cell is None else str(cell)


def _cut(batches: int, rows: int) -> Iterator[range]:
    return (range(batch * rows, (batch + 1) * rows) for batch in range(batches))
