"""Ids that were seen: what is called so, which rows repeat another, what the machine asks for, and what is recorded."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.core.stories import SINK, cut, epochs, offer, reading
from tests.core.test_coordinator import BEGIN, NEXT, ONE, TWO, UNWRITTEN, Machine

from onceonly import Dedupe, Output, Quality, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.division_rules import rows_in, unbalanced
from onceonly.machine.state import Job
from onceonly.protocol.batch import AsOf
from onceonly.quality.spark_dedupe import firsts, repeated
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD, SEEN_IDS, Digest, column_of
from onceonly_checkpoints.digests import OutputDigest as Held
from onceonly_checkpoints.epoch import Epoch
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

PG = PostgresSink("postgresql://u@h/d", table="orders")


def once(**said: Any) -> Dedupe:
    return Dedupe(**{"key": "event_id", "within": "7 days", "store": PG.table("orders_seen"), **said})


# ---- what it is called with


@pytest.mark.parametrize(
    ("said", "code", "problem"),
    [
        ({"key": ""}, "E110", "Dedupe(key='') is not understood"),
        ({"key": ()}, "E110", "Dedupe(key=()) is not understood"),
        ({"key": 3}, "E110", "Dedupe(key=3) is not understood"),
        ({"key": ["shop", 3]}, "E110", "Dedupe(key=['shop', 3]) is not understood"),
        ({"within": "a week"}, "E110", "Dedupe(within='a week') is not understood"),
        ({"within": "0 days"}, "E110", "Dedupe(within='0 days') is not understood"),
        ({"within": "1500 ms"}, "E110", "Dedupe(within='1500 ms') is not understood"),
        ({"within": 7}, "E110", "Dedupe(within=7) is not understood"),
        ({"store": None}, "E122", "The deduplication store cannot be used: store= is missing."),
        ({"store": "orders_seen"}, "E122", "store='orders_seen' cannot hold ids and be asked for them"),
        ({"store": KafkaSink("broker", "seen")}, "E122", "cannot hold ids and be asked for them"),
        ({"store": DeltaSink("/seen", key="id")}, "E122", "delta:seen was given options of its table"),
        ({"store": MemorySink(id="memory:seen")}, "E122", "cannot hold ids and be asked for them"),
        ({"store": PG.table("seen", key="id")}, "E122", "postgres:seen was given options of its table"),
        (
            {"store": PG.table("seen", tuning=PostgresTuning(epoch_column=None))},
            "E122",
            "postgres:seen was given options of its table",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) and one.startswith("E") else "",
)
def test_what_cannot_mean_anything_is_refused_when_it_is_made(said: dict[str, Any], code: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as refused:
        once(**said)
    assert refused.value.code == code


def test_a_dictionary_is_no_dedupe() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("exactly_once(dedupe={'key': 'id'}) is not understood")):
        exactly_once(PG, dedupe={"key": "id"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda kept: exactly_once(kept, dedupe=once(store=kept)),
        lambda kept: exactly_once(PG.table("orders_seen", id="postgres:other"), dedupe=once(store=kept)),
        lambda kept: exactly_once(PG.table("orders_seen", key="id"), dedupe=once(store=kept)),
        lambda kept: exactly_once(PG, Output(kept, name="few"), dedupe=once(store=kept)),
        lambda kept: exactly_once(PG, quality=Quality(expect={"a": "b"}, quarantine=kept), dedupe=once(store=kept)),
    ],
)
def test_a_table_of_ids_takes_no_rows(call: Callable[[PostgresSink], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"E122[^?]*takes rows in the same call"):
        call(PG.table("orders_seen"))


def test_a_table_of_another_database_is_another_table() -> None:
    elsewhere = PostgresSink("postgresql://u@h/e", table="orders", id="postgres:seen")
    assert "postgres:seen" in str(exactly_once(PG, dedupe=once(store=elsewhere)).explain())


def test_the_sink_of_ids_is_found_again_by_its_address() -> None:
    kept = once(store=PG.table("orders_seen", keep=Keep(markers=500))).keeper
    assert kept.address.endswith("#orders_seen?markers=500&keeps=604800%20seconds")
    assert PostgresSink.from_address(kept.address).address == kept.address
    assert not kept.capabilities.append_only


@pytest.mark.parametrize(
    "said", [{"key": "id"}, {"tuning": PostgresTuning(epoch_column="e")}, {"schema": "add_columns"}, {"apply": print}]
)
def test_what_stands_in_a_table_of_ids_is_not_the_callers_to_say(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"E122[^?]*was given options of its table"):
        once(store=PG.table("orders_seen", **said))


def test_the_promise_says_what_makes_two_rows_one_and_who_knows() -> None:
    few = Output(PG.table("few"), name="few", where="amount > 3")
    told = str(exactly_once(PG, few, dedupe=once(key=("shop", "number"))).explain())
    repeats = "without those that repeat a row by shop, number, of which one was let through in the 7 days before."
    assert told.count(repeats) == 2
    assert "output seen once: the id of each row that was let through, for 7 days." in told
    assert "a known shop, number: (shop) IS NOT NULL AND (number) IS NOT NULL" in told


def test_a_wrapper_shows_its_dedupe_and_not_the_sink_behind_it() -> None:
    shown = repr(exactly_once(PG, dedupe=once()))
    assert shown.startswith("exactly_once(PostgresSink(")
    assert shown.count("orders_seen") == 1
    assert "dedupe=Dedupe(key='event_id', within='7 days', store=PostgresSink(" in shown


# ---- which rows repeat another


def test_the_first_row_of_an_id_by_its_hash_is_let_through_whatever_order_rows_come_in() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(200):
        rows = [(draw.choice([None, *b"abcdef"]), draw.randrange(-50, 50)) for _ in range(draw.randrange(30))]
        named = [(None if one is None else bytes([one]), hash_) for one, hash_ in rows]
        known = {bytes([one]) for one in draw.sample(b"abcdef", draw.randrange(4))}
        through: list[list[tuple[bytes | None, int]]] = []
        for _ in range(2):
            draw.shuffle(named)
            told = repeated([one for one, _ in named], [hash_ for _, hash_ in named], known)
            through.append(sorted((row for row, again in zip(named, told, strict=True) if not again), key=str))
        least = {
            (one, min(hash_ for other, hash_ in named if other == one))
            for one, _ in named
            if one is not None and one not in known
        }
        without = [(one, hash_) for one, hash_ in named if one is None]
        assert through[0] == through[1] == sorted([*least, *without], key=str)


def test_of_one_row_twice_one_is_let_through() -> None:
    assert repeated([b"a", b"a", None, None], [7, 7, 7, 7], ()) == [False, True, False, False]
    assert firsts([b"a", b"a", b"b"], [7, -7, 0]) == {b"a": 1, b"b": 2}


# ---- what the machine asks for


def staged(machine: Machine) -> c.Stage:
    command = machine.asks
    assert isinstance(command, c.Stage), command
    return command


def divided(offered: Any = NEXT) -> Machine:
    return Machine(offered, coordinator.start(Job("orders", (SINK,), "us", offered, divided=True)))


def test_ids_are_compared_with_what_stood_before_the_epoch_by_the_engines_clock() -> None:
    clock = NEXT.lineage.batch_timestamp_ms
    assert staged(divided().opens().hears(c.Done())).as_of == AsOf(1, 3, clock)
    begin = divided(BEGIN).hears(c.Probed((None,)), *UNWRITTEN, c.Installed())
    begin.hears(reading(None, known=None, rows=False, identity=""), c.Indexed())
    while not isinstance(begin.asks, c.Stage):
        begin.hears(c.Recollected(()) if isinstance(begin.asks, c.Recollect) else c.Done())
    assert staged(begin).as_of == AsOf(1, 1, BEGIN.lineage.batch_timestamp_ms)


def test_ids_of_a_replaced_series_do_not_count() -> None:
    refreshed = replace(TWO, series=2, replaces=(1, 1))
    machine = divided()
    machine.state = replace(machine.state, opening=replace(machine.state.opening, last=refreshed))
    assert machine.state.series == 2
    begins = replace(machine.state, work=replace(machine.state.work, number=3, replaces=(1, 2)))
    assert begins.series == 3


def seen(good: int, again: int, offered: int) -> Held:
    return Held(SEEN_IDS, (SINK,), "columns", Digest(good), 0, repeated=Digest(again, 5, 6), offered=offered)


def test_a_row_that_is_neither_good_nor_bad_nor_repeated_stops_the_epoch() -> None:
    bad = Held(BAD, (), "", Digest(3), 10)
    assert unbalanced(Digest(10), (seen(10, 2, 15), bad)) is None
    assert unbalanced(Digest(10), (seen(10, 2, 16), bad)) == (SEEN_IDS, 15, 16)
    assert unbalanced(Digest(10), (seen(9, 2, 15), bad)) == (SEEN_IDS, 9, 10)
    assert rows_in(Digest(10), (seen(10, 2, 15), bad)) == 13
    lost = c.Staged("m", 10, Digest(10), (seen(10, 2, 13),))
    machine = divided().opens().hears(c.Done(), lost)
    assert isinstance(machine.asks, c.Refuse)
    assert machine.asks.refusal.code == "E510"


def test_a_skipped_stateful_batch_is_compared_with_all_rows_whatever_ids_are_known_by_now() -> None:
    held = chain.linked(replace(TWO, digest=Digest(7, 1, 2), outputs=(seen(7, 2, 9),)))
    replayed = offer(cut(10, 20), 1, stateful=True)
    for found, wanted in ((Digest(9, 6, 8), c.Record), (Digest(7, 1, 2), c.Refuse)):
        machine = divided(replayed).opens(held, descent=(held,)).hears(c.Recollected((held,)))
        assert machine.asks == c.Execute()
        assert isinstance(machine.hears(c.Executed(found)).asks, wanted)


# ---- the durable form


def test_an_epoch_with_repeated_rows_comes_back_from_its_form() -> None:
    [one] = epochs(10)
    told = replace(one, digest=Digest(7, 1, 2), outputs=(seen(7, 2, 9),))
    assert Epoch.from_json(told.to_json()) == told
    assert told.repeated == Digest(2, 5, 6)
    assert told.computed == Digest(9, 6, 8)
    assert told.outputs[0].text == "repeated 2"
    assert (one.repeated, one.computed) == (None, one.digest)
    assert ONE.repeated is None
    assert column_of(SEEN_IDS) == "onceonly seen"


def test_an_output_that_drops_no_rows_has_the_text_that_it_had() -> None:
    said = {"name": "few", "sinks": ["a"], "schema": "s", "digest": {"rows": 1, "high": 2, "low": 3}}
    assert Held.from_json(said).to_json() == said
