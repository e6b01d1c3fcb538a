"""``onceonly lab`` and ``onceonly demo``: command groups and exit codes.

The codes are 0 clean, 1 anomaly, 2 inconclusive, 3 the lab failed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onceonly.cli.errors import DEBUG, tell, without, words_for
from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say, talk
from onceonly_checkpoints.install import hint
from onceonly_lab.chaos.result import junit as to_junit
from onceonly_lab.checker import Finding, Judgement, Verdict, judge
from onceonly_lab.cli import jobs, proof, run
from onceonly_lab.cli import writers as of_writers
from onceonly_lab.cli.prepare_session import prepare_session
from onceonly_lab.history import History, UnreadableHistory, load
from onceonly_lab.schedule import UnreadableSchedule
from onceonly_lab.servers import up as servers_up
from onceonly_lab.servers.up import Kind, Servers

# ---- ``onceonly demo``: hands everything on to the lab's demo, which has options and a help of its own.


def demo(context: typer.Context) -> None:
    """Prove it here: real input, real SIGKILLs, a verdict."""
    try:
        from onceonly_lab.demo.command import main
    except ModuleNotFoundError as missing:
        without(missing, "The demo", hint("demo"))()
    raise typer.Exit(main(list(context.args)))


# ---- ``onceonly lab up``: a real Postgres and a real Kafka broker on this machine, for trying things.

_TOPIC = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?::(?P<partitions>[1-9]\d*))?")
_NAMES = {Kind.POSTGRES: "Postgres", Kind.KAFKA: "Kafka"}
_FAILED = 3


def up(
    *,
    only: Annotated[Kind | None, typer.Option("--only", help="Start only this server.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Keep the data here, and go on with them next time. Default: temporary, removed at the end. "
            "For root, Postgres makes every folder above DIR readable for others.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME[:PARTITIONS]",
            help="Create a topic, because sinks create none; may be given more than once.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a Postgres and a Kafka broker on free ports of 127.0.0.1, print their addresses, run until Ctrl-C.

    No password is asked. Ctrl-C and SIGTERM stop them; nothing of them is left but data in --dir.
    Exit code: 0 stopped by Ctrl-C or SIGTERM, 3 they cannot be started or one ended by itself.
    """
    kinds = frozenset(Kind if only is None else [only])
    topics = _topics(topic or (), kinds)
    data_folder = None if directory is None else directory.expanduser().absolute()
    with warnings.catch_warnings():
        # The server's package looks for a folder that few machines have, and says so.
        warnings.simplefilter("ignore")
        servers_up.fetch(kinds)
    with servers_up.Asked() as stop_request:
        talk(f"starting {' and '.join(_NAMES[kind] for kind in Kind if kind in kinds)} ...")
        try:
            with servers_up.running(kinds, stop_request, data_folder, topics) as servers:
                if servers is not None:
                    _tell(servers, data_folder, output)
                    stop_request.wait(servers)
        except servers_up.ServerEnded as ended:
            talk(str(ended))
            raise typer.Exit(_FAILED) from ended


def _topics(specs: Sequence[str], kinds: frozenset[Kind]) -> Mapping[str, int]:
    if specs and Kind.KAFKA not in kinds:
        raise typer.BadParameter("--topic needs Kafka; leave out --only postgres")
    partitions_by_topic: dict[str, int] = {}
    for text in specs:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
        partitions_by_topic[match["name"]] = int(match["partitions"] or 1)
    return partitions_by_topic


def _tell(servers: Servers, data_folder: Path | None, output: Output) -> None:
    if output is Output.JSON:
        emit_json({"directory": None if data_folder is None else str(data_folder), **servers.to_json()})
    else:
        emit_pairs(_pairs(servers))
    sys.stdout.flush()
    talk(
        f"Ctrl-C stops them; their data stay in {data_folder}"
        if data_folder
        else "Ctrl-C stops them and removes their data"
    )


def _pairs(servers: Servers) -> list[tuple[str, object]]:
    made = ", ".join(f"{name} ({partitions})" for name, partitions in servers.topics.items())
    return [
        ("postgres", servers.postgres and servers.postgres.dsn),
        ("kafka", servers.kafka and servers.kafka.servers),
        ("topics", made or None),
    ]


# ---- ``onceonly lab``: the fault lab. Exit codes: 0 clean, 1 anomaly, 2 inconclusive, 3 the lab itself could not do
# it.

FAILED = 3
"""The exit code where no run was judged: a file cannot be read or written, an argument is wrong."""

_STYLES = {Verdict.CLEAN: "bold green", Verdict.ANOMALY: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}


class LabGroup(TyperGroup):
    """The lab's own exit code: 2 is a verdict here, so what went wrong in the lab itself is 3."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; whatever keeps it from a verdict becomes words and code 3."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except UnreadableHistory as error:
            tell(f"Cannot judge: {error}")
        except UnreadableSchedule as error:
            tell(f"Cannot play: {error}")
        except Exception as error:
            usage: Any = error
            if hasattr(usage, "exit_code"):
                # Errors of usage know how to show themselves; only their code is another one here.
                usage.exit_code = FAILED
                raise
            if os.environ.get(DEBUG):
                raise
            tell(words_for(error))
        raise typer.Exit(FAILED)


app = typer.Typer(cls=LabGroup, no_args_is_help=True, help="The fault lab: inject faults into a pipeline and judge it.")

app.command("up")(up)
app.command("run")(run.command)
app.command("replay")(run.replay)
app.command("shrink")(run.shrink)
app.command("points")(proof.points)
app.command("necessity")(proof.necessity)
app.command("rules-off")(proof.rules_off)
app.command("mutants")(proof.mutants)
app.command("writers")(of_writers.writers)
app.command("report")(jobs.report)
app.command("prepare-session")(prepare_session)

HistoryArgument = Annotated[Path, typer.Argument(metavar="HISTORY", help="A recorded run: JSON lines.")]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML too, a case per anomaly.")
]


@app.callback()
def root() -> None:
    """The fault lab: inject faults into a pipeline and judge it."""
    # What the product logs of the faults that it is given here is no news; without a handler, Python prints it.
    for room in ("onceonly", "onceonly_sinks"):
        logging.getLogger(room).addHandler(logging.NullHandler())


@app.command()
def recheck(
    history: HistoryArgument,
    *,
    golden: jobs.GoldenOption = None,
    output: OutputOption = Output.TABLE,
    junit: JunitOption = None,
) -> None:
    """Judge a recorded run again.

    Needs no server and no Spark. Exit code: 0 clean, 1 anomaly, 2 inconclusive, 3 the history cannot be read.
    """
    judged = judge(load(history), _golden(golden))
    if junit is not None:
        junit.write_text(to_junit(judged), encoding="utf-8")
    if output is Output.JSON:
        emit_json(judged.to_json())
    else:
        _show(judged)
    raise typer.Exit(jobs.REPORT_EXIT_CODES[judged.verdict])


def _golden(path: Path | None) -> History | None:
    return None if path is None else load(path)


def _show(judged: Judgement) -> None:
    if judged.run:
        say(judged.run)
    for finding in _first_of_each(judged):
        say(f"{finding.anomaly}: {finding.must_hold}")
    if judged.findings:
        emit_table(("anomaly", "sink", "epoch", "what was seen", "rows", "lines"), map(_row, judged.findings))
    for reason in judged.missing:
        say(f"inconclusive: {reason}")
    say(judged.sentence, style=_STYLES[judged.verdict])


def _first_of_each(judged: Judgement) -> Iterator[Finding]:
    named = {finding.anomaly: finding for finding in reversed(judged.findings)}
    yield from reversed(named.values())


def _row(finding: Finding) -> tuple[object, ...]:
    rows, lines = ", ".join(finding.witnesses), ", ".join(map(str, finding.lines))
    return finding.anomaly, finding.sink, finding.epoch, finding.what, rows, lines
