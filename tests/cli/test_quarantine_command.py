"""``quarantine``, ``--rows``: counts out of the markers, rows out of the quarantine itself, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.conftest import Run, assert_answerless, document
from tests.core.several import Pipeline, WideDriver

from onceonly.cli.connect import Connection, naming
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest, column_of
from onceonly_checkpoints.ledger import Pipeline as Row
from onceonly_sinks.memory import MemorySink

ROWS = 10
COLUMNS = pa.struct([("reasons", pa.string()), ("row", pa.string()), ("hash", pa.int64())])


def reasons(number: int) -> list[str]:
    """Of ten rows eight breaks one rule, nine two."""
    return {8: ["small"], 9: ["small", "known"]}.get(number % ROWS, [])


def kept(number: int, *, values: bool = True) -> dict[str, Any]:
    said = [{"by": "expect", "rule": rule} for rule in reasons(number)]
    return {"reasons": json.dumps(said), "row": json.dumps({"id": number}) if values else None, "hash": number * 7}


class Wide(ArrowBatch):
    """Ten rows of an epoch, two of them bad; none is where ``clean``."""

    values = True

    def __init__(self, number: int, *, clean: bool = False) -> None:
        self.number = number
        ids = range((number - 1) * ROWS, number * ROWS)
        self._bad = [] if clean else [one for one in ids if reasons(one)]
        self._good = pa.table({"id": [one for one in ids if one not in self._bad]})
        column = [kept(one, values=self.values) if one in self._bad else None for one in ids]
        self._kept = pa.Table.from_pylist([one for one in column if one], schema=pa.schema(list(COLUMNS)))
        super().__init__(pa.table({"id": pa.array(ids, pa.int64()), column_of(BAD): pa.array(column, COLUMNS)}))

    def digest(self) -> Digest:
        return ArrowBatch(self._good).digest()

    def outputs(self) -> tuple[OutputDigest, ...]:
        why = [(rule, sum(rule in reasons(one) for one in self._bad)) for rule in ("known", "small")]
        counted = tuple((rule, count) for rule, count in why if count)
        return (
            OutputDigest(BAD, ("memory:b",), "kept", ArrowBatch(self._kept).digest(), self._good.num_rows, counted),
        )


class Unvalued(Wide):
    values = False


class Start(WideDriver):
    made = Wide


class Aside(Pipeline):
    """Good rows into a, bad ones into b."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ("a", "b"))

    def writes(self, *batches: Wide | int) -> Aside:
        Start(self).writes_wide(*batches)
        return self


@pytest.fixture
def aside(tmp_path: Path) -> Aside:
    return Aside(tmp_path / "aside").writes(1, Wide(2, clean=True), 3)


@pytest.fixture
def asked(run: Run, aside: Aside) -> Run:
    def ask(*arguments: str) -> Any:
        return run("quarantine", *arguments, ONCEONLY_LEDGER=aside.ledger.address)

    return ask


def held(found: dict[str, Any]) -> list[int]:
    return [json.loads(one["row"])["id"] for one in found["rows"]]


def test_epochs_that_set_rows_aside_are_listed_with_their_reasons_and_their_sum(asked: Run) -> None:
    found = document(asked("orders", "-o", "json"))
    assert [(one["epoch"], one["rows"], one["bad"]) for one in found["epochs"]] == [(1, 10, 2), (3, 10, 2)]
    assert found["epochs"][0]["reasons"] == {"small": 2, "known": 1}
    assert (found["bad"], found["reasons"]) == (4, {"small": 4, "known": 2})
    assert list(found["sinks"]) == ["memory:b"]
    lines = asked().stdout.splitlines()
    assert lines[0].split() == ["epoch", "rows", "bad", "reasons", "sinks"]
    assert lines[-1].split() == ["all", "20", "4", "small", "4,", "known", "2", "2", "epochs"]


def test_a_limit_shortens_the_list_and_not_the_sum(asked: Run) -> None:
    found = document(asked("-n", "1", "-o", "json"))
    assert ([one["epoch"] for one in found["epochs"]], found["bad"]) == ([3], 4)


def test_rows_are_shown_as_they_are_kept_with_what_they_broke(asked: Run, aside: Aside) -> None:
    found = document(asked("--rows", "orders", "-o", "json"))
    assert [(one["epoch"], json.loads(one["row"])["id"]) for one in found["rows"]] == [(1, 8), (1, 9), (3, 28), (3, 29)]
    assert found["rows"][1]["reasons"] == [{"by": "expect", "rule": "small"}, {"by": "expect", "rule": "known"}]
    assert (found["rows"][1]["hash"], found["sink"], found["counted"]) == (63, "memory:b", 4)
    text = asked("--rows").stdout
    assert "small, known" in text
    assert '{"id": 29}' in text
    assert "help(onceonly.bad_rows)" in text


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--epoch", "1"], [8, 9]),
        (["--epoch", "2..3"], [28, 29]),
        (["-n", "1"], [28]),
        (["-n", "3"], [8, 28, 29]),
        (["--reason", "known"], [9, 29]),
        (["--reason", "known", "-n", "1"], [29]),
    ],
)
def test_what_is_shown_can_be_narrowed_and_newer_epochs_come_first(
    asked: Run, arguments: Sequence[str], ids: list[int]
) -> None:
    assert held(document(asked("--rows", *arguments, "-o", "json"))) == ids


def test_values_that_are_not_kept_are_not_shown(run: Run, tmp_path: Path) -> None:
    pipeline = Aside(tmp_path / "masked").writes(Unvalued(1))
    result = run("quarantine", "--rows", ONCEONLY_LEDGER=pipeline.ledger.address)
    assert result.stdout.count("not kept") == 2
    assert '"id"' not in result.stdout
    found = document(run("quarantine", "--rows", "-o", "json", ONCEONLY_LEDGER=pipeline.ledger.address))
    assert [one["row"] for one in found["rows"]] == [None, None]


def test_rows_that_somebody_took_away_are_missed_aloud(asked: Run, aside: Aside) -> None:
    store = aside.stores["b"]
    log: Any = store._log
    place = next(index for index, entry in enumerate(log) if entry.epoch == 1)
    log[place] = replace(log[place], rows=None)
    text = asked("--rows").stdout
    assert "2 rows of 4 quarantined" in text


def test_where_nothing_is_expected_that_is_said(on: Run, asked: Run, aside: Aside) -> None:
    assert "No expectation applies to rows" in on("quarantine").stdout
    assert "No expectation applies to rows" in on("quarantine", "--rows").stdout
    assert 'No row of "orders" was quarantined in 1 epoch.' in asked("--epoch", "2").stdout
    assert 'quarantined for "tall" in 3 epochs' in asked("--rows", "--reason", "tall").stdout
    assert document(asked("--rows", "--epoch", "2", "-o", "json"))["rows"] == []


@pytest.mark.parametrize("said", ["0", "x", "3..1", "1..", "..2", "-1", "1..2..3"])
def test_epochs_that_are_none_are_refused_with_what_is_one(asked: Run, said: str) -> None:
    assert_answerless(asked(f"--epoch={said}"), "names no epoch", "--epoch 7..9")


def test_a_quarantine_that_was_not_named_is_asked_for_and_shown_then(run: Run, aside: Aside) -> None:
    a, b = aside.sinks()
    words = ["quarantine", "--rows", "-q", "orders", "--sink", a.address]
    assert_answerless(run(*words), "memory:b, is not among the sinks", "--sink KIND:TARGET")
    assert "small" in run(*words, "--sink", b.address).stdout


def test_a_sink_that_was_not_named_is_asked_for_by_the_address_that_the_ledger_knows() -> None:
    known = Row("orders", (("memory:b", "memory:b it's#bad"),), "q", "/ck", 1, 0, 1)
    here = Connection("orders", None, (), known)
    assert naming(here, ["memory:b"]) == """name it: --sink 'memory:b it'"'"'s#bad'"""
    assert (
        naming(here, ["memory:c"]) == naming(replace(here, entry=None), ["memory:b"]) == "name it: --sink KIND:TARGET"
    )


def test_a_quarantine_whose_rows_are_replaced_cannot_be_shown_by_epoch(run: Run, aside: Aside) -> None:
    keyed = MemorySink("memory:b", aside.stores["b"], key=["hash"])
    words = ["quarantine", "--rows", "-q", "orders", "--sink", keyed.address]
    assert_answerless(run(*words), "Rows of memory:b cannot be shown by epoch", "columns reasons and row")
