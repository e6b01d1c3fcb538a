"""The decision table of a rewind: every line by a test that makes it speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Pipeline, rows
from tests.core.stories import adoption, changed, epochs, opening, reading

from onceonly.errors import OnceOnlyError
from onceonly.machine.facts import Heal, Proceed, Refusal
from onceonly.machine.opening import decide_opening
from onceonly.machine.rewind import (
    BringUp,
    CutBack,
    Origin,
    OriginKind,
    RewindFacts,
    RewindRequest,
    RowsUnavailable,
    SourceRowsMissing,
    StaleMarkers,
    Step,
    UnexpectedPosition,
    UnknownTarget,
    decide,
    level,
    why,
)
from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch, ArrowRows
from onceonly.replay import rewind
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import ReplayedEpochs
from onceonly_sinks.memory import MemorySink

A, B, C = "memory:a", "memory:b", "memory:c"
LINE = changed(*epochs(10, 20, 30, 40), sinks=((A, 1), (B, 1)))
ONE, TWO, THREE, FOUR = LINE
STAGED, BROTHER, SOURCE = Origin(OriginKind.STAGED), Origin(OriginKind.SINK, B), Origin(OriginKind.SOURCE)


def facts(stands: dict[str, int], asked: RewindRequest, **options: object) -> RewindFacts:
    made = RewindFacts(asked, stands, {epoch.number: epoch for epoch in LINE}, gone={})
    return replace(made, **options)  # type: ignore[arg-type]


def elsewhere(found: object) -> tuple[str, int, RewindRequest]:
    assert isinstance(found, UnexpectedPosition), found
    return found.sink, found.sink_epoch, found.instead


def nowhere(found: object) -> tuple[str, int, bool]:
    assert isinstance(found, RowsUnavailable), found
    return found.sink, found.epoch, found.unknown


def brought(found: object) -> list[tuple[str, int, str]]:
    assert isinstance(found, BringUp), found
    assert found.newest == 4
    return [(step.sink, step.epoch.number, step.origin.text) for step in found.steps]


# ---- cut back


def test_all_sinks_at_an_epoch_are_gone_on_from_and_what_the_ledger_says_beyond_is_set_aside():
    assert decide(facts({A: 2, B: 2}, RewindRequest(2))) == CutBack(2, (3, 4))


def test_a_ledger_that_was_restored_as_well_leaves_only_the_checkpoint_to_be_cut():
    assert decide(facts({A: 4, B: 4}, RewindRequest(4))) == CutBack(4, ())


def test_another_epoch_than_the_one_where_all_stand_is_refused_with_theirs():
    assert elsewhere(decide(facts({A: 2, B: 2}, RewindRequest(3)))) == (A, 2, RewindRequest(2))


def test_a_cut_back_while_one_sink_stands_further_on_is_refused_and_names_the_ones_behind():
    assert elsewhere(decide(facts({A: 2, B: 4}, RewindRequest(2)))) == (B, 4, RewindRequest(2, (A,)))


def test_nothing_is_cut_back_to_before_the_first_epoch():
    assert isinstance(decide(facts({A: 0, B: 0}, RewindRequest(0))), UnknownTarget)


def test_a_source_that_lacks_rows_of_epochs_refuses_a_cut_back_unless_just_these_may_be_lost():
    lacking = {"gone": {4: "file f4 is gone"}}
    assert decide(facts({A: 2, B: 2}, RewindRequest(2), **lacking)) == SourceRowsMissing(4, 4, "file f4 is gone")
    assert decide(facts({A: 2, B: 2}, RewindRequest(2, lost=(4, 4)), **lacking)) == CutBack(2, (3, 4))
    assert isinstance(decide(facts({A: 2, B: 2}, RewindRequest(2, lost=(3, 3)), **lacking)), SourceRowsMissing)


def test_a_part_that_may_be_lost_is_named_again_with_the_rest_since_the_command_takes_one_range():
    lacking = {"gone": {3: "file f3 is gone", 4: "file f4 is gone"}}
    for lost in [(4, 4), (3, 3), (4, 9)]:
        assert decide(facts({A: 2, B: 2}, RewindRequest(2, lost=lost), **lacking)) == SourceRowsMissing(
            3, 4, "file f3 is gone"
        )
    assert decide(facts({A: 2, B: 2}, RewindRequest(2, lost=(3, 4)), **lacking)) == CutBack(2, (3, 4))


def test_what_the_source_lacks_of_epochs_that_stand_is_nobodys_matter():
    assert decide(facts({A: 2, B: 2}, RewindRequest(2), gone={1: "gone", 2: "gone"})) == CutBack(2, (3, 4))


def test_why_epochs_are_set_aside_names_those_that_are_given_up():
    assert why(2, ()) == "every sink was at epoch 2"
    assert why(2, {9, 3, 4}) == "every sink was at epoch 2 and the loss of epochs 3..4, 9..9 was accepted"


# ---- bring up


def test_a_sink_behind_gets_each_epoch_from_the_first_place_that_proves_it():
    said = facts({A: 1, B: 4}, RewindRequest(1, (A,)), staged={4}, readable=[A, B], code=True)
    assert brought(decide(said)) == [(A, 2, "sink:memory:b"), (A, 3, "sink:memory:b"), (A, 4, "stage")]


def test_others_are_brought_level_with_a_sink_made_anew_that_holds_what_they_lack():
    """As an operator's decision that was killed once the first sink had it; the ledger must not learn of it alone."""
    assert elsewhere(decide(facts({A: 4, B: 3}, RewindRequest(0, (A,))))) == (B, 3, RewindRequest(3, (A, B)))
    assert brought(decide(facts({A: 4, B: 3}, RewindRequest(3, (A, B)), staged={4}))) == [(B, 4, "stage")]


def test_the_code_is_asked_last():
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=True))) == [(A, 4, "source")]


@pytest.mark.parametrize("wanted", [STAGED, BROTHER, SOURCE])
def test_a_place_that_is_named_is_the_only_one_asked(wanted: Origin):
    all_ = {"staged": {4}, "readable": [B], "code": True}
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,), wanted), **all_))) == [(A, 4, wanted.text)]
    assert nowhere(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,), wanted)))) == (A, 4, False)


def test_all_sinks_are_brought_up_where_the_stage_kept_what_they_lack():
    said = facts({A: 2, B: 3}, RewindRequest(2, (A, B)), staged={3, 4})
    assert brought(decide(said)) == [(A, 3, "stage"), (A, 4, "stage"), (B, 4, "stage")]


def test_a_sink_that_is_brought_up_itself_is_nobodys_origin():
    assert nowhere(decide(facts({A: 2, B: 3}, RewindRequest(2, (A, B)), readable=[A, B]))) == (A, 3, False)


def test_a_command_that_was_killed_goes_on_where_the_sink_stands_now():
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(1, (A,)), readable=[B]))) == [(A, 4, "sink:memory:b")]
    assert brought(decide(facts({A: 4, B: 4}, RewindRequest(1, (A,))))) == []


def test_a_sink_that_lacks_more_than_was_said_is_refused():
    assert elsewhere(decide(facts({A: 1, B: 4}, RewindRequest(2, (A,))))) == (A, 1, RewindRequest(1, (A,)))
    assert elsewhere(decide(facts({A: 1, B: 0, C: 4}, RewindRequest(2, (A, B))))) == (A, 1, RewindRequest(0, (A, B)))


def test_a_sink_is_brought_level_with_one_that_lacks_epochs_itself_so_that_both_can_be_cut_back():
    found = decide(facts({A: 1, B: 3}, RewindRequest(1, (A,)), readable=[B]))
    assert isinstance(found, BringUp)
    assert (found.newest, [step.epoch.number for step in found.steps]) == (3, [2, 3])


def test_a_sink_behind_that_is_not_named_is_refused_and_named():
    found = decide(facts({A: 2, B: 1, C: 4}, RewindRequest(2, (A,)), staged={3, 4}))
    assert elsewhere(found) == (B, 1, RewindRequest(1, (A, B)))


def test_what_is_printed_for_sinks_that_were_set_back_is_a_rewind_that_is_possible():
    assert level({A: 2, B: 2}) == RewindRequest(2)
    assert level({A: 2, B: 4}) == RewindRequest(2, (A,))
    assert level({A: 2, B: 1, C: 4}) == RewindRequest(1, (A, B))
    for stands in ({A: 2, B: 2}, {A: 2, B: 4}, {A: 2, B: 1, C: 3}):
        found = decide(facts(stands, level(stands), readable=list(stands), staged={2, 3, 4}))
        assert isinstance(found, CutBack | BringUp)


def test_a_sink_that_nobody_knows_is_refused():
    assert isinstance(decide(facts({A: 2, B: 4}, RewindRequest(2, ("memory:x",)))), UnknownTarget)


def test_a_sink_whose_markers_outlived_its_target_gets_nothing_and_is_no_matter_to_another_one():
    anew = {"outlived": {A: "topic a made anew"}}
    for to in (0, 2, 4):
        assert decide(facts({A: 4, B: 4}, RewindRequest(to, (A,)), **anew)) == StaleMarkers(A, 4, "topic a made anew")
    assert brought(decide(facts({A: 4, B: 3}, RewindRequest(3, (B,)), staged={4}, **anew))) == [(B, 4, "stage")]


def test_nothing_is_cut_back_over_a_sink_whose_markers_outlived_its_target():
    for stands in ({A: 4, B: 4}, {B: 4, A: 4}, {B: 2, A: 4}):
        found = decide(facts(stands, RewindRequest(4), outlived={A: "table made anew"}))
        assert found == StaleMarkers(A, 4, "table made anew")


def test_an_epoch_that_nobody_knows_or_that_does_not_follow_has_no_origin():
    known = {number: epoch for number, epoch in enumerate(LINE, 1) if number != 3}
    assert nowhere(decide(facts({A: 2, B: 4}, RewindRequest(2, (A,)), readable=[B], epochs=known))) == (A, 3, True)
    other = chain.linked(replace(THREE, previous_chain=ONE.chain))
    known[3] = other
    assert nowhere(decide(facts({A: 2, B: 4}, RewindRequest(2, (A,)), readable=[B], epochs=known))) == (A, 3, True)


def test_a_sink_that_stands_on_another_history_gets_no_epoch_of_this_one():
    said = facts({A: 2, B: 4}, RewindRequest(2, (A,)), readable=[B])
    assert brought(decide(replace(said, chains={A: TWO.chain, B: FOUR.chain}))) == [
        (A, 3, "sink:memory:b"),
        (A, 4, "sink:memory:b"),
    ]
    found = decide(replace(said, chains={A: "of before the epoch was written again", B: FOUR.chain}))
    assert found == RowsUnavailable(A, 3, "the sink holds another epoch 2 than the one that it follows")


def test_an_epoch_whose_words_were_changed_has_no_origin():
    changed_by_hand = replace(THREE, digest=Digest(11))
    known = {1: ONE, 2: TWO, 3: changed_by_hand, 4: FOUR}
    assert nowhere(decide(facts({A: 2, B: 4}, RewindRequest(2, (A,)), readable=[B], epochs=known))) == (A, 3, True)


def test_a_sink_that_joined_later_gets_no_epoch_from_before():
    line = changed(*LINE, sinks=((A, 4), (B, 1)))
    known = {epoch.number: epoch for epoch in line}
    assert brought(decide(facts({A: 0, B: 4}, RewindRequest(0, (A,)), readable=[B], epochs=known))) == [
        (A, 4, "sink:memory:b")
    ]


def test_a_decision_of_an_operator_needs_no_rows():
    five = adoption(FOUR, "accept-loss", FOUR.written.end, first=2, last=2)
    known = {epoch.number: epoch for epoch in (*LINE, five)}
    found = decide(facts({A: 4, B: 5}, RewindRequest(4, (A,)), epochs=known))
    assert found == BringUp(5, (Step(A, five, Origin(OriginKind.NONE)),))


def test_a_sink_with_other_rows_of_an_epoch_is_no_origin():
    line = changed(*LINE, outputs=(OutputDigest("clean", (B,), "schema", Digest(4)),))
    known = {epoch.number: epoch for epoch in line}
    assert nowhere(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), readable=[B], epochs=known))) == (A, 4, False)
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), staged={4}, epochs=known))) == [(A, 4, "stage")]


def test_a_sink_is_no_origin_of_epochs_from_before_it_joined():
    line = changed(*LINE, sinks=((A, 1), (B, 4)))
    known = {epoch.number: epoch for epoch in line}
    assert nowhere(decide(facts({A: 2, B: 4}, RewindRequest(2, (A,)), readable=[B], epochs=known))) == (A, 3, False)
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), readable=[B], epochs=known))) == [
        (A, 4, "sink:memory:b")
    ]


def test_what_brings_a_sink_no_rows_is_had_from_nowhere():
    nothing = OutputDigest("clean", (A,), "schema", Digest(0))
    without = {
        "an empty epoch": replace(FOUR, digest=Digest(0)),
        "rows for the other sink alone": replace(FOUR, outputs=(nothing,)),
        "a decision of an operator": replace(adoption(THREE, "accept-loss", FOUR.written.end), digest=Digest(0)),
        "a decision that came with rows": replace(adoption(THREE, "accept-loss", FOUR.written.end), digest=FOUR.digest),
    }
    found = {}
    for what, epoch in without.items():
        known = dict(enumerate((*LINE[:3], chain.linked(epoch)), 1))
        found[what] = brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), staged={4}, epochs=known)))
    assert found == {what: [(A, 4, Origin(OriginKind.NONE).text)] for what in without}


def test_rows_that_no_plan_gave_do_not_come_from_the_source_whose_code_is_not_asked_for_either():
    never_given = {
        "no batch": {"lineage": None},
        "split into outputs": {"outputs": (OutputDigest("clean", (B,), "schema", Digest(4)),)},
        "written by a rerun": {"replays": ReplayedEpochs("orders", 1, 4, "chain")},
    }
    found = {}
    for what, changes in never_given.items():
        known = {epoch.number: epoch for epoch in changed(*LINE, **changes)}
        said = [decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=code, epochs=known)) for code in (True, False)]
        found[what] = [(nowhere(one), one.unread) for one in said if isinstance(one, RowsUnavailable)]
    assert found == {what: [((A, 4, False), False)] * 2 for what in never_given}


def test_the_source_gives_no_outputs_back():
    line = changed(*LINE, outputs=(OutputDigest("clean", (B,), "schema", Digest(4)),))
    known = {epoch.number: epoch for epoch in line}
    assert nowhere(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=True, epochs=known))) == (A, 4, False)


def test_what_a_rerun_wrote_does_not_come_from_its_source():
    line = changed(*LINE, replays=ReplayedEpochs("orders", 1, 4, "chain"))
    known = {epoch.number: epoch for epoch in line}
    assert nowhere(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=True, epochs=known))) == (A, 4, False)


def test_what_the_source_lacks_does_not_come_from_it_and_is_named():
    gone = {4: "file:/in/4.csv"}
    found = decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=True, gone=gone))
    assert found == RowsUnavailable(A, 4, "the source lacks file:/in/4.csv")
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), code=True, gone={3: "file:/in/3.csv"})))
    assert brought(decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), readable=[B], code=True, gone=gone)))
    found = decide(facts({A: 3, B: 4}, RewindRequest(3, (A,), STAGED), code=True, gone=gone))
    assert found == RowsUnavailable(A, 4, "its rows are not to be had from stage")
    found = decide(facts({A: 3, B: 4}, RewindRequest(3, (A,)), gone=gone))
    assert isinstance(found, RowsUnavailable)
    assert found.reason.startswith("its rows are staged nowhere any more"), "nobody asked the source"


def test_code_that_was_not_named_is_advised_where_it_may_help():
    told = {
        "may": facts({A: 3, B: 4}, RewindRequest(3, (A,))),
        "named": facts({A: 3, B: 4}, RewindRequest(3, (A,), STAGED)),
    }
    found = {name: decide(said) for name, said in told.items()}
    assert [isinstance(one, RowsUnavailable) and one.unread for one in found.values()] == [True, False]


# ---- the opening that it begins with


def test_an_opening_lets_those_sinks_pass_that_are_brought_level_and_no_others():
    behind = reading(ONE, known=FOUR, sink=A)
    level = reading(FOUR, known=FOUR, sink=B)
    assert isinstance(decide_opening(opening(behind, level, head=FOUR)), Refusal)
    assert decide_opening(opening(behind, level, head=FOUR, rewound=(A,))) == Proceed(FOUR)
    assert isinstance(decide_opening(opening(behind, level, head=FOUR, rewound=(B,))), Refusal)


def test_an_opening_heals_no_sink_that_is_brought_level():
    behind, level = reading(THREE, sink=A), reading(FOUR, known=FOUR, sink=B)
    assert isinstance(decide_opening(opening(behind, level, head=FOUR)), Heal)
    assert decide_opening(opening(behind, level, head=FOUR, rewound=(A,))) == Proceed(FOUR)


def test_an_opening_takes_a_sink_that_was_made_anew_if_it_is_brought_level():
    anew = reading(None, known=FOUR, sink=A, identity="table-2", rows=False)
    level = reading(FOUR, known=FOUR, sink=B)
    assert decide_opening(opening(anew, level, head=FOUR, rewound=(A,))) == Proceed(FOUR)


def test_an_opening_in_which_all_sinks_are_rewound_goes_on_from_where_they_stand():
    back = [reading(TWO, known=FOUR, sink=sink) for sink in (A, B)]
    assert decide_opening(opening(*back, head=FOUR, rewound=(A, B))) == Proceed(TWO)


# ---- carrying it out, on sinks and a ledger of this process


def of(pipeline: Pipeline) -> rewind.Pipeline:
    return rewind.Pipeline("orders", tuple(pipeline.sinks()), pipeline.ledger, CommandContext("orders", ""))


def put_back(pipeline: Pipeline, to: int, *names: str) -> None:
    """Restore stores from a backup, which knows nothing of what came after it."""
    for name in names:
        pipeline.stores[name].restore(to)
        pipeline.stores[name]._mishaps.clear()


def newest(pipeline: Pipeline) -> int:
    head = pipeline.ledger.head("orders")
    return head.epoch.number if head else 0


def refused_cut(pipeline: Pipeline, since: Callable[[Pipeline], object]) -> str:
    """The code of a cut back to epoch 2 that was planned before something happened; empty if it is carried out."""
    pipeline.driver().writes(1, 2, 3, 4)
    put_back(pipeline, 2, "a", "b")
    planned = rewind.plan(of(pipeline), RewindRequest(2))
    since(pipeline)
    stood = newest(pipeline)
    try:
        rewind.cut_back(of(pipeline), planned)
    except OnceOnlyError as refused:
        assert newest(pipeline) == stood, "the ledger was cut back by a rewind that was refused"
        return refused.code
    assert newest(pipeline) == 2
    return ""


def goes_on(pipeline: Pipeline) -> None:
    """Another operator cuts back first, and the query writes epoch 3 again."""
    rewind.cut_back(of(pipeline), rewind.plan(of(pipeline), RewindRequest(2)))
    pipeline.driver().writes(3)


def test_a_cut_back_is_refused_where_a_sink_stands_elsewhere_than_in_the_plan(tmp_path: Path):
    since = {
        "nothing happened": (lambda pipeline: None, ""),
        "the query went on": (goes_on, "E110"),
        "one sink was restored once more": (lambda pipeline: put_back(pipeline, 1, "b"), "E110"),
        "all sinks were restored once more": (lambda pipeline: put_back(pipeline, 1, "a", "b"), "E110"),
    }
    found = {
        what: refused_cut(Pipeline(tmp_path / str(at), ("a", "b")), happens)
        for at, (what, (happens, _)) in enumerate(since.items())
    }
    assert found == {what: code for what, (_, code) in since.items()}


def test_a_rewind_reads_by_spark_what_is_in_a_sink_or_in_the_source_and_nothing_else():
    steps = {origin.kind: Step(A, FOUR, origin) for origin in (STAGED, BROTHER, SOURCE, Origin(OriginKind.NONE))}
    ways = {kind: rewind.RewindPlan(BringUp(4, (step,)), {}, {}).reads for kind, step in steps.items()}
    reads = {OriginKind.SINK, OriginKind.SOURCE}
    assert ways == {kind: {kind} & reads for kind in steps}
    assert rewind.RewindPlan(CutBack(2, (3, 4)), {}, {}).reads == set()


def test_what_is_typed_in_place_of_a_cut_back_gives_up_what_lies_beyond_it(tmp_path: Path):
    pipeline = Pipeline(tmp_path, ("a", "b"))
    pipeline.driver().writes(1, 2, 3, 4)
    put_back(pipeline, 2, "a", "b")
    planned = rewind.plan(of(pipeline), RewindRequest(2))
    typed = "onceonly recover adopt orders --accept-loss 3..4 --sink memory:a --sink memory:b"
    assert rewind.instead(of(pipeline), planned) == f"\nor give the rows up: {typed}"
    nothing_beyond = replace(planned, epochs={2: planned.epochs[2]})
    assert rewind.instead(of(pipeline), nothing_beyond).startswith("\nor start the query")


class Miscounts(MemorySink):
    """Says that it took a row more than it was given."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        return ArrowRows(prepared.table, offered=prepared.rows + 1)


def test_what_a_sink_says_that_it_took_is_compared_with_what_was_committed(tmp_path: Path):
    pipeline, asked = Pipeline(tmp_path, ("a", "b")), RewindRequest(3, ("memory:b",), Origin(OriginKind.SINK, A))
    pipeline.driver().writes(1, 2, 3, 4)
    put_back(pipeline, 3, "b")
    sinks = (pipeline.sinks()[0], Miscounts("memory:b", pipeline.stores["b"]))
    told = replace(of(pipeline), sinks=sinks)
    planned = rewind.plan(told, asked)
    with pytest.raises(OnceOnlyError, match="E233"):
        rewind.bring_up(told, planned, asked, lambda steps, take: [take(step, ArrowBatch(rows(4))) for step in steps])
    assert [marker.epoch.number for marker, _ in pipeline.sinks_open()[1].history()] == [1, 2, 3]


def test_rows_that_no_other_sink_got_are_called_so():
    line = changed(*LINE, outputs=(OutputDigest("seen", (A,), "schema", Digest(4)),))
    known = {epoch.number: epoch for epoch in line}
    said = facts({A: 3, B: 4}, RewindRequest(3, (A,)), readable=[B], epochs=known)
    assert 'output "seen"' in str(rewind._alone(said, RowsUnavailable(A, 4, "")))
    assert rewind._alone(said, RowsUnavailable(B, 4, "")) is None


def test_an_epoch_is_brought_up_with_the_rows_that_were_committed_and_no_others(tmp_path: Path):
    ids = [row["id"] for row in rows(4).to_pylist()]
    given = {
        "as committed": (rows(4), ""),
        "in another order": (rows(4).take(list(range(9, -1, -1))), ""),
        "one row twice and another not": (rows(4).take([0, *range(9)]), "E233"),
        "a value changed": (pa.table({"id": ids, "text": [f"other {at}" for at in ids]}), "E233"),
        "a row less": (rows(4).slice(1), "E233"),
        "a row more": (pa.concat_tables([rows(4), rows(4).slice(0, 1)]), "E233"),
    }
    found = {}
    for at, (what, (table, _)) in enumerate(given.items()):
        pipeline, asked = (
            Pipeline(tmp_path / str(at), ("a", "b")),
            RewindRequest(3, ("memory:b",), Origin(OriginKind.SINK, A)),
        )
        pipeline.driver().writes(1, 2, 3, 4)
        put_back(pipeline, 3, "b")
        planned = rewind.plan(of(pipeline), asked)

        def give(steps: tuple[Step, ...], take: Callable[[Step, ArrowBatch], None], table: pa.Table = table) -> None:
            for step in steps:
                take(step, ArrowBatch(table))

        try:
            rewind.bring_up(of(pipeline), planned, asked, give)
            found[what] = ""
        except OnceOnlyError as refused:
            found[what] = refused.code
        held = [marker.epoch.number for marker, _ in pipeline.sinks_open()[1].history()]
        assert (what, held) == (what, [1, 2, 3] if found[what] else [1, 2, 3, 4])
    assert found == {what: code for what, (_, code) in given.items()}
