"""``onceonly lab up``: a real Postgres and a real Kafka broker on this machine, for trying things."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_pairs, talk
from onceonly_lab import up
from onceonly_lab.up import Kind, Servers

_TOPIC = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?::(?P<partitions>[1-9]\d*))?")
_NAMES = {Kind.POSTGRES: "Postgres", Kind.KAFKA: "Kafka"}
_FAILED = 3


def command(
    *,
    only: Annotated[Kind | None, typer.Option("--only", help="Start this one alone.")] = None,
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
        typer.Option("--topic", metavar="NAME[:PARTITIONS]", help="Make a topic, may repeat: sinks make none."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a Postgres and a Kafka broker on free ports of 127.0.0.1, print their addresses, run until Ctrl-C.

    No password is asked. Ctrl-C and SIGTERM stop them; nothing of them is left but data in --dir.
    Exit code: 0 told to end, 3 they cannot be started or one ended by itself.
    """
    kinds = frozenset(Kind if only is None else [only])
    topics = _topics(topic or (), kinds)
    place = None if directory is None else directory.expanduser().absolute()
    with warnings.catch_warnings():
        # The server's package looks for a folder that few machines have, and says so.
        warnings.simplefilter("ignore")
        up.fetch(kinds)
    with up.Asked() as asked:
        talk(f"starting {' and '.join(_NAMES[kind] for kind in Kind if kind in kinds)} ...")
        try:
            with up.running(kinds, asked, place, topics) as servers:
                if servers is not None:
                    _tell(servers, place, output)
                    asked.wait(servers)
        except up.ServerEnded as ended:
            talk(str(ended))
            raise typer.Exit(_FAILED) from ended


def _topics(wanted: Sequence[str], kinds: frozenset[Kind]) -> Mapping[str, int]:
    if wanted and Kind.KAFKA not in kinds:
        raise typer.BadParameter("--topic needs Kafka; leave out --only postgres")
    found: dict[str, int] = {}
    for text in wanted:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
        found[match["name"]] = int(match["partitions"] or 1)
    return found


def _tell(servers: Servers, place: Path | None, output: Output) -> None:
    if output is Output.JSON:
        emit_json({"directory": None if place is None else str(place), **servers.to_json()})
    else:
        emit_pairs(_pairs(servers))
    sys.stdout.flush()
    talk(f"Ctrl-C stops them; their data stay in {place}" if place else "Ctrl-C stops them and removes their data")


def _pairs(servers: Servers) -> list[tuple[str, object]]:
    made = ", ".join(f"{name} ({partitions})" for name, partitions in servers.topics.items())
    return [
        ("postgres", servers.postgres and servers.postgres.dsn),
        ("kafka", servers.kafka and servers.kafka.servers),
        ("topics", made or None),
    ]
