"""Outputs of an epoch: some sinks hold columns of their own, of the rows they want, under the one chain of all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import CRASHES, Crash, Pipeline, WideDriver, crash, crashed
from tests.core.stories import epochs

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD, SEEN_IDS, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import UnreadableMarker

Wanted = Callable[[int], bool]


def even(number: int) -> bool:
    return number % 2 == 0


def ids(number: int) -> range:
    return range((number - 1) * 10, number * 10)


class Wide(ArrowBatch):
    """Ten rows of an epoch, and output ``picked`` of those that are wanted, in a column of its own."""

    def __init__(self, number: int, wanted: Wanted = even, filtered: int = 0, said: str = "") -> None:
        self._rows = pa.table({"id": ids(number), "text": [f"row {one}" for one in ids(number)]})
        held = [{"key": one, "word": f"word {one}"} if wanted(one) else None for one in ids(number)]
        kind = pa.struct([("key", pa.int64()), ("word", pa.string())])
        self._picked = pa.table(
            {"key": [one["key"] for one in held if one], "word": [one["word"] for one in held if one]}
        )
        self.number = number
        self._miscounted = filtered
        self._said = said
        super().__init__(self._rows.append_column("picked", pa.array(held, kind)))

    def digest(self) -> Digest:
        return ArrowBatch(self._rows).digest()

    def outputs(self) -> tuple[OutputDigest, ...]:
        found = ArrowBatch(self._picked).digest()
        filtered = self._rows.num_rows - found.rows + self._miscounted
        return (OutputDigest("picked", ("memory:b",), "key and word", found, filtered, definition=self._said),)


class Outputs(Pipeline):
    """All rows into a and c; b gets the output."""

    def start(self) -> Start:
        return Start(self)

    def holds_outputs(self, count: int, wanted: Wanted = even) -> None:
        a, b, c = self.sinks_open()
        for whole in (a, c):
            assert sorted(row["id"] for row in whole.rows()) == [*range(count * 10)], whole.id
            assert {tuple(row) for row in whole.rows()} == {("id", "text")}, "no column of an output"
        expected = [(one, f"word {one}") for one in range(count * 10) if wanted(one)]
        assert sorted((row["key"], row["word"]) for row in b.rows()) == expected
        chains = {tuple(marker.epoch.chain for marker, _ in sink.history()) for sink in (a, b, c)}
        assert len(chains) == 1, chains
        for sink in (a, b, c):
            for marker, receipt in sink.history():
                assert receipt.rows == marker.epoch.digest_in(sink.id).rows


class Start(WideDriver):
    made = Wide


@pytest.fixture
def pipeline(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path)


@pytest.fixture
def behind(pipeline: Outputs) -> Outputs:
    """Epoch 2 is in the first sink only."""
    crashed(pipeline.start(), Point.COMMIT_AFTER, 1)
    return pipeline


# ---- in real stores


def test_a_sink_of_an_output_holds_its_columns_and_no_others(pipeline: Outputs) -> None:
    state = pipeline.start().writes_wide(1, 2, 3)
    pipeline.holds_outputs(3)
    assert state.work.epoch is not None
    assert state.work.epoch.digest.rows == 10
    assert [(output.name, output.digest.rows, output.filtered) for output in state.work.epoch.outputs] == [
        ("picked", 5, 5)
    ]


@pytest.mark.parametrize(("point", "hit"), CRASHES, ids=str)
def test_a_crash_anywhere_is_healed_by_the_next_start(pipeline: Outputs, point: Point, hit: int) -> None:
    crashed(pipeline.start(), point, hit)
    pipeline.start().writes_wide(2, 3)
    pipeline.holds_outputs(3)


def test_a_sink_that_is_behind_gets_the_output_of_the_marker_and_not_that_of_the_call(behind: Outputs) -> None:
    # Who starts again wants other rows: those of epoch 2 are decided.
    behind.start().writes_wide(Wide(2, lambda one: not even(one)), Wide(3, lambda one: not even(one)))
    behind.holds_outputs(3, lambda one: even(one) if one < 20 else not even(one))


def test_an_output_that_is_computed_again_must_be_the_one_that_the_marker_names(behind: Outputs) -> None:
    for address in behind.staged():
        for path in Path(address).iterdir():
            path.unlink()
    with pytest.raises(OnceOnlyError, match="ONCE-E219") as refused:
        behind.start().writes_wide(Wide(2, lambda one: not even(one)))
    assert "side outputs differ" in str(refused.value)
    behind.start().writes_wide(2, 3)
    behind.holds_outputs(3)


def test_where_the_call_was_changed_the_former_one_is_printed_first_and_loses_nothing(pipeline: Outputs) -> None:
    was, odd = "where='id % 2 = 0'", "where='id % 2 = 1'"
    pipeline.start().writes_wide(Wide(1, said=was))
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        pipeline.start().writes_wide(Wide(2, said=was))
    faults.disarm()
    for address in pipeline.staged():
        shutil.rmtree(address)
    ways = {}
    for said in (odd, was, ""):  # another rule; the same one, which is no function of the row; nobody says it
        with pytest.raises(OnceOnlyError, match="ONCE-E219") as refused:
            pipeline.start().writes_wide(Wide(2, lambda one: not even(one), said=said))
        ways[said] = refused.value.remedy.splitlines()[0].strip()
    former = f"start once with the old call, which loses nothing: Output(..., name='picked', {was})"
    assert ways == {odd: former, was: "restore the staging directory", "": "restore the staging directory"}
    pipeline.start().writes_wide(Wide(2, said=was), Wide(3, said=odd))
    pipeline.holds_outputs(3)


def test_what_made_an_output_is_kept_as_it_was_said_and_no_other_rows() -> None:
    said = {
        "a condition": OutputDigest("o", (), "", Digest(0), definition="where='a > 10', select=['id']").call,
        "expectations": OutputDigest(BAD, (), "", Digest(0), definition="expect={'small': 'a < 5'}").call,
        "ids": OutputDigest(SEEN_IDS, (), "", Digest(0), definition="key=['id']").call,
    }
    assert said == {
        "a condition": "Output(..., name='o', where='a > 10', select=['id'])",
        "expectations": "quality=Quality(..., expect={'small': 'a < 5'})",
        "ids": "dedupe=Dedupe(..., key=['id'])",
    }
    spoken = replace(PICKED, definition="where='a > 10'")
    assert OutputDigest.from_json(spoken.to_json()).definition == spoken.definition
    assert spoken == PICKED, "another spelling makes no other output"


@pytest.mark.parametrize("by", [1, -1])
def test_rows_that_an_output_neither_holds_nor_counts_stop_the_epoch(pipeline: Outputs, by: int) -> None:
    pipeline.start().writes_wide(1)
    with pytest.raises(OnceOnlyError, match="ONCE-E510") as refused:
        pipeline.start().writes_wide(Wide(2, filtered=by))
    assert "output picked" in str(refused.value)
    pipeline.holds_outputs(1)


def test_resolve_brings_a_sink_to_its_output_without_the_program(behind: Outputs) -> None:
    behind.resolve()
    behind.holds_outputs(2)


# ---- the durable form


[ONE] = epochs(10)
PICKED = OutputDigest("picked", ("memory:b",), "columns", Digest(4, 1, 2), 6)
DIVIDED = chain.linked(replace(ONE, outputs=(PICKED,)))


def test_an_epoch_with_outputs_comes_back_from_its_form() -> None:
    assert Epoch.from_json(DIVIDED.to_json()) == DIVIDED
    assert chain.sound(DIVIDED)
    assert "outputs" not in ONE.to_json(), "one without is spelled as ever"


@pytest.mark.parametrize(
    "other",
    [
        replace(PICKED, name="other"),
        replace(PICKED, sinks=("memory:c",)),
        replace(PICKED, schema="other columns"),
        replace(PICKED, digest=Digest(4, 1, 3)),
        replace(PICKED, filtered=5),
    ],
    ids=["name", "sinks", "schema", "digest", "filtered"],
)
def test_the_chain_covers_all_that_is_said_of_an_output(other: OutputDigest) -> None:
    assert chain.link(replace(DIVIDED, outputs=(other,))) != DIVIDED.chain


def test_a_member_that_nobody_knows_stops_a_reader() -> None:
    with pytest.raises(UnreadableMarker, match="late"):
        OutputDigest.from_json({**PICKED.to_json(), "late": 1})


def test_each_sink_has_the_digest_and_the_columns_of_what_it_holds() -> None:
    assert (DIVIDED.digest_in("memory:b"), DIVIDED.schema_in("memory:b")) == (PICKED.digest, "columns")
    assert (DIVIDED.digest_in("memory:a"), DIVIDED.schema_in("memory:a")) == (ONE.digest, ONE.schema)
