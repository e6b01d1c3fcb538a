"""What an audit says of time: a word that was taken back, one that nobody gave, and rows that came after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.audit.histories import PIPELINE, SINK, epoch_after, ledger_of, sink_of, with_sink
from tests.reading.writing import Writer

from onceonly.audit import Facts, Verdict, judge
from onceonly.audit.facts import Content
from onceonly.machine.event_time import carried
from onceonly.machine.writer_progress import WriterSet
from onceonly.protocol.row_times import RowTimes
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch_time import END, EpochTime, WriterProgress
from onceonly_sinks.memory import MemorySink, MemoryStore


def at(noted: int | None, lower: int | None = None, **said: object) -> EpochTime:
    """A word, and by default the same for the dataset."""
    lower = noted if lower is None else lower
    return EpochTime("integer", noted, lower, noted, **said)  # type: ignore[arg-type]


def mark(writer: str, noted: int | None, epoch: int = 1, turn: int = 0) -> WriterProgress:
    return WriterProgress(writer, epoch, noted, 0, turn)


def told(*times: EpochTime | None, sinks: Sequence[str] = (SINK,)) -> Facts:
    """Epochs of ten rows that say this."""
    line = [epoch_after(None, 10, time=times[0], sinks=sinks)]
    for time in times[1:]:
        line.append(epoch_after(line[-1], 10, time=time, sinks=sinks))
    return Facts(PIPELINE, tuple(sink_of(line, sink) for sink in sinks), ledger_of(line, sinks))


def codes(given: Facts) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.epoch) for finding in judge(given).findings]


def said(given: Facts) -> list[str]:
    return [finding.evidence for finding in judge(given).findings]


# ---- what is sound


@pytest.mark.parametrize(
    "times",
    [
        pytest.param((at(None), at(5), at(5), at(9)), id="a word that grows"),
        pytest.param((at(9), at(3, resets=1), at(2, resets=2)), id="each turn begins anew"),
        pytest.param((None, at(5), carried(at(5)), at(6)), id="epochs before the first word, and an operator's"),
        pytest.param((at(5), at(END)), id="a writer that is retired"),
        pytest.param((at(5), EpochTime("ms", 1, 1, 1, resets=1)), id="another unit in another turn"),
        pytest.param((at(9, 7, writers=(mark("app", 7),)), at(9, 7, writers=(mark("app", 7),))), id="of two writers"),
        pytest.param(
            (at(9, 7, writers=(mark("app", 7),)), at(9, 3, writers=(mark("app", 3, turn=1),))),
            id="another writer was put back, so that what was concluded from it is void",
        ),
        pytest.param(
            (at(9, 8, writers=(mark("app", 8),)), at(9, 8, writers=(mark("app", 8), mark("new", 2)))),
            id="a writer that joins late is not waited for until it has passed",
        ),
    ],
)
def test_time_that_keeps_its_word_is_no_finding(times: tuple[EpochTime | None, ...]) -> None:
    assert codes(told(*times)) == []
    assert judge(told(*times)).spoken == "EXACTLY ONCE"


def test_epochs_of_several_writers_that_go_back_and_come_again_are_no_finding() -> None:
    store, several = MemoryStore("clicks"), WriterSet(("web", "app"), 10)
    web, app = (Writer(name, MemorySink(store=store), several) for name in ("web", "app"))
    web.write(3, noted=3, ingest=1)
    app.write(2, noted=2, ingest=2, sees=[web])
    web.write(9, noted=9, ingest=30, sees=[app])
    assert web.newest
    web.commit((), carried(web.newest.time, turn=1), adoption="accept-loss: restored")
    web.write(5, noted=5, ingest=31, sees=[app])
    app.write(7, noted=7, ingest=32, sees=[web])
    for one in (web, app):
        facts = Facts(one.name, (sink_of(one.epochs, one.sink.id),))
        assert not {"A168", "A169", "A170", "A171"} & {code for code, _ in codes(facts)}


# ---- what is broken, each by itself


@pytest.mark.parametrize(
    ("times", "found", "evidence"),
    [
        pytest.param(
            (at(9, 7, writers=(mark("app", 9),)), at(8, 7, writers=(mark("app", 9),))),
            ("A168", 2),
            "epoch 1 noted 9, epoch 2 noted 8",
            id="noted",
        ),
        pytest.param(
            (at(9), at(None)),
            ("A168", 2),
            "epoch 1 noted 9, epoch 2 noted nothing; epoch 1 concluded 9, epoch 2 concluded nothing",
            id="all that was said",
        ),
        pytest.param(
            (at(9, writers=(mark("app", 9),)), at(9, 7, writers=(mark("app", 9),))),
            ("A168", 2),
            "epoch 1 concluded 9, epoch 2 concluded 7",
            id="lower",
        ),
        pytest.param(
            (at(9, resets=2), at(9, resets=1)), ("A168", 2), "epoch 1 is of turn 2, epoch 2 of turn 1", id="turn"
        ),
        pytest.param(
            (at(9), EpochTime("ms", 9, 9, 9)),
            ("A168", 2),
            "epoch 1 counts integer, epoch 2 ms, in one turn",
            id="unit",
        ),
        pytest.param(
            (at(9), at(9, 10)),
            ("A169", 2),
            "epoch 2 says that all before 10 is there, and noted 9",
            id="a lower that its only writer did not note",
        ),
        pytest.param(
            (at(9, 12, writers=(mark("app", 11), mark("io", None))),),
            ("A169", 1),
            "epoch 1 says that all before 12 is there, and its writers noted at most 11 (app 11, io nothing, orders 9)",
            id="a lower that none of its writers noted",
        ),
        pytest.param(
            (at(9, 7, writers=(mark("app", 7), mark("web", 8))), at(9, 8, writers=(mark("web", 8),))),
            ("A170", 2),
            "epoch 1 observed app, epoch 2 does not",
            id="a writer that is forgotten",
        ),
        pytest.param(
            (at(9), None, None),
            ("A171", 2),
            "epoch 1 says that all before 9 is there, epoch 2 says nothing",
            id="an epoch without time",
        ),
    ],
)
def test_a_broken_promise_of_time_is_named_by_its_epoch_and_is_in_doubt_of_time_alone(
    times: tuple[EpochTime | None, ...], found: tuple[str, int], evidence: str
) -> None:
    given = told(*times)
    result = judge(given)
    assert codes(given) == [found]
    assert said(given) == [evidence]
    assert (result.verdict, result.spoken) == (Verdict.EXACTLY_ONCE, "EXACTLY ONCE (time in doubt)")
    assert result.exit_code == 1
    assert result.epochs[found[1] - 1].codes == (found[0],)


def test_doubt_of_time_does_not_hide_that_rows_are_missing() -> None:
    result = judge(with_sink(told(at(9), at(8, 8)), rows={1: 10, 2: 9}))
    assert [finding.code for finding in result.findings] == ["A121", "A168"]
    assert result.spoken == "GAPS (time in doubt)"


def test_the_same_epoch_in_two_sinks_is_found_once() -> None:
    assert codes(told(at(9), at(8, 8), sinks=(SINK, "memory:copy"))) == [("A168", 2)]


def test_where_the_chain_is_cut_time_is_not_compared_with_what_is_not_the_epoch_before() -> None:
    given = told(at(9), at(8, 8))
    _, (second, receipt) = given.sinks[0].history
    foreign = replace(second, epoch=replace(second.epoch, previous_chain="f" * 64))
    history = (given.sinks[0].history[0], (foreign, receipt))
    assert not {"A168"} & {code for code, _ in codes(with_sink(given, history=history))}


def test_what_is_judged_begins_where_it_was_asked_for() -> None:
    given = replace(told(at(9), at(8, 8), at(8)), since=3)
    assert codes(given) == []


# ---- late rows


def test_late_rows_are_counted_and_are_nothing_to_do() -> None:
    late = (at(9), at(9, earliest=3, late_before=9, late_rows=2), at(9), at(9, earliest=8, late_before=9, late_rows=1))
    result = judge(told(*late, sinks=(SINK, "memory:copy")))
    (finding,) = result.findings
    assert (finding.code, finding.epoch, finding.last, result.exit_code) == ("A172", 2, 4, 0)
    assert finding.evidence == (
        "epochs 2, 4 brought 3 late rows; at worst, in epoch 2, one of 3 after all before 9 was noted"
    )
    assert result.spoken == "EXACTLY ONCE"
    assert codes(replace(told(*late), since=5)) == [("A108", None)]
    assert said(replace(told(*late), since=3))[0].startswith("epoch 4 brought 1 late row;")


# ---- what the rows themselves say, counted again


def deep(times: dict[int, RowTimes], time: EpochTime | None = None, **of_sink: object) -> Facts:
    """Ten rows by their column, of which two are late, and what a deep audit counted."""
    given = told(
        at(9), time or at(9, earliest=3, latest=9, late_before=9, late_rows=2, rows_without_time=1, column="at")
    )
    digests = {epoch.number: epoch.digest for epoch in given.sinks[0].epochs}
    return with_sink(given, content=Content(digests, times=times), **of_sink)


RIGHT = RowTimes(3, 9, 2, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (RowTimes(2, 9, 2, 1), "2 to 9, 2 late, 1 without a time"),
        (RowTimes(3, 10, 2, 1), "3 to 10, 2 late, 1 without a time"),
        (RowTimes(3, 9, 1, 1), "3 to 9, 1 late, 1 without a time"),
        (RowTimes(3, 9, 2, 0), "3 to 9, 2 late, 0 without a time"),
        (RowTimes(None, None, 0, 10), "no row has a time, 10 without"),
    ],
)
def test_rows_that_say_another_time_than_their_epoch_put_time_in_doubt(given: RowTimes, words: str) -> None:
    result = judge(deep({2: given}))
    assert [(finding.code, finding.epoch) for finding in result.findings] == [("A173", 2), ("A172", 2)]
    assert result.findings[0].evidence == f"3 to 9, 2 late, 1 without a time by the epoch; {words} by its rows"
    assert result.spoken == "EXACTLY ONCE (time in doubt)"


def test_rows_that_say_what_their_epoch_says_are_no_finding_and_neither_is_an_epoch_without_a_column() -> None:
    assert codes(deep({2: RIGHT})) == [("A172", 2)]
    assert codes(deep({}, at(9))) == []


def test_rows_whose_time_nobody_can_count_are_named_and_the_verdict_of_rows_stands() -> None:
    result = judge(deep({}))
    assert {(finding.code, finding.epoch) for finding in result.findings} == {("A172", 2), ("A174", 2)}
    assert (result.spoken, result.exit_code) == ("EXACTLY ONCE", 0)


HERE, THERE = "memory:here", "memory:there"


def dealt_out(here: RowTimes | None, there: RowTimes | None, *, over: int = 0) -> Facts:
    """Ten rows of one epoch, of which four are in one sink and six in another, and none in a third."""
    time = at(9, earliest=3, latest=9, late_before=9, late_rows=2, rows_without_time=1, column="at")
    rows = {HERE: Digest(4, 100, 70), THERE: Digest(6, 210 + over, 100)}
    outputs = [OutputDigest(sink[7:], (sink,), "schema", rows[sink], 10 - rows[sink].rows) for sink in (HERE, THERE)]
    outputs.append(OutputDigest("none", ("memory:none",), "schema", Digest(0), 10))
    epoch = epoch_after(None, 10, time=time, sinks=(HERE, THERE, "memory:none"), outputs=tuple(outputs))
    given = [sink_of([epoch], sink) for sink in (HERE, THERE)]
    for number, (one, times) in enumerate(zip(given, (here, there), strict=True)):
        held = epoch.digest_in(one.id)
        content = Content({1: held}, times={1: times} if times else {})
        given[number] = replace(one, rows={1: held.rows}, content=content)
    return Facts(PIPELINE, tuple(given), None)


def in_doubt(given: Facts) -> list[str]:
    return [finding.evidence for finding in judge(given).findings if finding.code == "A173"]


def test_rows_that_are_dealt_out_to_sinks_say_together_what_their_epoch_says() -> None:
    assert in_doubt(dealt_out(RowTimes(3, 5, 2, 0), RowTimes(4, 9, 0, 1))) == []
    assert in_doubt(dealt_out(RowTimes(None, None, 0, 1), RowTimes(3, 9, 2, 0))) == []
    (words,) = in_doubt(dealt_out(RowTimes(2, 5, 2, 0), RowTimes(4, 9, 0, 1)))
    epoch, rows = "3 to 9, 2 late, 1 without a time", "2 to 9, 2 late, 1 without a time"
    assert words == f"{epoch} by the epoch; {rows} by its rows, which lie in memory:here, memory:there"


@pytest.mark.parametrize(
    "given",
    [
        dealt_out(RowTimes(2, 5, 2, 0), None),
        dealt_out(RowTimes(2, 5, 2, 0), RowTimes(4, 9, 0, 1), over=1),
    ],
    ids=["one was not counted", "other rows"],
)
def test_shares_that_are_not_known_to_be_all_rows_of_an_epoch_say_nothing_of_its_time(given: Facts) -> None:
    assert in_doubt(given) == []


def test_an_output_that_holds_all_rows_as_they_came_is_counted_like_a_sink_without_one() -> None:
    time = at(9, earliest=3, latest=9, late_before=9, late_rows=2, column="at")
    plain = epoch_after(None, 10, time=time, sinks=(HERE,))
    output = OutputDigest("all", (HERE,), plain.schema, plain.digest)
    epoch = epoch_after(None, 10, time=time, sinks=(HERE,), outputs=(output,))
    given = sink_of([epoch], HERE)
    content = Content({1: epoch.digest}, times={1: RowTimes(2, 9, 2, 0)})
    assert len(in_doubt(Facts(PIPELINE, (replace(given, content=content),), None))) == 1


def test_rows_that_are_missing_are_told_as_missing_and_not_as_of_another_time() -> None:
    told_deep = [code for code, _ in codes(deep({2: RowTimes(3, 9, 1, 1)}, rows={1: 10, 2: 9}))]
    assert ("A121" in told_deep, "A173" in told_deep) == (True, False), told_deep


def test_times_of_an_epoch_that_was_committed_while_counting_are_not_compared() -> None:
    other = RowTimes(3, 9, 1, 1)
    assert "A173" in dict(codes(deep({2: other})))
    assert "A173" not in dict(codes(deep({2: other}, counted=1)))
