"""What kill tests stand on: input whose every row is known, drivers to kill, and the judgement over sink, chain and ledger."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from integration.jobs import TABLE, Job, Task, make_sink
from pyspark import __version__ as spark_version

from onceonly.lab.driver import Driver
from onceonly.lab.jars import cache_directory
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Marker
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.sqlledger import SqlLedger

ROWS = 50
"""Rows per file, and so per epoch."""

PATIENCE_S = 120.0
"""How long a driver may take for one step on a busy machine."""

_REPOSITORY = Path(__file__).resolve().parent.parent


class Inbox:
    """A directory of files; file ``n`` becomes batch ``n``, since the file source goes by modification time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.files = 0

    def fill(self, files: int) -> None:
        """Have at least so many files in all."""
        while self.files < files:
            ids = range(self.files * ROWS, (self.files + 1) * ROWS)
            path = self.folder / f"{self.files:05d}.parquet"
            hidden = path.with_name(f".{path.name}")
            pq.write_table(pa.table({"id": list(ids), "word": [f"w{number}" for number in ids]}), hidden)
            os.utime(hidden, (1_700_000_000 + self.files, 1_700_000_000 + self.files))
            hidden.rename(path)
            self.files += 1


class Scene:
    """One pipeline: input, checkpoint, sink and ledger.

    Args:
        root: directory of its own.
        kind: of the sink.
        target: DSN of a database of its own, or path of the table.
        inbox: the input; several scenes may share one.
    """

    def __init__(self, root: Path, kind: str, target: str, inbox: Inbox | None = None) -> None:
        self.root, self.kind, self.target = root, kind, target
        self.inbox = inbox or Inbox(root / "in")
        self.name = f"arrivals-{kind}"
        self.checkpoint = root / f"checkpoint-{kind}"
        self.ledger_place = target if kind == "postgres" else str(root / "ledger.db")

    def job(self, **changes: Any) -> Job:
        said = {"ledger": None if self.kind == "postgres" else self.ledger_place, **changes}
        checkpoint = str(said.pop("checkpoint", self.checkpoint))
        return Job(self.name, self.kind, self.target, str(self.inbox.folder), checkpoint, **said)

    # ---- what the world looks like

    def rows(self) -> list[tuple[int, str]]:
        """All rows of the target, read without any code of ours."""
        return sorted(_postgres_rows(self.target) if self.kind == "postgres" else _delta_rows(self.target))

    def markers(self) -> list[Marker]:
        """Markers in the sink, oldest first."""
        sink = make_sink(self.kind, self.target)
        sink.open(self.name)
        try:
            return [marker for marker, _ in sink.history()]
        finally:
            sink.close()

    def newest(self) -> int:
        """Number of the newest epoch; 0 for none."""
        markers = self.markers()
        return markers[-1].epoch.number if markers else 0

    def events(self, kind: EventKind, place: str | None = None) -> list[Event]:
        ledger = SqlLedger(place or self.ledger_place)
        try:
            return [event for event in ledger.events(self.name) if event.kind is kind]
        finally:
            ledger.close()

    def recorded(self, place: str | None = None) -> list[int]:
        """Numbers of the epochs in the ledger."""
        ledger = SqlLedger(place or self.ledger_place)
        try:
            return [record.epoch.number for record in ledger.epochs(self.name)]
        finally:
            ledger.close()

    def batches(self, log: str, checkpoint: Path | None = None) -> list[int]:
        """Batch ids in one of the checkpoint's logs."""
        folder = (checkpoint or self.checkpoint) / log
        return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())

    def snapshot(self) -> dict[str, Any]:
        """Everything that a driver could change, but the ledger's list of events."""
        logs = {path.name for path in Path(self.target).glob("_delta_log/*.json")} if self.kind == "delta" else set()
        found = {"rows": self.rows(), "markers": self.markers(), "versions": sorted(logs), "recorded": self.recorded()}
        return {**found, **{log: self.batches(log) for log in ("offsets", "commits")}}

    # ---- the judgement

    def holds_exactly(self, epochs: int) -> None:
        """Demand that the sink holds the first ``epochs`` files, each row once, under an unbroken chain of dense epochs."""
        found = Counter(self.rows())
        wanted = Counter((number, f"w{number}") for number in range(epochs * ROWS))
        missing, extra = wanted - found, found - wanted
        assert not missing, f"{self.kind}: {missing.total()} rows missing, e.g. {next(iter(missing))}"
        assert not extra, f"{self.kind}: {extra.total()} rows too many, e.g. {next(iter(extra))}"
        written = [marker.epoch for marker in self.markers()]
        assert [epoch.number for epoch in written] == list(range(1, epochs + 1))
        assert chain.first_break(written) is None
        assert [epoch.digest.rows for epoch in written] == [ROWS] * epochs

    def holds_everything(self) -> None:
        """The same for the whole input, with a ledger that knows all of it."""
        self.holds_exactly(self.inbox.files)
        assert self.recorded() == list(range(1, self.inbox.files + 1))

    def has_one_owner_per_generation(self) -> None:
        owners: dict[int, set[str]] = {}
        for marker in self.markers():
            owners.setdefault(marker.fence.generation, set()).add(marker.fence.owner)
        assert all(len(found) == 1 for found in owners.values()), owners


def _postgres_rows(dsn: str) -> list[tuple[int, str]]:
    import psycopg

    with psycopg.connect(dsn) as connection:
        known = connection.execute("SELECT to_regclass(%s)", [TABLE]).fetchone()
        if known is None or known[0] is None:
            return []
        return connection.execute(f'SELECT id, word FROM "{TABLE}"').fetchall()  # type: ignore[arg-type]


def _delta_rows(path: str) -> list[tuple[int, str]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return []
    table = DeltaTable(path).to_pyarrow_table()
    return list(zip(table["id"].to_pylist(), table["word"].to_pylist(), strict=True))


# ---- drivers


class Company:
    """Has drivers ready and reads what they said: while one works, the session of the next is coming up.

    Args:
        folder: for tasks and logs.
        env: added to the environment of each.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder, self._env = folder, env
        self._drivers: list[Driver] = []
        folder.mkdir(parents=True, exist_ok=True)

    def _task(self, number: int) -> Path:
        return self._folder / f"driver-{number:03d}.json"

    def _hire(self) -> None:
        task = self._task(len(self._drivers))
        log = task.with_suffix("")
        self._drivers.append(Driver.module("integration.jobs", task, log=log, env=self._env, cwd=_REPOSITORY))

    def start(self, *jobs: Job, **said: Any) -> Driver:
        """Give the driver that waits its task, and let another one come up."""
        if not self._drivers:
            self._hire()
        number = len(self._drivers) - 1
        Task(jobs, **said).save(self._task(number))
        self._hire()
        return self._drivers[number]

    def finish(self, *jobs: Job, **said: Any) -> Driver:
        """Run a driver to the end of its input."""
        driver = self.start(*jobs, **said)
        code = driver.wait(PATIENCE_S)
        assert (code, last(driver)["event"]) == (0, "done"), driver.last_words()
        return driver

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()


def story(driver: Driver) -> list[dict[str, Any]]:
    """All events that a driver told."""
    return [json.loads(line) for line in driver.out.read_text().splitlines() if line.startswith("{")]


def last(driver: Driver) -> dict[str, Any]:
    return story(driver)[-1]


def await_event(driver: Driver, event: str) -> dict[str, Any]:
    """Wait until a driver tells of an event."""
    line = driver.wait_for(lambda text: text.startswith("{") and json.loads(text)["event"] == event, PATIENCE_S)
    return dict(json.loads(line))


def was_killed(driver: Driver) -> bool:
    """Wait for the end of a driver; whether SIGKILL was what ended it, in the middle of a batch."""
    return driver.wait(PATIENCE_S) == -9 and "done" not in {said["event"] for said in story(driver)}


def begun(driver: Driver) -> dict[str, int]:
    """The last batch that each query of a driver began."""
    return {said["query"]: said["batch"] for said in story(driver) if said["event"] == "begin"}


def await_stopped(driver: Driver) -> None:
    """Wait until a driver has stopped itself by SIGSTOP, then stop its JVM, too."""
    until(lambda: psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED, "the driver stops itself")
    driver.stop()


def refused_with(driver: Driver, *codes: str) -> bool:
    """Wait for the end of a driver; whether it failed with one of our codes."""
    code = driver.wait(PATIENCE_S)
    said = driver.err.read_text()
    return code == 1 and any(f"[ONCE-{one}]" in said for one in codes)


# ---- a JVM that starts in half of the time


def quick_jvm() -> dict[str, str]:
    """Environment that lets drivers map an archive of Spark's loaded classes instead of loading them one by one.

    Made once per Java and Spark, kept in the cache; a JVM for which an archive does not fit ignores it.
    """
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    name = hashlib.sha256(f"{spark_version}\n{java}".encode()).hexdigest()[:16]
    archive = cache_directory() / "jvm" / f"driver-{name}.jsa"
    if not archive.is_file():
        _make_archive(archive)
    return {"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={archive}"} if archive.is_file() else {}


def _make_archive(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="onceonly-jvm-", dir=archive.parent) as folder:
        scene = Scene(Path(folder), "memory", "memory:warm-up")
        scene.inbox.fill(2)
        made = Path(folder) / "classes.jsa"
        company = Company(Path(folder) / "log", {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}"})
        try:
            await_end_of_session(company.finish(scene.job()))
        finally:
            company.close()
        if made.is_file():
            made.replace(archive)


def await_end_of_session(driver: Driver) -> None:
    """Wait for the JVM and the workers, too: they may outlive Python."""
    until(lambda: not _session_lives(driver.pid), "the driver's session ends")


def _session_lives(session: int) -> bool:
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return False


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A directory directly below the system's temporary one: Postgres opens every parent of its data to its own user."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def interleave(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Take from both in turn, then what is left."""
    pairs = [part for pair in zip(one, other, strict=False) for part in pair]
    shorter = min(len(one), len(other))
    return [*pairs, *one[shorter:], *other[shorter:]]
