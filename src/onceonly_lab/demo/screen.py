"""What the user sees: bars and kills on stderr while it runs, the table and the verdict on stdout at the end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from onceonly_lab.demo.killer import Run
from onceonly_lab.demo.report import Report, RunResult

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
