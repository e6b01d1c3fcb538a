"""Tables on a terminal of 80 columns: what is copied from them (names, addresses, offsets, ids) is never cut."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import FENCE, epoch_after

from onceonly.cli import doctor_checks
from onceonly.cli.app import app
from onceonly.cli.doctor import emit_checks
from onceonly.cli.output import Output, fitted
from onceonly_checkpoints.epoch import EpochRecord, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Slice, SourceOffsets

_ADDRESS = (
    "postgres:host=127.0.0.1 port=1 user=onceonly_orders_writer dbname=warehouse#silver.orders_by_customer_and_day"
)
_ID = "3f2a9c1e-8d47-4a0b-9c55-0e1d2f3a4b5c"
_END = '{"orders-of-all-shops":{"0":48811000,"1":48811001,"2":48811002,"3":48811003,"4":48811004}}'
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A pipeline with the long names of real life."""
    opened = SqlLedger(str(tmp_path / "ledger.db"))
    opened.open()
    sink = "postgres:silver.orders_by_customer_and_day"
    opened.enter(
        Pipeline("orders-by-customer", ((sink, _ADDRESS),), _ID, "s3a://lake/checkpoints/orders", 3, 1_700_000_000_000)
    )
    opened.note(Event("orders-by-customer", EventKind.FAILED, f"E501: {_ADDRESS} cannot be reached", 2, 3))
    epoch = epoch_after(None, 12_034, sinks=(sink,))
    epoch = replace(epoch, written=Slice(epoch.written.start, SourceOffsets.of({"kafka": _END})))
    opened.record(EpochRecord("orders-by-customer", FENCE, epoch, (Receipt(sink, 1, epoch.chain, "", (), 12_034),)))
    opened.close()
    return tmp_path / "ledger.db"


class Screen(io.StringIO):
    """Takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Screen]:
    """What this process prints goes on a screen so wide."""

    def switched_on(width: int) -> Screen:
        for name, value in (("TERM", "xterm"), ("COLUMNS", str(width)), ("LINES", "50")):
            monkeypatch.setenv(name, value)
        found = Screen()
        monkeypatch.setattr(sys, "stdout", found)
        return found

    return switched_on


def plain(said: str) -> str:
    return _COLOUR.sub("", said).replace("\r", "")


SHOWN = {
    ("status",): ["orders-by-customer", _ADDRESS, _ID],
    ("status", "orders-by-customer"): ["s3a://lake/checkpoints/orders", _ADDRESS],
    ("epochs", "list"): [_END, "postgres:silver.orders_by_customer_and_day"],
    ("audit",): ["postgres:silver.orders_by_customer_and_day"],
    ("status", "--watch", "--count", "1"): ["12,034"],
}
"""Command to texts that somebody copies from its table."""


@pytest.mark.parametrize("width", [80, 60])
def test_nothing_is_cut_on_a_narrow_screen(ledger: Path, screen: Callable[[int], Screen], width: int) -> None:
    cut = {}
    for command, whole in SHOWN.items():
        printed = screen(width)
        with suppress(SystemExit):
            app([*command, "--ledger", str(ledger)])
        said = plain(printed.getvalue())
        if "…" in said or any(text not in said for text in whole):
            cut[command] = said
    assert cut == {}


def test_nothing_is_cut_on_a_real_terminal_which_tells_its_width_by_itself(ledger: Path) -> None:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "onceonly", "status", "--ledger", str(ledger)]
    running = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, env=env)
    os.close(terminal)
    said = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # Linux tells the end of a terminal's other side so
            break
        if not part:
            break
        said += part
    os.close(main)
    assert running.wait() == 0
    told = plain(said.decode())
    assert "…" not in told
    assert [text for text in SHOWN["status",] if text not in told] == []
    narrow = [line for line in told.splitlines() if _ADDRESS not in line]
    assert max(map(len, narrow)) <= 60


def test_the_doctor_names_a_destination_once(tmp_path: Path, screen: Callable[[int], Screen]) -> None:
    name = "a_table_with_a_rather_long_name_in_a_deep_directory"
    found = list(doctor_checks.destination(f"delta:{tmp_path}/{name}"))
    assert len(found) > 1
    printed = screen(80)
    emit_checks(found, Output.TABLE)
    table = plain(printed.getvalue()).partition("\n\n")[0]
    assert table.count(name) == 1, table


def test_texts_are_wrapped_and_words_are_not() -> None:
    layout = fitted([("name", "why"), ("orders", "because a word " * 20)], 40)
    assert (layout.below, layout.width) == ((), 40)
    layout = fitted([("name", "where", "why"), ("orders", "x" * 50, "because " * 20)], 40)
    assert layout.below == (1,)
    assert layout.width == 40
