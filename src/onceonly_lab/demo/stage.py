"""Resources shared by the demo's acts.

These are options, input, database, screen, servers and jars.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from onceonly.audit import Facts, Verdict, gather
from onceonly.spark.jars import delta_jars
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.claims import WindowsReport
from onceonly_lab.demo.input import TOGETHER, Target, query_name
from onceonly_lab.demo.job import Job
from onceonly_lab.demo.judge import Report
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
        several_kills: SIGKILLs for the query into several sinks.
        seed: of the kills.
        variants: ``plain`` and ``onceonly``, or only the latter, of the queries into one sink.
        windows: the second act in place of all that.
    """

    output: str
    keep: Path | None
    rows: int
    sinks: tuple[str, ...]
    several: bool
    kills: int
    several_kills: int
    seed: int
    variants: tuple[str, ...]
    windows: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind of sink that is written to."""
        return frozenset(self.sinks + (TOGETHER if self.several else ()) + (("postgres",) if self.windows else ()))

    @property
    def epochs(self) -> int:
        """How many files the flights are cut into."""
        return epochs_for(max(self.kills, self.several_kills))


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
        self._epochs: Mapping[str, int] = {}
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

    def begin(self, variant: str, epochs: Mapping[str, int]) -> None:
        """Show the bars of a run, by query with its epochs."""
        self._variant, self._epochs = variant, epochs
        self._tasks = {
            query: self._bars.add_task(f"{variant:8} {self._named(query):8}", total=total, note="")
            for query, total in epochs.items()
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
        counts = {sink: f"{len(tally.done)}/{self._epochs[sink]}" for sink, tally in run.tallies.items()}
        done = ", ".join(f"{self._named(sink)} {count}".lstrip() for sink, count in counts.items())
        self.say(f"{self._variant:8} {done} epochs")

    def _named(self, query: str) -> str:
        """A query by its sink; one into several sinks by its run alone."""
        return "" if query == self._variant else query


def show(report: Report | WindowsReport) -> None:
    """Print the table and, as the last line, the verdict on stdout."""
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    numbers = {
        head
        for head, cell in zip(report.heads, report.table[0], strict=True)
        if cell == "-" or cell.replace(",", "").isdigit()
    }
    for head in report.heads:
        table.add_column(
            head, justify="right" if head in numbers else "left", overflow="fold", no_wrap=head != "figures"
        )
    for *cells, verdict in report.table:
        table.add_row(*cells, f"[{'green' if verdict == Verdict.EXACTLY_ONCE else 'red'}]{verdict}")
    console.print(table)
    console.print(report.sentence, style="bold green" if report.exit_code == 0 else "bold red", soft_wrap=True)


# ---- What the acts of the demo share: options, input, database, screen; and the servers and jars that they need.


@dataclass(frozen=True, slots=True)
class Stage:
    """What the acts share.

    Attributes:
        options: as the user gave them.
        folder: everything lies here; the input in ``input``, the drivers' logs in ``logs``.
        dsn: of Postgres; empty if no sink needs it.
        given: the input's rows; empty without flights.
        screen: shows what happens.
    """

    options: Options
    folder: Path
    dsn: str
    given: pa.Table
    screen: Screen

    def torment(self, job: Job, epochs: Mapping[str, int], kills: Sequence[Kill], watcher: Watcher) -> Run:
        """Run a job through its kills. ``epochs``: of each query.

        Raises:
            DriverEnded: a driver failed by itself.
            DriverSilent: a driver hung.
            KillNeverFired: the input ended before the last kill.
        """
        self.screen.begin(job.variant, epochs)
        # The JVMs of drivers that write to a Delta table have its jars, and an archive is of one set of them.
        archive = JvmArchive("demo", delta_jars() if any(target.kind == "delta" for target in job.targets) else [])
        return torment(job, kills, self.folder / "logs", watcher, archive)

    def job(self, variant: str, targets: tuple[Target, ...], **fields: Any) -> Job:
        """A variant of the job, with input and checkpoints below the folder."""
        checkpoints = self.folder / variant / "checkpoint"
        checkpoints.mkdir(parents=True)
        return Job(variant, str(self.folder / "input"), str(checkpoints), targets, **fields)


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
    with opened(targets) as sinks:
        return gathered(name, targets[0].ledger, sinks)


def gathered(name: str, address: str, sinks: Sequence[Sink]) -> tuple[Facts, int]:
    """The same of open sinks, by a ledger's address."""
    with closing(SqlLedger(address)) as ledger:
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
