"""Every world within small bounds: the product as it is breaks nothing, and without any one of its rules something."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from onceonly.machine import precheck
from onceonly_checkpoints.digests import Digest
from onceonly_lab.checker import Anomaly
from onceonly_lab.explorer.bounds import BOUNDS, MERGED
from onceonly_lab.explorer.search import Search, described, lines, search
from onceonly_lab.model import carrier
from onceonly_lab.model.invariants import Breach
from onceonly_lab.model.parts import Harm, Kind, Target, records_in
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.sinks import REFUSED_ROW
from onceonly_lab.model.spark import RESTARTED, Damage, Source
from onceonly_lab.model.world import Bound, Program

P, D, K = Kind.POSTGRES, Kind.DELTA, Kind.KAFKA


def assert_nothing_breaks(bound: Bound) -> None:
    """Every world within a bound is visited, and no invariant is violated in any."""
    found = search(bound)
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


LARGER = pytest.mark.lab
"""The same claim within a larger bound, or of another source."""

KINDS = [
    *(((kind,), 1) for kind in (P, D, K)),
    *(pytest.param((kind,), 2, marks=LARGER) for kind in (P, D, K)),
    *(pytest.param(kinds, 1, marks=LARGER) for kinds in ((P, D), (K, P), (D, K))),
]


@pytest.mark.parametrize(("kinds", "records"), KINDS, ids=str)
def test_two_drivers_a_lost_answer_and_a_lost_ledger_break_nothing(kinds, records):
    assert_nothing_breaks(Bound(kinds, records, drivers=2, unknowns=1, ledgers=1))


DAMAGED = [
    Bound((P,), 2, drivers=2, unknowns=0, ledgers=1, damages=RESTARTED),
    pytest.param(Bound((P,), 3, drivers=2, unknowns=0, ledgers=1, damages=RESTARTED), marks=LARGER),
    pytest.param(
        Bound(
            (P,),
            2,
            drivers=2,
            unknowns=0,
            ledgers=1,
            damages=(Damage.DELETED, Damage.ROLLED_BACK, Damage.COPIED),
            source=Source(files=True),
        ),
        marks=LARGER,
    ),
]


@pytest.mark.parametrize("bound", DAMAGED, ids=described)
def test_a_damaged_checkpoint_breaks_nothing(bound):
    assert_nothing_breaks(bound)


REFRESH = Bound((P, D), 1, drivers=2, unknowns=0, damages=(Damage.REFRESHED,))


@LARGER
@pytest.mark.parametrize("source", [Source(), Source(files=True), Source(begins=True, stateful=True)], ids=str)
def test_a_full_refresh_that_replaces_leaves_the_new_series_and_nothing_else(source):
    assert_nothing_breaks(replace(REFRESH, records=2, source=source, on_refresh="replace"))


def test_a_full_refresh_stops_the_query_by_name_unless_it_may_replace():
    assert "E246" in refusals(REFRESH)
    assert "E246" not in refusals(replace(REFRESH, on_refresh="replace"))


TRIMMED = [
    (Source(begins=True), Damage.DELETED_LATER, 0),
    pytest.param(Source(begins=True), Damage.DELETED, 1, marks=pytest.mark.slow),
    pytest.param(Source(files=True), Damage.DELETED, 1, marks=pytest.mark.slow),
    pytest.param(Source(files=True), Damage.CUT_OFF, 0, marks=LARGER),
]
"""Those that are slow lie within bounds of ``make lab``, which has the files written to a Delta table."""


@pytest.mark.parametrize(("source", "damage", "ledgers"), TRIMMED, ids=str)
def test_a_damaged_checkpoint_breaks_nothing_where_rows_of_recorded_epochs_are_left_out(source, damage, ledgers):
    assert_nothing_breaks(
        Bound((P,), 3, drivers=2, unknowns=0, ledgers=ledgers, damages=(damage,), source=source, trims=True)
    )


def test_a_lost_checkpoint_of_a_topic_that_says_where_it_begins_stops_nobody_who_trims():
    trims = Bound((P,), 2, drivers=2, unknowns=0, damages=(Damage.DELETED,), source=Source(begins=True), trims=True)
    assert "E203" not in refusals(trims)
    assert "E203" in refusals(replace(trims, trims=False))


def test_input_files_that_are_gone_stop_the_query_and_break_nothing():
    gone = Bound((P,), 2, drivers=2, unknowns=0, loses_files=True, source=Source(files=True), stages=True)
    assert "E214" in refusals(gone)


def test_a_plan_with_state_and_a_lost_checkpoint_stop_the_query():
    state = Bound((P,), 2, drivers=2, unknowns=0, damages=(Damage.DELETED,), source=Source(begins=True, stateful=True))
    assert "E206" in refusals(state)


@pytest.mark.parametrize(
    ("harm", "records", "code"),
    [
        (Harm.PICKY, 1, REFUSED_ROW),
        (Harm.REPLACED, 1, "E208"),
        (Harm.HOLLOW, 1, "E219"),
        (Harm.BACK_ONE, 2, "E207"),
        (Harm.BACK_TWO, 2, "E207"),
    ],
)
def test_a_sink_that_is_harmed_stops_the_query_by_name_and_breaks_nothing(harm, records, code):
    assert code in refusals(Bound((P, D), records, drivers=2, unknowns=0, harms=(harm,)))


def test_what_a_sink_refused_goes_on_once_it_takes_it():
    searched = Search(Bound((P,), 1, drivers=1, unknowns=0, harms=(Harm.PICKY,)))
    assert searched.run().complete
    mended = [target for (target,) in searched.targets() if isinstance(target, Target) and target.held]
    assert any(target.harm == "" for target in mended)


@pytest.mark.parametrize("records", [2, pytest.param(3, marks=LARGER)])
def test_nobody_is_stopped_by_somebody_who_is_refused_where_there_is_one_job(records):
    assert_nothing_breaks(
        Bound((P,), records, drivers=2, source=Source(begins=True), programs=(Program.PLAIN,), watched=True)
    )


def test_without_the_look_before_the_fence_another_job_that_is_refused_has_stopped_the_healthy_one(monkeypatch):
    beside = Bound((P,), 2, unknowns=0, damages=(Damage.ANOTHER,), source=Source(begins=True), watched=True)
    assert search(beside).violation is None
    monkeypatch.setattr(precheck, "check_opening", lambda found, ahead=None, identities=(): None)
    found = search(beside)
    assert found.violation is not None
    assert found.violation.name is Breach.KILLED


@pytest.mark.parametrize(
    ("program", "code"), [(Program.PARTS, "E123"), (Program.WRAPPERS, "E103"), (Program.CONSTANT, "E124")]
)
def test_a_program_that_does_what_spark_never_does_is_stopped_by_name(program, code):
    assert code in refusals(Bound((P,), 2, drivers=1, unknowns=0, programs=(program,), watched=True))


@pytest.mark.parametrize("program", [one for one in Program if one.misuses])
def test_without_the_rules_about_calls_a_program_that_misuses_the_wrapper_loses_rows(program, monkeypatch):
    monkeypatch.setattr(carrier, "refusal", lambda call: "")  # every call is compared, and a second one skipped
    found = search(Bound((P,), 2, drivers=1, unknowns=0, programs=(program,)))
    assert found.violation is not None
    assert found.violation.name is Anomaly.LOSS


def refusals(bound: Bound) -> set[str]:
    """Every code with which a driver stops in some world."""
    searched = Search(bound)
    found = searched.run()
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    return searched.refusals()


@pytest.mark.slow
@pytest.mark.parametrize("name", MERGED)
def test_what_must_hold_before_a_change_is_merged_holds(name):
    assert_nothing_breaks(BOUNDS[name])


ONE_BY_ONE = [
    (replace(BOUNDS["idempotent"], records=2, drivers=2, ledgers=0), (1, 2)),
    pytest.param(BOUNDS["idempotent"], (3, 4), marks=LARGER),
]
"""Each with the rows of whoever holds its last record."""


@pytest.mark.parametrize(("bound", "rows"), ONE_BY_ONE, ids=["2 records", "4 records"])
def test_a_sink_that_takes_rows_one_by_one_holds_what_its_markers_say_wherever_its_driver_dies(bound, rows):
    searched = Search(bound)
    found = searched.run()
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    stood = {cast(Target, target) for (target,) in searched.targets()}
    assert (1, 0) in {target.rows for target in stood if not target.held}  # a first epoch was cut off amid its rows
    last = [target for target in stood if target.held and records_in(target.newest.epoch.digest) >> bound.records - 1]
    assert {target.rows for target in last} == {rows}


@pytest.mark.parametrize(
    ("sizes", "anomaly"),
    [({"off": frozenset({Rule.ROWS_WITH_MARKER})}, Anomaly.LOSS), ({"alone": False}, Anomaly.ZOMBIE)],
    ids=["the marker before the rows", "two drivers at once"],
)
def test_a_sink_that_takes_rows_one_by_one_loses_rows_where_it_is_said_to(sizes, anomaly):
    found = search(replace(BOUNDS["idempotent"], records=3, drivers=2, **sizes))
    assert found.violation is not None
    print(*lines(found), sep="\n")
    assert found.violation.name is anomaly


@pytest.mark.parametrize(("records", "unknowns"), [(1, 1), pytest.param(2, 1, marks=LARGER)])
def test_an_epoch_that_a_sink_takes_back_for_another_writer_breaks_nothing(records, unknowns):
    assert_nothing_breaks(replace(BOUNDS["conflicts"], records=records, unknowns=unknowns))


def rows_of(bound: Bound) -> set[object]:
    """Everything that can come to lie in the sinks: which epochs in which order, and who computed their rows.

    Generations are left out: a proposal that came too late is made again, and then its number is higher.
    """
    searched = Search(bound)
    assert searched.run().violation is None
    return {tuple(_rows_in(cast(Target, target)) for target in world) for world in searched.targets()}


def _rows_in(target: Target) -> tuple[object, ...]:
    return tuple((held.epoch.written, _who(held.content), held.whole) for held in target.held)


def _who(content: Digest | None) -> int | None:
    return content.low // 10_000 if content else None


TAKEN = [((P,), 1, 1), pytest.param((P,), 2, 1, marks=LARGER), ((K,), 2, 0), ((P, D), 1, 0)]


@pytest.mark.parametrize(("kinds", "records", "unknowns"), TAKEN, ids=str)
def test_steps_that_are_taken_together_reach_the_same_sinks_as_steps_taken_one_by_one(kinds, records, unknowns):
    whole = Bound(kinds, records, drivers=2, unknowns=unknowns)
    assert rows_of(whole) == rows_of(replace(whole, apart=True))


@pytest.mark.parametrize("kind", [D, pytest.param(K, marks=pytest.mark.slow)])
def test_checking_and_writing_apart_breaks_nothing(kind):
    assert_nothing_breaks(Bound((kind,), records=1, drivers=2, unknowns=1, fine=True))


ONE = {"records": 1, "unknowns": 0}
LOST = {"records": 1, "unknowns": 1}
REFRESHED = {**ONE, "damages": (Damage.REFRESHED,), "on_refresh": "replace"}
REPEATED = {"records": 2, "longest": 1, "unknowns": 0, "keys": (1, 1)}
WINDOWS = {"records": 2, "longest": 1, "unknowns": 0, "windows": True}
BROKEN = [
    (Rule.OWNER, (P,), ONE, Anomaly.ZOMBIE),
    (Rule.HIGHEST, (P,), {**ONE, "drivers": 3, "ledgers": 1}, Anomaly.ZOMBIE),
    (Rule.FENCED_COMMIT, (P,), ONE, Anomaly.ZOMBIE),
    (Rule.MARKER_WITH_ROWS, (P,), ONE, Anomaly.STUCK),
    (Rule.ROWS_WITH_MARKER, (P,), ONE, Anomaly.LOSS),
    (Rule.LOOKED_UP, (P,), {**LOST, "drivers": 1}, Anomaly.AUDIT),
    (Rule.ONE_COPY, (P,), {**LOST, "drivers": 1}, Anomaly.DUP),
    (Rule.LOCKED, (P,), {**LOST, "drivers": 1}, Anomaly.ZOMBIE),
    (Rule.ONE_HANDLE, (D,), ONE, Anomaly.ZOMBIE),
    (Rule.CLAIM, (K,), ONE, Anomaly.ZOMBIE),
    (Rule.SETTLED, (K,), LOST, Anomaly.ZOMBIE),
    (Rule.NEW_PRODUCER, (K,), {**LOST, "drivers": 1}, Anomaly.TORN),
    (Rule.STAGED, (P, D), {**ONE, "drivers": 1}, Anomaly.CROSS),
    (Rule.WHOLE, (P, D), ONE, Anomaly.TORN),
    (Rule.NAMED, (P, D), {**ONE, "drivers": 3}, Anomaly.CROSS),
    (Rule.KEPT, (P, D), ONE, Anomaly.STUCK),
    (Rule.SWEPT_LAST, (P, D), ONE, Anomaly.STUCK),
    (Rule.LINEAGE, (P,), {"unknowns": 0, "damages": (Damage.DELETED,), "source": Source(files=True)}, Anomaly.LOSS),
    (Rule.REFUSED_ROW, (P,), {**ONE, "harms": (Harm.PICKY,)}, Anomaly.STUCK),
    (Rule.HEALER_DELETES, (P, D), {**REFRESHED, "drivers": 3}, Anomaly.DUP),
    (Rule.CLEARED_WITH_MARKER, (P,), REFRESHED, Anomaly.LOSS),
    (Rule.MARKERS_OUTPUT, (P, D), {**ONE, "outputs": (0b1, 0b11)}, Anomaly.CROSS),
    (Rule.MARKERS_OUTPUT, (P, D), {**ONE, "bad": (0b0, 0b1)}, Anomaly.STUCK),
    (Rule.SET_ASIDE, (P, D), {**ONE, "drivers": 1, "bad": (0b1,)}, Anomaly.ASIDE),
    (Rule.TOGETHER, (P, P), {**ONE, "together": True}, Breach.APART),
    (Rule.EVERY_HEAD, (P, P), {**ONE, "together": True, "turns": True}, Anomaly.ZOMBIE),
    (Rule.LOCKED, (P, P), {**LOST, "drivers": 1, "together": True}, Anomaly.ZOMBIE),
    (Rule.KEPT, (P, P, D), {**ONE, "together": True}, Anomaly.STUCK),
    (Rule.SEEN_UNDER_FENCE, (P, K), REPEATED, Anomaly.AGAIN),
    (Rule.SEEN_WITH_MARKER, (P, K), REPEATED, Anomaly.AGAIN),
    (Rule.SEEN_ANEW, (P, D), {**REFRESHED, "keys": (1,)}, Anomaly.LOSS),
    (Rule.SEEN_UNDER_FENCE, (P, K), WINDOWS, Anomaly.PANE),
    (Rule.SEEN_WITH_MARKER, (P, K), WINDOWS, Anomaly.PANE),
    (Rule.SEEN_ANEW, (P, D), {**REFRESHED, "windows": True}, Anomaly.PANE),
    (Rule.GOOD_IN_WINDOWS, (P, D), {**ONE, "drivers": 1, "bad": (0b1,), "windows": True}, Anomaly.PANE),
    (Rule.TIME_WITH_MARKER, (P,), ONE, Anomaly.TIME),
    (Rule.TIME_COPIED, (P, D), ONE, Anomaly.CROSS),
    (Rule.EVERY_SINK, (P, D), {**ONE, "drivers": 1}, Anomaly.STUCK),
]
"""Each rule that is off by itself, where, and what that breaks first."""


@pytest.mark.lab
def test_each_rule_that_is_off_is_found_and_called_by_its_name():
    wrong = []
    for rule, kinds, sizes, anomaly in BROKEN:
        found = search(Bound(kinds, off=frozenset({rule}), **sizes))
        print(rule.name, *lines(found), sep="\n")
        called = found.violation and found.violation.name
        if called is not anomaly or not found.story[-1].startswith(anomaly):
            wrong.append(f"{rule.name} in {'-'.join(kinds)}: {anomaly} expected, {called} found")
    assert wrong == []


def test_what_was_read_before_the_fence_is_harmless_only_because_a_commit_looks_at_what_stands_before_it():
    stale = Bound((P,), records=1, unknowns=0, off=frozenset({Rule.FENCE_FIRST}))
    assert search(stale).violation is None
    blind = search(replace(stale, off=frozenset({Rule.FENCE_FIRST, Rule.CHAIN})))
    assert blind.violation is not None
    assert blind.violation.name is Anomaly.DUP


def test_a_batch_with_repeated_keys_comes_out_the_same_again_only_because_it_does_not_see_itself():
    """Its bytes are gone with the driver that staged them, and the keeper holds its keys already."""
    gone = Bound((P, K), **REPEATED, deterministic=True, alone=True, off=frozenset({Rule.KEPT}))
    assert "E219" not in refusals(gone)
    assert "E219" in refusals(replace(gone, off=frozenset({Rule.KEPT, Rule.SEEN_BEFORE})))


@pytest.mark.parametrize(
    ("kinds", "records", "keys"),
    [((P,), 2, (1, 1)), pytest.param((P, D), 2, (1, 1), marks=LARGER), pytest.param((P,), 3, (1, 2, 1), marks=LARGER)],
)
def test_a_full_refresh_begins_the_catalogue_of_keys_anew(kinds, records, keys):
    assert_nothing_breaks(replace(REFRESH, kinds=kinds, records=records, keys=keys, on_refresh="replace"))


def test_every_rule_is_shown_to_be_needed():
    assert {rule for rule, *_ in BROKEN} | {Rule.FENCE_FIRST, Rule.CHAIN, Rule.SEEN_BEFORE} == set(Rule)


def test_a_counterexample_is_the_shortest_and_told_in_words(capsys):
    found = search(Bound((P,), records=1, drivers=1, unknowns=1, off=frozenset({Rule.ONE_COPY})))
    assert found.story == (
        "driver A starts on the checkpoint",
        "driver A is handed batch 0, records 1 to 1, by the checkpoint",
        "driver A looks at every sink and proposes generation 1",
        "driver A reads the ledger: nothing",
        "driver A compares its batch with what it sees",
        "driver A installs generation 1 in sink 'postgres'",
        "driver A reads sink 'postgres'",
        "driver A enters itself into the ledger and sweeps staging",
        "driver A asks the ledger for batch 0: no epoch",
        "driver A commits epoch 1 to sink 'postgres', the answer is lost, it is sent again",
        "X-DUP: sink 'postgres': records 1 to 1 are in epoch 1 and again in epoch 1",
    )


def test_a_search_that_reaches_its_limit_says_that_it_is_incomplete():
    found = search(BOUNDS["sinks"], limit=0)
    assert not found.complete
    assert "incomplete" in list(lines(found))[-1]
