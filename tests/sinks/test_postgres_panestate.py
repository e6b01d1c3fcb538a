"""The state of windows in a table of Postgres: where it lies, in whose transaction, what it costs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run, there
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import ConfigurationError, DestinationError, IdentityError
from onceonly.protocol import HostsStores, Superseded
from onceonly.protocol.batch import ArrowBatch, AsOf
from onceonly.protocol.capabilities import StateRow, StateWanted, WindowStore
from onceonly_checkpoints.epoch import Receipt
from onceonly_lab.conformance.claims_window_state import StateRowCase, table_of
from onceonly_sinks.postgres import PostgresSink, PostgresTuning
from onceonly_sinks.postgres.load import PostgresPrepared

pytestmark = pytest.mark.postgres

ONE, TWO = StateRowCase("a", 0, 10, "one", clock=1, time=1), StateRowCase("a", 10, 20, "two", time=5)
EVERYTHING = StateWanted([ONE.place, TWO.place], ["a"], 99, 99)
INDEXES = [
    "btree (bucket)",
    "btree (key, start, stop)",
    "btree (wake_clock) WHERE (wake_clock IS NOT NULL)",
    "btree (wake_time)",
]


class State(Writer):
    """Writes state of windows, and asks for it."""

    def __init__(self, dsn: str, table: str = "target_state", generation: int = 1, **options: Any) -> None:
        super().__init__(dsn, table, generation, **{"holds": "state", **options})

    def __enter__(self) -> State:
        return self

    def keep(self, *windows: StateRowCase, gone: tuple[StateRowCase, ...] = ()) -> None:
        self.write(table_of(windows, gone))

    def asks(self, request: StateWanted = EVERYTHING, epoch: int | None = None) -> list[StateRow]:
        number = epoch or (self.last.number if self.last else 0) + 1
        return sorted(
            self.sink.read_windows(request, AsOf(1, number, 0, PIPELINE)), key=lambda row: (row.key, row.start)
        )


def kept(window: StateRowCase, epoch: int) -> StateRow:
    return StateRow(window.key, window.start, window.stop, window.body, epoch)


# ---- the table


@pytest.mark.parametrize("windows", [(ONE,), ()], ids=["state", "none yet"])
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_the_table_is_made_with_the_first_epoch_and_finds_windows_by_what_is_due(
    dsn: str, via: str, windows: tuple[StateRowCase, ...]
) -> None:
    with State(dsn, load=via) as state:
        assert state.asks() == []
        assert not there(dsn, "target_state"), "asking makes nothing"
        state.keep(*windows)
    made = run(dsn, "SELECT indexdef FROM pg_indexes WHERE tablename = 'target_state'")
    assert sorted(line.partition("USING ")[2] for (line,) in made) == INDEXES
    assert run(dsn, "SELECT reloptions FROM pg_class WHERE relname = 'target_state'") == [(["fillfactor=70"],)]


def test_a_table_of_ids_has_its_index_though_its_first_epoch_had_no_ids(dsn: str) -> None:
    none = pa.table({"id": pa.array([], pa.binary()), "at": pa.array([], pa.timestamp("us", "UTC"))})
    with Writer(dsn, "seen", keeps="1 hour") as keeper:
        keeper.write(none)
    made = run(dsn, "SELECT indexdef FROM pg_indexes WHERE tablename = 'seen'")
    assert sorted(line.partition("USING ")[2] for (line,) in made) == ["btree (at)", "btree (id)"]


@pytest.mark.parametrize("via", BOTH_WAYS)
def test_state_is_recalled_by_all_ways_in_which_rows_come(dsn: str, via: str) -> None:
    with State(dsn, load=via) as state:
        state.keep(ONE, TWO)
        state.keep(gone=(ONE,))
        assert state.asks() == [kept(TWO, 1)]


TARGETS = {"scores": "scores_state", "app.scores": "app.scores_state", 'app."a.b"': 'app."a.b_state"'}


@pytest.mark.parametrize("target", TARGETS)
def test_state_lies_beside_its_target_under_an_address_that_finds_it_again(target: str) -> None:
    pg = PostgresSink(
        "dbname=orders user=ann", target, key="id", tuning=PostgresTuning(commit_timeout=7.0, lock_timeout=3.0)
    )
    assert isinstance(pg, HostsStores)
    keeper = pg.window_store(separate=True)
    assert isinstance(keeper, WindowStore)
    assert keeper.id == f"postgres:{TARGETS[target]}"
    assert keeper.can_join(pg), "results and state are of one transaction"
    assert keeper.address.endswith("?holds=state")
    again = PostgresSink.from_address(keeper.address)
    assert (again.address, again.id) == (keeper.address, keeper.id)
    assert again._options.merge == keeper._options.merge


def test_state_beside_a_function_of_the_users_has_a_transaction_of_its_own() -> None:
    pg = PostgresSink("dbname=orders", "scores", apply=lambda cursor, staged, epoch: None)
    assert not pg.window_store(separate=True).can_join(pg)


def test_a_table_that_was_named_for_state_holds_it_and_keeps_its_id() -> None:
    pg = PostgresSink("dbname=orders", "windows", id="w")
    keeper = pg.window_store(separate=False)
    assert (keeper.id, keeper._name.text) == ("w", "windows")
    assert PostgresSink.from_address(keeper.address).address == keeper.address


def test_a_sink_that_was_told_of_other_rows_holds_no_state_and_the_way_out_does() -> None:
    pg = PostgresSink("dbname=orders", "windows", key="id")
    with pytest.raises(ConfigurationError, match=r"ONCE-E143[\s\S]*state_sink=pg\.table\(\"windows\"\)"):
        pg.window_store(separate=False)
    assert pg.table("windows").window_store(separate=False).address.endswith("?holds=state")


@pytest.mark.parametrize("name", ["x" * 57, "ä" * 28 + "x"], ids=["letters", "two bytes each"])
def test_a_name_that_would_be_too_long_is_refused_and_the_way_out_is_taken(name: str) -> None:
    fits = PostgresSink("dbname=orders", name).window_store(separate=True)
    assert fits._name.name == f"{name}_state"
    pg = PostgresSink("dbname=orders", name + "y")
    with pytest.raises(ConfigurationError, match=r"ONCE-E143[\s\S]*state_sink=pg\.table\(\"scores_state\"\)"):
        pg.window_store(separate=True)
    assert pg.table("scores_state").window_store(separate=False).id == "postgres:scores_state"


@pytest.mark.parametrize(
    "said", [{"key": "id"}, {"schema": "add_columns"}, {"tuning": PostgresTuning(epoch_column="n")}]
)
def test_a_table_of_state_is_told_nothing_else(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="ONCE-E143"):
        PostgresSink("dbname=orders", "scores_state", **said).window_store(separate=False)


TAKEN = {
    "no epochs": "id bigint",
    "other columns": "id bigint, _epoch bigint",
    "no key": "key text, start bigint, stop bigint, body text, wake_clock bigint, wake_time bigint, bucket smallint, "
    "_epoch bigint",
}


@pytest.mark.parametrize("columns", TAKEN.values(), ids=[*TAKEN])
def test_a_name_that_is_taken_by_another_table_is_refused_by_name(dsn: str, columns: str) -> None:
    run(dsn, f"CREATE TABLE target_state ({columns})")
    with pytest.raises(DestinationError, match="ONCE-E506") as refused, State(dsn) as state:
        state.asks()
    assert "target_state" in str(refused.value)


@pytest.mark.parametrize("wanted", [StateWanted([ONE.place]), StateWanted(keys=["a"]), StateWanted(wake_time=1)])
@pytest.mark.parametrize("epoch", ["NULL", "2"])
def test_a_row_that_no_epoch_before_has_written_is_refused(dsn: str, epoch: str, wanted: StateWanted) -> None:
    with State(dsn) as state:
        state.keep(ONE)
        assert state.asks(wanted) == [kept(ONE, 1)]
        run(dsn, f"UPDATE target_state SET _epoch = {epoch}")
        with pytest.raises(IdentityError, match=f"ONCE-E226[\\s\\S]*{'no epoch' if epoch == 'NULL' else 'epoch 2'}"):
            state.asks(wanted)


def test_what_is_asked_in_vain_is_said_in_our_words(dsn: str) -> None:
    with State(dsn) as state:
        state.keep(ONE)
        run(dsn, "ALTER TABLE target_state DROP COLUMN wake_time")
        with pytest.raises(DestinationError, match="ONCE-E506") as refused:
            state.asks()
    assert "wake_time" in str(refused.value)


# ---- with the rows that windows give


def together(results: Writer, state: State, table: pa.Table, windows: pa.Table) -> tuple[Receipt, ...]:
    """One epoch of both, prepared and committed in one transaction."""
    return commit(results, state, prepare(results, state, table, windows))


def prepare(results: Writer, state: State, table: pa.Table, windows: pa.Table) -> list[PostgresPrepared]:
    first = results.prepare(table)
    number = state.last.number + 1 if state.last else 1
    return [first, state.sink.prepare_joined(ArrowBatch(windows), number, [(results.sink, first)])]


def commit(results: Writer, state: State, prepared: list[PostgresPrepared]) -> tuple[Receipt, ...]:
    mine, theirs = (one.marker(held.rows) for one, held in zip((results, state), prepared, strict=True))
    try:
        receipts = results.sink.commit_joined(prepared[0], mine, [(state.sink, prepared[1], theirs)])
    finally:
        for one in prepared:
            one.abandon()
    results.last, state.last = mine.epoch, theirs.epoch
    return receipts


@pytest.mark.parametrize("said", [{}, {"key": "id"}], ids=["append", "upsert"])
def test_results_and_state_are_of_one_transaction(dsn: str, said: dict[str, Any]) -> None:
    with Writer(dsn, **said) as results, State(dsn) as state:
        together(results, state, orders(1), table_of([ONE, TWO]))
        together(results, state, orders(2), table_of([TWO], [ONE]))
        [(of_row,)] = run(dsn, "SELECT xmin::text FROM target WHERE id = 2")
        assert run(dsn, "SELECT xmin::text, start FROM target_state") == [(of_row, TWO.start)]
        assert run(dsn, "SELECT DISTINCT xmin::text FROM onceonly.head") == [(of_row,)]
        assert state.asks() == [kept(TWO, 2)]


def test_state_stays_as_it_was_where_a_result_is_refused(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint CHECK (id < 100), note text)")
    with Writer(dsn) as results, State(dsn) as state:
        together(results, state, orders(1), table_of([ONE]))
        with pytest.raises(DestinationError, match="ONCE-E503"):
            together(results, state, orders(100), table_of([TWO], [ONE]))
        assert state.asks() == [kept(ONE, 1)]
        together(results, state, orders(2), table_of([TWO], [ONE]))
        assert state.asks() == [kept(TWO, 2)]


@pytest.mark.parametrize("fenced", ["both, and wrote", "both", "results", "state"])
def test_a_zombie_that_recalled_state_commits_nothing_though_it_locked_nothing(dsn: str, fenced: str) -> None:
    """What was recalled was the state of the last epoch, or the commit finds that its head has moved."""
    with Writer(dsn) as zombie, State(dsn) as state, ExitStack() as successor:
        together(zombie, state, orders(1), table_of([ONE]))
        assert state.asks() == [kept(ONE, 1)]
        assert locks(dsn) == [], "between recall and commit nothing of the table is held"
        owner = successor.enter_context(Writer(dsn, generation=2)) if fenced != "state" else None
        keeper = successor.enter_context(State(dsn, generation=2)) if fenced != "results" else None
        if owner and keeper and fenced != "both":
            together(owner, keeper, orders(2), table_of([StateRowCase("a", 0, 10, "newer")]))
        before = rows(dsn, "target_state"), rows(dsn, "target")
        stepped = StateRowCase("a", 0, 10, "what the zombie makes of it")
        with pytest.raises(Superseded):
            commit(zombie, state, prepare(zombie, state, orders(3), table_of([stepped])))
        assert (rows(dsn, "target_state"), rows(dsn, "target")) == before


@pytest.mark.parametrize("fenced", ["results", "state"])
def test_a_zombie_that_had_prepared_results_and_state_commits_neither(dsn: str, fenced: str) -> None:
    with Writer(dsn) as zombie, State(dsn) as state:
        together(zombie, state, orders(1), table_of([ONE]))
        prepared = prepare(zombie, state, orders(2), table_of([TWO], [ONE]))
        with Writer(dsn, generation=2) if fenced == "results" else State(dsn, generation=2):
            with pytest.raises(Superseded):
                commit(zombie, state, prepared)
            assert rows(dsn, "target", "id") == [(1,)]
            assert rows(dsn, "target_state", "start") == [(0,)]


def locks(dsn: str) -> list[tuple[Any, ...]]:
    return run(dsn, "SELECT mode FROM pg_locks WHERE relation = 'target_state'::regclass AND pid <> pg_backend_pid()")


# ---- what it costs

MILLION, TOUCHED, DUE = 1_000_000, 10_000, 5_000
AT_MOST = 1.0
"""Seconds for what an epoch asks for and writes, of a million windows that are open."""


@pytest.mark.slow
@pytest.mark.parametrize("analyzed", [True, False], ids=["statistics are fresh", "statistics are of an empty table"])
def test_an_epoch_costs_what_it_touches_of_a_million_open_windows(dsn: str, analyzed: bool) -> None:
    with State(dsn, driver_limit=2**30) as state:
        state.keep(ONE)
        run(dsn, "ALTER TABLE target_state SET (autovacuum_enabled = off)")
        run(dsn, "ANALYZE target_state")
        state.write(opened(MILLION))
        if analyzed:
            run(dsn, "VACUUM ANALYZE target_state")
        took = sorted((epoch_of(state, number) for number in range(1, 6)), key=sum)
        print(f"recall and commit in ms, {'' if analyzed else 'not '}analyzed:", took)
        recall_ms, write_ms = took[len(took) // 2]
        assert recall_ms + write_ms < AT_MOST * 1000


def opened(count: int) -> pa.Table:
    """Windows that wake one after the other, the first of them soon."""
    numbers = range(count)
    body = '{"v":[1234567,"89.50"],"n":17,"pane":3,"since":1700000000000,"emitted":[1234500,"89.00"]}'
    return pa.table(
        {
            "key": pa.array([f'["user-{number % 200_000}"]' for number in numbers], pa.string()),
            "start": pa.array([number * 10 for number in numbers], pa.int64()),
            "stop": pa.array([number * 10 + 10 for number in numbers], pa.int64()),
            "body": pa.array([body] * count, pa.string()),
            "wake_clock": pa.array([number if number % 10 == 0 else None for number in numbers], pa.int64()),
            "wake_time": pa.array([100 + number for number in numbers], pa.int64()),
            "bucket": pa.array([number % 1024 for number in numbers], pa.int16()),
            "gone": pa.array([False] * count, pa.bool_()),
        }
    )


def epoch_of(state: State, number: int) -> tuple[int, int]:
    """An epoch that asks for 10,000 places and for what is due, and writes those again; milliseconds of both."""
    first = number * 50_000
    places = [(f'["user-{one % 200_000}"]', one * 10, one * 10 + 10) for one in range(first, first + TOUCHED)]
    wanted = StateWanted(places, wake_clock=DUE, wake_time=100 + DUE)
    begun = time.perf_counter()
    found = state.asks(wanted)
    recalled = time.perf_counter()
    assert len(found) == TOUCHED + DUE + 2
    state.keep(*(StateRowCase(*place, "what became of it " * 5, None, 9_000_000) for place in places))
    return round((recalled - begun) * 1000), round((time.perf_counter() - recalled) * 1000)
