"""Resources shared by the demo's acts.

These are options, input, database, screen, servers and jars.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from onceonly.audit import Facts, gather
from onceonly.spark.jars import delta_jars
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.input import TOGETHER, Target, query_name
from onceonly_lab.demo.job import Job
from onceonly_lab.demo.judge import Report, RunResult
from onceonly_lab.demo.killer import Run, Watcher, torment
from onceonly_lab.demo.plan import Kill, epochs_for
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.ports import kafka_broker_jars
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.session.launch import JvmArchive

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from onceonly.protocol import Sink


# ---- What the user asked the demo for.


@dataclass(frozen=True, slots=True)
class Options:
    """The demo's options, checked.

    Attributes:
        output: ``table`` or ``json``.
        keep: folder that keeps everything; ``None`` deletes it.
        rows: flights to stream.
        sinks: kinds of the sinks that get a query of their own, in the order of ``targets.KINDS``.
        several: one query into several sinks, too.
        kills: SIGKILLs for each variant of the job.
        seed: of the kills.
        variants: ``plain`` and ``onceonly``, or only the latter, of the queries into one sink.
    """

    output: str
    keep: Path | None
    rows: int
    sinks: tuple[str, ...]
    several: bool
    kills: int
    seed: int
    variants: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind of sink that is written to."""
        return frozenset(self.sinks + (TOGETHER if self.several else ()))


# ---- What the user sees: bars and kills on stderr while it runs, the table and the verdict on stdout at the end.

_HEARTBEAT_SECONDS = 10.0


class Screen:
    """Progress on stderr: bars on a terminal, a line now and then elsewhere. A context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TextColumn("[dim]{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._variant = ""
        self._epochs = 0
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text)
        self._spoke = time.monotonic()

    def begin(self, variant: str, sinks: list[str], epochs: int) -> None:
        """Show the bars of a run."""
        self._variant, self._epochs = variant, epochs
        self._tasks = {
            sink: self._bars.add_task(f"{variant:8} {self._named(sink):8}", total=epochs, note="") for sink in sinks
        }

    def watch(self, run: Run, event: dict[str, Any]) -> None:
        """Follow a run; see ``killer.Watcher``."""
        match event["event"]:
            case "start":
                self._note("Spark is starting")
                if not self._console.is_terminal:
                    self.say(f"{self._variant:8} driver {event['driver']} is starting")
            case "up":
                self._note("")
            case "begin" | "end":
                self._advance(run)
            case "killed":
                self._note("")
                self.say(f"{self._variant:8} [red]SIGKILL {len(run.fired)}[/red] {event['moment']}")
            case _:
                self._beat(run)

    def _note(self, text: str) -> None:
        for task in self._tasks.values():
            self._bars.update(task, note=text)

    def _advance(self, run: Run) -> None:
        for sink, task in self._tasks.items():
            tally = run.tallies[sink]
            note = f"{tally.replayed} offered again" if tally.replayed else ""
            self._bars.update(task, completed=len(tally.done), note=note)

    def _beat(self, run: Run) -> None:
        if self._console.is_terminal or time.monotonic() - self._spoke < _HEARTBEAT_SECONDS:
            return
        counts = {sink: f"{len(tally.done)}/{self._epochs}" for sink, tally in run.tallies.items()}
        done = ", ".join(f"{self._named(sink)} {count}".lstrip() for sink, count in counts.items())
        self.say(f"{self._variant:8} {done} epochs")

    def _named(self, query: str) -> str:
        """A query by its sink; one into several sinks by its run alone."""
        return "" if query == self._variant else query


def show(report: Report) -> None:
    """Print the table and, as the last line, the verdict on stdout."""
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in ("job", "sink"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rows", "missing", "doubled", "epochs", "replayed", "skipped"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, run in report.runs.items():
        _add_rows(table, name, run)
    console.print(table)
    console.print(report.sentence, style="bold green" if report.exit_code == 0 else "bold red", soft_wrap=True)


def _add_rows(table: Table, name: str, run: RunResult) -> None:
    for kind, sink in run.sinks.items():
        counts = (sink.finding.rows, sink.finding.missing, sink.finding.doubled, sink.epochs, sink.replayed)
        right = sink.verdict.value == "EXACTLY ONCE"
        table.add_row(
            name,
            kind,
            *(f"{count:,}" for count in counts),
            "-" if sink.audit is None else f"{sink.skipped:,}",
            f"[{'green' if right else 'red'}]{sink.verdict}",
        )


# ---- What the acts of the demo share: options, input, database, screen; and the servers and jars that they need.


@dataclass(frozen=True, slots=True)
class Stage:
    """What the acts share.

    Attributes:
        options: as the user gave them.
        folder: everything lies here; the input in ``input``, the drivers' logs in ``logs``.
        dsn: of Postgres; empty if no sink needs it.
        given: the input's rows.
        screen: shows what happens.
    """

    options: Options
    folder: Path
    dsn: str
    given: pa.Table
    screen: Screen

    def torment(self, variant: str, targets: tuple[Target, ...], kills: Sequence[Kill], watcher: Watcher) -> Run:
        """Run a variant of the job through its kills.

        Raises:
            DriverEnded: a driver failed by itself.
            DriverSilent: a driver hung.
            KillNeverFired: the input ended before the last kill.
        """
        checkpoints = self.folder / variant / "checkpoint"
        checkpoints.mkdir(parents=True)
        job = Job(variant, str(self.folder / "input"), str(checkpoints), targets)
        self.screen.begin(variant, list(job.queries), epochs_for(self.options.kills))
        # The JVMs of drivers that write to a Delta table have its jars, and an archive is of one set of them.
        archive = JvmArchive("demo", delta_jars() if any(target.kind == "delta" for target in targets) else [])
        return torment(job, kills, self.folder / "logs", watcher, archive)


@contextmanager
def opened(targets: Sequence[Target]) -> Generator[list[Sink]]:
    """A sink for each target, closed in the end."""
    made = [target.sink() for target in targets]
    try:
        yield made
    finally:
        for sink in made:
            sink.close()


def audited(name: str, targets: Sequence[Target]) -> tuple[Facts, int]:
    """What the audit gathers of a query, and how many batches it proved to be written already."""
    with opened(targets) as sinks, closing(SqlLedger(targets[0].ledger)) as ledger:
        ledger.open()
        facts = gather(ledger, query_name(name), sinks)
    return facts, sum(event.kind is EventKind.SKIPPED for event in facts.ledger.events) if facts.ledger else 0


def fetch(options: Options, screen: Screen) -> None:
    """Have every jar here before anything is timed."""
    if "kafka" in options.kinds:
        screen.say("looking for Kafka's jars (fetched on first use)")
        kafka_broker_jars()
    if "delta" in options.kinds:
        screen.say("looking for Delta's jars (fetched on first use)")
        delta_jars()


@contextmanager
def postgres(options: Options, folder: Path, screen: Screen) -> Generator[str]:
    """DSN of a server of our own, if a sink needs it; its data moves to ``--keep`` once it has stopped."""
    if "postgres" not in options.kinds:
        yield ""
        return
    screen.say("starting an embedded Postgres")
    # As root the server runs as another user, and every folder above its data is opened to it: not one the user named.
    own = Path(tempfile.mkdtemp(prefix="onceonly-pg-"))
    try:
        with EmbeddedPostgres(own / "data") as server:
            yield server.dsn
        if options.keep:
            shutil.move(own / "data", folder / "postgres")
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def kafka(stage: Stage) -> Generator[EmbeddedKafka]:
    """A broker of our own, with its data in ``kafka``."""
    stage.screen.say("starting an embedded Kafka broker")
    with EmbeddedKafka(stage.folder / "kafka") as broker:
        yield broker
