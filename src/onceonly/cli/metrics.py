"""``onceonly metrics``: serves a ledger's pipelines to Prometheus."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Annotated

import typer

from onceonly.cli.calm import give_up
from onceonly.cli.options import EveryOption, LedgerOption
from onceonly.cli.output import talk
from onceonly.cli.places import no_ledger, open_ledger


def command(
    *,
    ledger: LedgerOption = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")] = 9464,
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
    every: EveryOption = 5.0,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the Grafana dashboard and end.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and end.")] = False,
) -> None:
    """Serve epochs by outcome, rows, phase times, lag and the age of doubt to Prometheus, from the ledger alone.

    Counters start at 0 with this command. Ctrl-C ends it.
    """
    for wanted, file in ((dashboard, "dashboard.json"), (alerts, "alerts.yml")):
        if wanted:
            print(files("onceonly.metrics").joinpath(file).read_text(encoding="utf-8"), end="")
            return
    if ledger is None:
        raise no_ledger()
    try:
        _serve(ledger, address, port, every)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("onceonly"):
            raise
        give_up(f"Metrics need {missing.name}: pip install 'onceonly[metrics]'")
    except KeyboardInterrupt:
        return


def _serve(location: str, address: str, port: int, every: float) -> None:
    from prometheus_client import start_http_server

    from onceonly.metrics import Exporter

    opened = open_ledger(location)
    try:
        exporter = Exporter(opened)
        exporter.look(_now_ms())
        server, _ = start_http_server(port, addr=address, registry=exporter.registry)
        talk(f"http://{address}:{server.server_port}/metrics")
        while True:
            time.sleep(every)
            exporter.look(_now_ms())
    finally:
        opened.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
