"""A table that was dropped and made again beside markers that stayed: they are not taken for its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_ways_out import obeys, printed, write
from tests.core.several import offered, rows
from tests.sinks.postgres_writer import run as sql
from typer.testing import CliRunner, Result

from onceonly.cli.app import app
from onceonly.errors import IdentityError
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_rewind_does_not_take_markers_that_outlived_their_table_for_its_rows(dsn: str, tmp_path: Path) -> None:
    names, ledger = ("first", "second"), SqlLedger(str(tmp_path / "ledger.db"))

    def writes(number: int) -> None:
        write([PostgresSink(dsn, name) for name in names], ledger, tmp_path, offered(number), rows(number))

    for number in (1, 2):
        writes(number)
    sql(dsn, "DROP TABLE first")
    sql(dsn, "CREATE TABLE first (id bigint, text text, _epoch bigint)")
    with pytest.raises(IdentityError) as stopped:
        writes(3)
    said = str(stopped.value)
    assert stopped.value.code == "E208"
    assert "queries rewind" not in said

    typed = _run(
        *("queries", "rewind", "orders", "--ledger", ledger.address, "--to", "0", "--sink", "postgres:first", "--yes")
    )
    assert typed.exit_code == 2
    assert "postgres:first was made anew" in typed.stderr
    assert printed(typed.stderr, "queries adopt") == printed(said, "queries adopt")

    obeys(_run, typed.stderr, "queries adopt")
    writes(3)
    counted = [sql(dsn, f"SELECT array_agg(DISTINCT _epoch ORDER BY _epoch) FROM {name}") for name in names]
    assert counted == [[([4],)], [([1, 2, 4],)]]
