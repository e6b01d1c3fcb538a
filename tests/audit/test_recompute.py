"""Certificates say of every epoch that was asked for what is known: equal, another, or why it cannot be computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import pytest
from tests.checkpoints.samples import at, epoch_after, history, lineage, record_of

from onceonly.audit.certificate import Certificate, Query, RecomputedRange, Unreadable, certify
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest
from onceonly_checkpoints.epoch import EpochRecord

PLAIN = Query(stateful=False, clock=False, nondeterministic=None)
CLOCK = replace(PLAIN, clock=True)
STATE = replace(PLAIN, stateful=True)


@dataclass
class Source:
    """What the query gives of each epoch; ``None`` where the source has lost it."""

    rows: dict[int, Digest | None]
    starts: list[range] = field(default_factory=list)

    def compute_combined(self, epochs: range, left_out: frozenset[str]) -> Digest:
        self.starts.append(epochs)
        found = [self.rows[number] for number in epochs if number in self.rows]
        if None in found:
            raise Unreadable(epochs.start, epochs.stop - 1, "gone")
        return reduce(add, (one for one in found if one), Digest(0, left_out=tuple(sorted(left_out))))

    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        self.starts.append(epochs)
        for number in epochs:
            if number in self.rows:
                digest = self.rows[number]
                if digest is None:
                    raise Unreadable(number, number, "gone")
                take(number, digest)


def of(records: Sequence[EpochRecord], **changed: Digest | None) -> Source:
    rows: dict[int, Digest | None] = {r.epoch.number: r.epoch.digest for r in records if r.epoch.lineage}
    return Source(rows | {int(number[1:]): digest for number, digest in changed.items()})


def judged(records: Sequence[EpochRecord], source: Source, query: Query = PLAIN) -> Certificate:
    return certify("orders", records, range(1, len(records) + 1), query, source)


def shown(found: Certificate) -> list[tuple[int, int, str]]:
    return [(span.first, span.last, str(span.answer)) for span in found.spans]


EQUAL, DIFFERS, CANNOT = map(str, RecomputedRange)
OTHER = Digest(10, 1, 1)


def test_a_thousand_epochs_are_one_batch() -> None:
    records = list(history(1000))
    source = of(records)
    found = judged(records, source)
    assert shown(found) == [(1, 1000, EQUAL)]
    assert found.equal
    assert len(source.starts) == 1
    assert "1000 of 1000 epochs of orders" in found.text
    assert "10000 rows" in found.text


@pytest.mark.parametrize("altered", [1, 2, 333, 500, 501, 999, 1000])
def test_an_altered_epoch_among_a_thousand_is_found_by_twelve_batches(altered: int) -> None:
    records = list(history(1000))
    source = of(records, **{f"e{altered}": OTHER})
    found = judged(records, source)
    assert [one for one in shown(found) if one[2] != EQUAL] == [(altered, altered, DIFFERS)]
    assert len(source.starts) <= 12
    assert "some have other values" in found.text


def test_the_first_of_many_differences_is_found_exactly_and_none_is_hidden() -> None:
    records = list(history(1000))
    source = of(records, **{f"e{number}": Digest(9) for number in range(400, 1001)})
    found = judged(records, source)
    assert shown(found)[:1] == [(1, 399, EQUAL)]
    assert {answer for first, _, answer in shown(found) if first >= 400} == {DIFFERS}
    assert len(source.starts) <= 12


def test_epochs_that_the_source_has_lost_are_told_and_the_others_are_computed() -> None:
    records = list(history(1000))
    source = of(records, **{f"e{number}": None for number in range(1, 301)})
    found = judged(records, source)
    assert shown(found) == [(1, 300, CANNOT), (301, 1000, EQUAL)]
    assert (found.count(RecomputedRange.CANNOT), found.count(RecomputedRange.EQUAL)) == (300, 700)
    assert len(source.starts) < 50


def test_a_source_that_has_lost_all_is_asked_twice() -> None:
    records = list(history(1000))
    source = of(records, **{f"e{number}": None for number in range(1, 1001)})
    assert shown(judged(records, source)) == [(1, 1000, CANNOT)]
    assert len(source.starts) == 2


def test_columns_that_a_digest_leaves_out_are_named() -> None:
    records = [
        replace(one, epoch=replace(one.epoch, digest=replace(one.epoch.digest, left_out=("amount",))))
        for one in history(3)
    ]
    found = judged(records, of(records))
    assert found.equal
    assert "but for what no digest sees: amount" in found.text


def test_epochs_under_a_clock_are_computed_one_by_one_and_one_that_is_gone_is_passed_over() -> None:
    records = list(history(5))
    found = judged(records, of(records, e2=None, e4=OTHER), CLOCK)
    assert shown(found) == [(1, 1, EQUAL), (2, 2, CANNOT), (3, 3, EQUAL), (4, 4, DIFFERS), (5, 5, EQUAL)]


def test_after_an_epoch_with_state_that_is_gone_nothing_is_known() -> None:
    records = list(history(5))
    assert shown(judged(records, of(records, e3=None), STATE)) == [(1, 2, EQUAL), (3, 5, CANNOT)]


def test_what_the_query_alone_does_not_give_is_not_judged() -> None:
    records = list(history(4))
    bad = OutputDigest(BAD, ("delta:bad",), "s", Digest(1), 9)
    records[1] = replace(records[1], epoch=replace(records[1].epoch, outputs=(bad,)))
    found = judged(records, of(records))
    assert shown(found) == [(1, 1, EQUAL), (2, 2, CANNOT), (3, 4, EQUAL)]
    assert "expectations" in found.text
    random = replace(PLAIN, nondeterministic="rand()")
    source = of(records)
    assert shown(judged(records, source, random)) == [(1, 4, CANNOT)]
    assert "rand()" in judged(records, source, random).text
    assert source.starts == []


@pytest.mark.parametrize("query", [PLAIN, CLOCK])
def test_an_adoption_has_no_rows_and_differs_in_nothing(query: Query) -> None:
    records = list(history(2))
    moved = record_of(epoch_after(records[-1].epoch, at(4), None, rows=0))
    after = record_of(epoch_after(moved.epoch, at(5), lineage(5)))
    assert shown(judged([*records, moved, after], of([*records, moved, after]), query)) == [(1, 4, EQUAL)]


def test_the_json_form_has_the_coverage() -> None:
    records = list(history(3))
    found = judged(records, of(records, e2=OTHER), replace(CLOCK, settings=(("zone", "UTC"),))).to_json()
    assert found["epochs"] == {EQUAL: 2, DIFFERS: 1, CANNOT: 0}
    assert found["settings"] == {"zone": "UTC"}
    assert not found["equal"]


def test_the_first_windows_that_are_others_stand_beside_their_epoch() -> None:
    records = list(history(6))
    found = judged(records, of(records, e2=OTHER, e4=OTHER, e5=OTHER), CLOCK)
    named = found.naming({5: ["f", "g"], 2: ["a", "b", "c"], 4: ["d"]})
    assert [(span.first, span.last, span.windows) for span in named.spans if span.windows] == [
        (2, 2, ("a in epoch 2", "b in epoch 2", "c in epoch 2")),
        (4, 5, ("d in epoch 4", "f in epoch 5")),
    ]
    assert "what differs: d in epoch 4, f in epoch 5" in named.text
    assert named.to_json()["ranges"][1]["windows"] == ["a in epoch 2", "b in epoch 2", "c in epoch 2"]
    assert found.naming({}) == found
