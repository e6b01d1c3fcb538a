"""When a rerun is published over a pipeline: every line by a test that makes it speak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Pipeline, rows
from tests.core.stories import changed, epochs

from onceonly.errors import OnceOnlyError
from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts, decide, standing_since
from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch, ArrowRows
from onceonly.replay import publication
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, ReplayedEpochs
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.memory import MemorySink

A, B = "memory:a", "memory:b"
LINE = changed(*epochs(10, 20, 30, 40), sinks=((A, 1),))
RERUN = tuple(
    (epoch, ReplayedEpochs("orders", was.number, was.number, was.chain))
    for epoch, was in zip(changed(*epochs(10, 19, 30, 40), sinks=((B, 1),)), LINE, strict=True)
)


def facts(**options: object) -> PublishFacts:
    known = {epoch.number: epoch for epoch in LINE}
    made = PublishFacts("orders", A, LINE[-1], known, "orders~v2", RERUN, "", "ledger.db", "memory:2")
    return replace(made, **options)  # type: ignore[arg-type]


def published() -> Epoch:
    found = decide(facts())
    assert isinstance(found, Epoch), found
    return found


def said(found: Epoch | Refusal) -> tuple[str, str]:
    assert isinstance(found, Refusal), found
    return found.code, str(dict(found.details).get("reason", ""))


def test_all_rows_leave_and_the_rerun_s_come_while_the_query_stands_where_it_stood():
    found, last = published(), LINE[-1]
    assert (found.number, found.series, found.replaces, found.lineage) == (5, 5, (1, 4), None)
    assert found.digest == sum((epoch.digest for epoch, _ in RERUN), Digest(0))
    assert (found.written.start, found.written.end) == (last.written.end, last.written.end)
    assert (found.resume_point, found.sinks, found.previous_chain) == (last.resume_point, last.sinks, last.chain)
    assert found.replays == ReplayedEpochs("orders~v2", 1, 4, RERUN[-1][0].chain)
    assert chain.sound(found)


def test_a_rerun_is_published_once_also_after_the_query_went_on():
    once = published()
    assert said(decide(facts(last=once)))[0] == "E241"
    assert said(decide(facts(epochs={epoch.number: epoch for epoch in (*LINE, once)})))[0] == "E241"


def test_a_query_that_went_on_since_has_rows_that_the_rerun_lacks():
    code, reason = said(decide(facts(held=RERUN[:3])))
    assert (code, reason) == ("E240", "orders has continued to epoch 4, and the backfill ends with 3")


def test_an_epoch_that_is_another_one_now_was_not_run_again():
    ran = (*RERUN[:3], (RERUN[3][0], replace(RERUN[3][1], chain="of before the rewind")))
    code, reason = said(decide(facts(held=ran)))
    assert code == "E240"
    assert "epoch 4 of orders is no longer the one that was backfilled" in reason
    assert said(decide(facts(held=(*RERUN, (RERUN[3][0], ReplayedEpochs("orders", 9, 9, ""))))))[0] == "E240"


def test_an_operator_s_epoch_after_the_last_batch_has_no_rows_to_be_run_again():
    last = LINE[-1]
    adopted = chain.linked(
        replace(
            last,
            number=5,
            previous_chain=last.chain,
            lineage=None,
            digest=Digest(0),
            adoption=Adoption(AdoptionKind.ACCEPT_CHANGE, (A,)),
            carried=last.resume_point,
        )
    )
    found = decide(facts(last=adopted, epochs={epoch.number: epoch for epoch in (*LINE, adopted)}))
    assert isinstance(found, Epoch)
    assert found.replaces == (1, 5)


def test_a_part_of_what_stands_is_not_published():
    code, reason = said(decide(facts(held=RERUN[1:])))
    assert (code, reason) == ("E242", "it begins with epoch 2, and rows of epochs from 1 on are current as well")


def test_what_stands_before_a_rerun_is_a_batch_also_without_rows_and_rows_also_without_a_batch():
    first = {
        "a batch without rows": {"digest": Digest(0)},
        "rows of an operator": {"lineage": None},
        "neither": {"digest": Digest(0), "lineage": None},
    }
    found = {}
    for what, changes in first.items():
        line = changed(*changed(LINE[0], **changes), *LINE[1:])
        ran = [ReplayedEpochs("orders", was.number, was.number, was.chain) for was in line]
        held = tuple((epoch, one) for (epoch, _), one in zip(RERUN, ran, strict=True))
        known = {epoch.number: epoch for epoch in line}
        decided = decide(facts(last=line[-1], epochs=known, held=held[1:]))
        found[what] = "published" if isinstance(decided, Epoch) else said(decided)[0]
    assert found == {"a batch without rows": "E242", "rows of an operator": "E242", "neither": "published"}


def test_epochs_of_a_pipeline_that_is_a_rerun_itself_stand_from_its_first_one_on():
    line = changed(*LINE, replays=ReplayedEpochs("shipments", 1, 1, "chain"))
    assert standing_since(line[-1], {epoch.number: epoch for epoch in line}) == 1
    assert standing_since(LINE[-1], {epoch.number: epoch for epoch in LINE}) == 1


def test_rows_that_were_split_before_a_refresh_have_left():
    split = (OutputDigest("clean", (A,), "s", Digest(1)),)
    line = changed(*changed(*LINE[:2], outputs=split), *(replace(epoch, series=3) for epoch in LINE[2:]))
    ran = [ReplayedEpochs("orders", was.number, was.number, was.chain) for was in line]
    held = tuple((epoch, one) for (epoch, _), one in zip(RERUN, ran, strict=True))[2:]
    known = {epoch.number: epoch for epoch in line}
    assert isinstance(decide(facts(last=line[-1], epochs=known, held=held)), Epoch)
    known[3] = replace(line[2], outputs=split)
    assert "its rows are split" in said(decide(facts(last=line[-1], epochs=known, held=held)))[1]


def test_rows_that_were_published_stand_for_the_epochs_that_had_been_run_again():
    once = published()
    after = chain.linked(
        replace(LINE[-1], number=6, previous_chain=once.chain, chain="", series=5, lineage=LINE[-1].lineage)
    )
    known = {epoch.number: epoch for epoch in (*LINE, once, after)}
    ran = (after, ReplayedEpochs("orders", 6, 6, after.chain))
    code, reason = said(decide(facts(last=after, epochs=known, held=(ran,), name="orders~v3")))
    assert (code, reason) == ("E242", "it begins with epoch 6, and rows of epochs from 1 on are current as well")
    whole = decide(facts(last=after, epochs=known, held=(*RERUN, ran), name="orders~v3"))
    assert isinstance(whole, Epoch)
    assert whole.replaces == (1, 6)
    known.pop(6)
    again = decide(facts(last=once, epochs=known, name="orders~v3"))
    assert isinstance(again, Epoch)  # the same epochs, by another rerun


def test_what_the_ledger_does_not_know_may_stand():
    known = {epoch.number: epoch for epoch in LINE[2:]}
    code, reason = said(decide(facts(epochs=known, held=RERUN[2:])))
    assert (code, reason) == ("E242", "it begins with epoch 3, and the ledger does not hold epoch 1")


def test_a_rerun_that_may_begin_before_what_stands_is_refused_where_the_ledger_has_forgotten():
    """Whether the series began with a full refresh, or with a rerun over all before; or what that rerun took over."""
    later = changed(*LINE[:2], *(replace(epoch, series=3) for epoch in LINE[2:]))
    held = tuple(
        (ran, ReplayedEpochs("orders", was.number, was.number, was.chain))
        for (ran, _), was in zip(RERUN, later, strict=True)
    )
    known = {epoch.number: epoch for epoch in later if epoch.number != 3}
    once = published()
    for last, epochs_, ran in ((later[-1], known, held), (once, {once.number: once}, RERUN)):
        code, reason = said(decide(facts(last=last, epochs=epochs_, held=ran, name="orders~v3")))
        assert code == "E242"
        assert reason.startswith("it begins with epoch 1, and the ledger has forgotten")


def test_outputs_are_told_by_the_epochs_before_an_operator_s():
    line = changed(*LINE, outputs=(OutputDigest("clean", (A,), "s", Digest(1)),))
    adopted = chain.linked(
        replace(line[-1], number=5, previous_chain=line[-1].chain, chain="", lineage=None, outputs=(), digest=Digest(0))
    )
    known = {epoch.number: epoch for epoch in (*line, adopted)}
    code, reason = said(decide(facts(last=adopted, epochs=known)))
    assert code == "E242"
    assert "its rows are split" in reason


def test_of_a_series_that_a_refresh_began_only_its_epochs_stand():
    line = changed(*LINE[:2], *(replace(epoch, series=3) for epoch in LINE[2:]))
    known = {epoch.number: epoch for epoch in line}
    ran = tuple(
        (epoch, ReplayedEpochs("orders", was.number, was.number, was.chain))
        for (epoch, _), was in zip(RERUN, line, strict=True)
    )
    assert isinstance(decide(facts(last=line[-1], epochs=known, held=ran[2:])), Epoch)
    code, reason = said(decide(facts(last=line[-1], epochs=known, held=ran)))
    assert code == "E242"
    assert "it begins with epoch 1, and the current rows with epoch 3, which replaced all before" in reason
    assert "run epochs 3..4 again" in reason


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"last": None}, "memory:a holds no epoch"),
        ({"held": ()}, "the backfill holds no epoch"),
        ({"unfit": "it has a key"}, "it has a key"),
        ({"last": replace(LINE[-1], sinks=((A, 1), (B, 1)))}, "the pipeline also writes to memory:b"),
        ({"last": replace(LINE[-1], outputs=(OutputDigest("clean", (A,), "s", Digest(1)),))}, "its rows are split"),
        ({"last": replace(LINE[-1], windows=EpochWindows("d", "m", Digest(1), 10, 0, 1))}, "put into windows"),
        (
            {
                "held": (
                    *RERUN[:3],
                    (replace(RERUN[3][0], outputs=(OutputDigest("clean", (B,), "s", Digest(1)),)), RERUN[3][1]),
                )
            },
            "its rows are split",
        ),
    ],
)
def test_rows_that_cannot_be_swapped_are_refused_with_the_reason(options: dict[str, object], reason: str):
    code, told = said(decide(facts(**options)))
    assert code == "E242"
    assert reason in told


# ---- carrying it out, on sinks and a ledger of this process


def rerun_of(pipeline: Pipeline) -> MemorySink:
    """A sink in which a rerun of all epochs has written the same rows again."""
    sink, fence, before = MemorySink("memory:again"), Fence(1, "rerun"), chain.GENESIS
    sink.open("orders~v2")
    sink.install(fence)
    for was in (record.epoch for record in pipeline.ledger.epochs("orders")):
        batch, ran = ArrowBatch(rows(was.number)), ReplayedEpochs("orders", was.number, was.number, was.chain)
        prepared = sink.prepare(batch, was.number)
        listed = {"sinks": ((sink.id, 1),), "previous_chain": before, "digest": batch.digest(), "lineage": None}
        epoch = chain.linked(replace(was, replays=ran, **listed))
        sink.commit(prepared, Marker("orders~v2", sink.id, fence, epoch))
        before = epoch.chain
    return sink


def test_rows_are_published_as_the_rerun_committed_them_or_not_at_all(tmp_path: Path):
    whole = pa.concat_tables([rows(1), rows(2)])
    given = {
        "as committed": (whole, ""),
        "in another order": (whole.take(list(range(19, -1, -1))), ""),
        "one row twice and another not": (whole.take([0, *range(19)]), "E242"),
        "a row less": (whole.slice(1), "E242"),
        "a row more": (pa.concat_tables([whole, rows(1).slice(0, 1)]), "E242"),
        "other rows": (pa.concat_tables([rows(1), rows(3)]), "E242"),
        "a column twice": (whole.append_column("id", whole.column("id")), "E138"),
        "rows that cannot be read as written": (None, "E242"),
    }
    found = {}
    for at, (what, (table, _)) in enumerate(given.items()):
        pipeline = Pipeline(tmp_path / str(at), ("a",))
        pipeline.driver().writes(1, 2)
        [sink] = pipeline.sinks()
        of = publication.Publication("orders", sink, "orders~v2", rerun_of(pipeline), pipeline.ledger)
        try:
            publication.swap(of, publication.plan(of), None if table is None else ArrowBatch(table))
            found[what] = ""
        except OnceOnlyError as refused:
            found[what] = refused.code
        held = [marker.epoch.number for marker, _ in pipeline.sinks_open()[0].history()]
        assert (what, held) == (what, [1, 2] if found[what] else [1, 2, 3])
    assert found == {what: code for what, (_, code) in given.items()}


class Miscounts(MemorySink):
    """Says that it took a row more than it was given."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        return ArrowRows(prepared.table, offered=prepared.rows + 1)


def test_what_a_sink_says_that_it_took_is_compared_with_what_the_rerun_committed(tmp_path: Path):
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1, 2)
    of = publication.Publication(
        "orders", Miscounts("memory:a", pipeline.stores["a"]), "orders~v2", rerun_of(pipeline), pipeline.ledger
    )
    with pytest.raises(OnceOnlyError, match="E242"):
        publication.swap(of, publication.plan(of), ArrowBatch(pa.concat_tables([rows(1), rows(2)])))
    assert [marker.epoch.number for marker, _ in pipeline.sinks_open()[0].history()] == [1, 2]


def test_a_rerun_of_another_pipeline_is_not_planned(tmp_path: Path):
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1, 2)
    [sink] = pipeline.sinks()
    other = MemorySink("memory:other")
    with pytest.raises(OnceOnlyError, match="E24"):
        publication.plan(publication.Publication("orders", sink, "orders~v2", other, pipeline.ledger))


def test_a_query_that_went_on_since_the_plan_keeps_its_rows(tmp_path: Path):
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1, 2)
    [sink] = pipeline.sinks()
    rerun = rerun_of(pipeline)
    of = publication.Publication("orders", sink, "orders~v2", rerun, pipeline.ledger)
    planned = publication.plan(of)
    for chosen, code in [(replace(planned, chain="another"), "E110"), (planned, "")]:
        try:
            publication.swap(of, chosen, ArrowBatch(pa.concat_tables([rows(1), rows(2)])))
            found = ""
        except OnceOnlyError as refused:
            found = refused.code
        assert found == code
