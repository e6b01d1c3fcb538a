"""``onceonly metrics``: serve the pipelines of a ledger to Prometheus."""

from __future__ import annotations

import time
from contextlib import closing
from importlib.resources import files
from typing import Annotated

import typer

from onceonly.cli.connect import open_ledger
from onceonly.cli.errors import without
from onceonly.cli.options import EveryOption, LedgerOption
from onceonly.cli.output import talk
from onceonly_checkpoints.epoch_time import now_ms
from onceonly_checkpoints.install import hint


def command(
    *,
    ledger: LedgerOption = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")] = 9464,
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
    every: EveryOption = 5.0,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the Grafana dashboard and end.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and end.")] = False,
) -> None:
    """Serve epochs by outcome, rows, phase times, lag and the age of epochs in doubt to Prometheus; reads the ledger.

    Counters start at 0 with this command. Ctrl-C ends it.
    """
    for requested, file in ((dashboard, "dashboard.json"), (alerts, "alerts.yml")):
        if requested:
            print(files("onceonly.metrics").joinpath(file).read_text(encoding="utf-8"), end="")
            return
    try:
        _serve(ledger, address, port, every)
    except ModuleNotFoundError as missing:
        without(missing, "onceonly metrics", hint("metrics"))()
    except KeyboardInterrupt:
        return


def _serve(location: str | None, address: str, port: int, every: float) -> None:
    from prometheus_client import start_http_server

    from onceonly.metrics import Exporter

    with closing(open_ledger(location)) as opened:
        exporter = Exporter(opened)
        exporter.look(now_ms())
        server, _ = start_http_server(port, addr=address, registry=exporter.registry)
        talk(f"http://{address}:{server.server_port}/metrics")
        while True:
            time.sleep(every)
            exporter.look(now_ms())
