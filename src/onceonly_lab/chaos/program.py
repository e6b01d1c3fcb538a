"""Driver program under test: a job with fault points armed.

The job runs over the lab's input. Every fault point is counted. The lab kills this program.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly_lab.chaos.cells import ON_THE_WIRE
from onceonly_lab.chaos.environment import ARMED, OVER, Env, Sinks, Task, say, wire_file
from onceonly_lab.chaos.pipeline import Pipeline, load
from onceonly_lab.driver import end_with_parent
from onceonly_lab.history import Entry, Kind, Op
from onceonly_lab.history.recorder import Line
from onceonly_lab.schedule import SENDS, SENT, Action, Fault
from onceonly_lab.servers.spark import attach, is_warm, kill_executor
from onceonly_lab.session.launch import end_jvm

# ---- The fault points of a driver under test: counts how often each is passed, and strikes where its task says so.
#
# A job that uses nothing of ours passes two points only, the ends of its callback: ``discover.after``, when a batch
# is offered and nothing is done, and ``return.before``, when everything is done and Spark does not know it yet.

LEDGER_FILES = ("", "-wal", "-shm", "-journal")
"""What SQLite appends to the name of its files."""

_STRIKE_POLL_S = 0.005


class Points:
    """Arms every point for the life of a process.

    Args:
        task: what goes wrong.

    Attributes:
        callbacks: how often a batch was offered.
    """

    def __init__(self, task: Task) -> None:
        self.callbacks = 0
        self._task = task
        self._passed: Counter[Point] = Counter()
        self._on_the_wire: int | None = None
        for point in Point:
            self._arm(point)

    @contextmanager
    def callback(self) -> Generator[None]:
        """Around the job's own function."""
        self.callbacks += 1
        if self._task.plain:
            self._pass(Point.DISCOVER_AFTER)
        before = self._passed.total()
        yield
        if self._passed.total() > before:
            return
        if self._task.plain is None:
            self._pass(Point.DISCOVER_AFTER)
        self._pass(Point.RETURN_BEFORE)

    def _arm(self, point: Point) -> None:
        faults.arm(point, partial(self._fired, point))

    def _fired(self, point: Point) -> None:
        # A point acts once when armed; the next time counts, too.
        self._arm(point)
        self._pass(point)

    def _pass(self, point: Point) -> None:
        self._passed[point] += 1
        say("pass", point=point)
        if self._on_the_wire is not None and point not in SENT:
            number, self._on_the_wire = self._on_the_wire, None
            self._ask("over", number, OVER)
        for number, fault in enumerate(self._task.faults):
            wired = fault.action in ON_THE_WIRE
            at = SENDS[fault.point] if wired else fault.point
            if at is not point or fault.hit != self._passed[point]:
                continue
            if wired:
                self._on_the_wire = number
                self._ask("wire", number, ARMED)
            else:
                self._strike(number, fault)

    def _ask(self, event: str, number: int, what: str) -> None:
        """Have the harness do something between two steps of this driver, and wait until it is done."""
        say(event, fault=number)
        answer = wire_file(Path(self._task.sinks), self._task.incarnation, number, what)
        while not answer.exists():
            time.sleep(_STRIKE_POLL_S)

    def _strike(self, number: int, fault: Fault) -> None:
        if fault.action is Action.KILL and fault.ms:
            say("due", fault=number, ms=fault.ms)
            return
        if fault.action is Action.LOSE_LEDGER:
            if lose_ledger(self._task.checkpoint):
                say("struck", fault=number)
            return
        if fault.action is Action.KILL_EXECUTOR:
            Timer(fault.ms / 1000, partial(_kill_executor, number)).start()
            return
        say("struck", fault=number)
        _ACTIONS[fault.action]()


def lose_ledger(checkpoint: str) -> bool:
    """Remove the ledger that lies beside a checkpoint; whether there was one."""
    files = _ledger_files(checkpoint)
    for file in files:
        file.unlink()
    return bool(files)


def has_ledger(checkpoint: str) -> bool:
    """Whether a ledger lies beside a checkpoint."""
    return bool(_ledger_files(checkpoint))


def _ledger_files(checkpoint: str) -> list[Path]:
    files = [Path(f"{checkpoint}.onceonly.db{end}") for end in LEDGER_FILES]
    return [file for file in files if file.exists()]


def _kill() -> None:
    """SIGKILL; where the JVM is the driver's own, it dies at the same moment."""
    faults.ACTIONS["kill" if is_warm() else "killgroup"]()


def _kill_jvm() -> None:
    """SIGKILL of a driver's own JVM: Python lives on for a while, in the middle of what it was doing."""
    os.kill(_context()._gateway.proc.pid, signal.SIGKILL)


def _kill_executor(number: int) -> None:
    if kill_executor(_context().applicationId):
        say("struck", fault=number)


def _context() -> Any:
    from pyspark import SparkContext

    class_: Any = SparkContext
    return class_._active_spark_context


_ACTIONS: dict[Action, Callable[[], object]] = {
    Action.KILL: _kill,
    Action.KILL_JVM: _kill_jvm,
    Action.PAUSE: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    Action.LOSE_ANSWER: faults.ACTIONS["raise"],
}
"""What a real driver does to itself."""


# ---- The driver program that is killed: a user's job over the lab's input, with every fault point of it armed.
#
# It comes up before it has a task, so that the start of one overlaps with the work of another. What it is told and
# says is in :mod:`onceonly_lab.chaos.environment`.

NO_QUERY = 3
"""Exit code where the job started nothing."""

FAILED = 1
"""Exit code where the job, or its query, raised."""

_POLL_S = 0.02
_LOOKS_S = 0.1
"""Between two looks at a query: each is a call to the JVM, on cores that the query needs."""

_SOON = (
    "pyspark.sql.functions",
    "pyspark.sql.streaming.readwriter",
    "pyspark.sql.pandas.types",
    "pyarrow.parquet",
    "onceonly.api.wrapper",
)
"""What every job needs; what only some need is loaded by them."""

_MANY = ("pandas", "psycopg", "onceonly_checkpoints.ledger.sql", "confluent_kafka")
"""What most jobs need: loaded once where drivers are forked. Without deltalake, which starts threads."""

_QUIET = "Waiting for data to arrive"
"""What a query with a trigger of its own says when it has taken everything; see Spark's MicroBatchExecution."""


def main(argv: list[str]) -> int:
    """Start, await the task in ``argv[0]``, run it; ``argv[1]`` has Spark's settings as JSON."""
    end_with_parent()
    task_file = Path(argv[0])
    _load(_SOON)
    if is_warm():  # its JVM is its predecessor's until the task comes
        _await(task_file)
    spark = _session(json.loads(argv[1]))
    _await(task_file)
    task = Task.load(task_file)
    with Line(task.recorder) as record:
        code = _run(spark, task, Points(task), record)
    if not is_warm():
        end_jvm(spark)
    return code


def come_up() -> None:
    """Load what drivers load, for all that are forked from here; start nothing."""
    _load(_SOON)
    with suppress(ImportError):
        _load(_MANY)


def _load(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _session(options: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    spark: Any = attach(builder) if is_warm() else builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    say("up")
    return spark


def _run(spark: Any, task: Task, points: Points, record: Line) -> int:
    try:
        job = load(task.job)
        _watch_callbacks(task, points, record)
        queries = _started(job, spark, task)
        if not queries:
            say("no query")
            return NO_QUERY
        for query in queries:
            _finish(query)
    except Exception as error:  # noqa: BLE001 - whatever a user's job raises is its answer
        say("failed", code=_code(error), text=str(error))
        return FAILED
    say("done", callbacks=points.callbacks)
    return 0


def _started(job: Pipeline, spark: Any, task: Task) -> list[Any]:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    made = job(Env(spark, _source(spark, task.files), task.files, task.checkpoint, Sinks(Path(task.sinks))))
    if isinstance(made, DataStreamWriter):
        return [made.option("checkpointLocation", task.checkpoint).trigger(availableNow=True).start()]
    return list(spark.streams.active) or ([made] if hasattr(made, "awaitTermination") else [])


def _source(spark: Any, files: str) -> Any:
    # Spark would run a job to learn it, at every start.
    from pyarrow.parquet import read_schema
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(read_schema(next(Path(files).glob("*.parquet"))))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(files)


def _finish(query: Any) -> None:
    """Wait until a query has taken all input; one whose trigger never ends is stopped then.

    Raises:
        StreamingQueryException: the query failed.
    """
    while query.isActive:
        status = query.status
        if status["message"] == _QUIET and not status["isDataAvailable"] and not status["isTriggerActive"]:
            query.processAllAvailable()
            query.stop()
        time.sleep(_LOOKS_S)
    failure = query.exception()
    if failure is not None:
        raise failure


def _code(error: Exception) -> str:
    """The code of a refusal of ours, wherever Spark put its text; else the error's class."""
    if isinstance(error, OnceOnlyError):
        return error.code
    _, ours, rest = str(error).partition("[ONCE-")
    return rest.partition("]")[0] if ours else type(error).__name__


def _watch_callbacks(task: Task, points: Points, record: Line) -> None:
    """Record every batch that Spark offers, from the one place that every ``foreachBatch`` comes through.

    PySpark has no seam here, and the process is the lab's own: nothing of a user's program, nor of ours, is replaced.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    class_: Any = DataStreamWriter
    original = class_.foreachBatch

    def watched(writer: Any, function: Callable[[Any, int], None]) -> Any:
        return original(writer, _recorded(function, task, points, record))

    class_.foreachBatch = watched


def _recorded(
    function: Callable[[Any, int], None], task: Task, points: Points, record: Line
) -> Callable[[Any, int], None]:
    def tell(kind: Kind, batch: int) -> None:
        record.append(Entry("engine", kind, Op.OFFER, task.incarnation, note=f"batch {batch}"))

    def callback(df: Any, batch: int) -> None:
        tell(Kind.INVOKE, batch)
        try:
            with points.callback():
                function(df, batch)
        except Exception:
            tell(Kind.FAIL, batch)
            raise
        tell(Kind.OK, batch)

    return callback


def _await(file: Path) -> None:
    while not file.exists():
        time.sleep(_POLL_S)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
