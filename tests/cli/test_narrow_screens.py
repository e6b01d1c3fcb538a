"""Tables on a terminal of 80 columns: what is copied from them (names, addresses, offsets, ids) is never cut."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import FENCE, epoch_after

from onceonly.cli.output import fitted
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


def on_screen(width: int, *arguments: str) -> str:
    """What a command shows on a terminal so wide, without colours."""
    main, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "onceonly", *arguments]
    running = subprocess.Popen(command, stdin=screen, stdout=screen, stderr=subprocess.DEVNULL, env=env)
    os.close(screen)
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
    running.wait()
    return _COLOUR.sub("", said.decode()).replace("\r", "")


@pytest.mark.parametrize(
    ("command", "whole"),
    [
        (["queries", "list"], ["orders-by-customer", _ADDRESS, _ID]),
        (["queries", "show", "orders-by-customer"], ["s3a://lake/checkpoints/orders", _ADDRESS]),
        (["epochs", "list"], [_END, "postgres:silver.orders_by_customer_and_day"]),
        (["audit"], ["postgres:silver.orders_by_customer_and_day"]),
    ],
    ids=lambda value: value[0] if value[0] in {"queries", "epochs", "audit"} else "",
)
@pytest.mark.parametrize("width", [80, 60])
def test_nothing_is_cut_on_a_narrow_screen(ledger: Path, command: list[str], whole: list[str], width: int) -> None:
    said = on_screen(width, *command, "--ledger", str(ledger))
    assert "…" not in said
    for text in whole:
        assert text in said, said


def test_a_narrow_screen_cuts_nothing_that_is_watched(ledger: Path) -> None:
    said = on_screen(60, "watch", "--count", "1", "--ledger", str(ledger))
    assert "12,034" in said
    assert "…" not in said


def test_the_doctor_names_a_destination_once(ledger: Path) -> None:
    said = on_screen(
        80, "doctor", "--sink", f"delta:{ledger.parent}/a_table_with_a_rather_long_name_in_a_deep_directory"
    )
    table = said.partition("\n\n")[0]
    assert table.count("a_table_with_a_rather_long_name") == 1, said


def test_texts_are_wrapped_and_words_are_not() -> None:
    layout = fitted([("name", "why"), ("orders", "because a word " * 20)], 40)
    assert (layout.below, layout.width) == ((), 40)
    layout = fitted([("name", "where", "why"), ("orders", "x" * 50, "because " * 20)], 40)
    assert layout.below == (1,)
    assert layout.width == 40
