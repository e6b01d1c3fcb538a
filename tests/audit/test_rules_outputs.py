"""What an audit says of bad rows: that an epoch adds up, what was set aside, which rows may be gone by their age."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.audit.histories import FENCE, PIPELINE, SINK, epoch_after, ledger_of
from tests.audit.pages import TAKEN

from onceonly.audit import Facts, SinkFacts, Verdict, judge
from onceonly.audit.facts import Content
from onceonly.audit.page import render
from onceonly.audit.page.outcomes import grid_of
from onceonly.protocol.values import ExpiredRows, PrunedEpochs
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, Marker, Receipt

AWAY = "memory:bad"
BOTH = (SINK, AWAY)
GOOD, BROKEN = (10, 7, 12, 5), (3, 0, 4, 2)
"""Rows of four epochs, planned at 1000, 2000, 3000 and 4000 ms."""


def bad(rows: int, good: int, *, off: int = 0, rule: str = "small") -> OutputDigest:
    return OutputDigest(BAD, (AWAY,), "kept", Digest(rows, rows, rows), good + off, ((rule, rows),) if rows else ())


def line(*, off: int = 0, rule: str = "small") -> list[Epoch]:
    made: list[Epoch] = []
    for number, (good, broken) in enumerate(zip(GOOD, BROKEN, strict=True), 1):
        output = bad(broken, good, off=off if number == 3 else 0, rule=rule)
        made.append(epoch_after(made[-1] if made else None, good, sinks=BOTH, outputs=(output,)))
    return made


def held(epochs: list[Epoch], sink: str) -> SinkFacts:
    history = tuple(
        (
            Marker(PIPELINE, sink, FENCE, epoch),
            Receipt(sink, epoch.number, epoch.chain, "table-1", (("entry", epoch.number),), epoch.digest_in(sink).rows),
        )
        for epoch in epochs
    )
    rows = {epoch.number: epoch.digest_in(sink).rows for epoch in epochs}
    return SinkFacts(sink, f"{sink}#x", True, FENCE, history, rows, epochs[-1].number)


def facts(epochs: list[Epoch] | None = None, **of_quarantine: object) -> Facts:
    epochs = epochs or line()
    away = replace(held(epochs, AWAY), **of_quarantine)  # type: ignore[arg-type]
    return Facts(PIPELINE, (held(epochs, SINK), away), ledger_of(epochs, BOTH))


def codes(given: Facts) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.epoch) for finding in judge(given).findings]


def said(given: Facts, code: str) -> str:
    (finding,) = [one for one in judge(given).findings if one.code == code]
    return finding.evidence


def test_rows_that_are_set_aside_are_told_and_are_nothing_to_do() -> None:
    result = judge(facts())
    assert codes(facts()) == [("A163", 1)]
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 0)
    assert said(facts(), "A163") == "epochs 1, 3 to 4 set 9 rows aside (small 9)"
    (finding,) = result.findings
    assert finding.remedy.startswith("see their reasons: onceonly quarantine --rows --query orders")
    assert "9 rows counted" in result.scope


def test_a_bad_row_that_is_missing_in_the_quarantine_is_missing_like_any_other() -> None:
    given = facts(rows={1: 3, 2: 0, 3: 3, 4: 2})
    assert codes(given)[0] == ("A121", 3)
    assert judge(given).verdict is Verdict.GAPS
    assert codes(facts(rows={1: 3, 2: 1, 3: 4, 4: 2}))[0] == ("A122", 2)


def test_outputs_that_do_not_add_up_are_found_once_whatever_number_of_sinks_holds_them() -> None:
    given = facts(line(off=1))
    assert codes(given) == [("A160", 3), ("A163", 1)]
    assert judge(given).verdict is Verdict.IN_DOUBT
    assert said(given, "A160") == "output bad accounts for 13 rows, and 12 are good"


def test_an_output_of_good_rows_that_loses_one_is_found_too() -> None:
    picked = OutputDigest("picked", (AWAY,), "s", Digest(4), 5)
    one = epoch_after(None, 10, sinks=BOTH, outputs=(picked,))
    given = Facts(PIPELINE, (held([one], SINK), held([one], AWAY)), ledger_of([one], BOTH))
    assert codes(given) == [("A160", 1)]


# ---- rows that were kept for their time


def gone(epoch: int, rows: int, total: int, before_ms: int = 3500) -> ExpiredRows:
    return ExpiredRows(epoch, rows, total, before_ms)


def test_rows_that_are_older_than_their_time_may_be_gone() -> None:
    assert codes(facts(rows={3: 4, 4: 2}, expired=gone(1, 3, 3))) == [("A163", 1)]
    assert codes(facts(rows={3: 1, 4: 2}, expired=gone(3, 3, 6))) == [("A163", 1)]
    assert codes(facts(rows={4: 2}, expired=gone(3, 4, 7))) == [("A163", 1)]
    given = facts(rows={4: 2}, expired=gone(3, 4, 7))
    assert "7 rows of epochs up to 3 were removed after their time" in said(given, "A163")
    assert "2 rows counted there, 9 committed, 7 removed after their time" in judge(given).scope


@pytest.mark.parametrize(
    ("rows", "expired", "found"),
    [
        pytest.param({3: 4}, gone(1, 3, 3), ("A121", 4), id="a younger epoch than those that went"),
        pytest.param({3: 0, 4: 2}, gone(3, 3, 6), ("A121", 3), id="more of an epoch than went"),
        pytest.param({4: 2}, gone(3, 4, 7, before_ms=3000), ("A121", 3), id="an epoch that was not old enough"),
        pytest.param({1: 3, 3: 4, 4: 2}, gone(1, 3, 3), ("A122", 1), id="rows that went and are there"),
        pytest.param({3: 4, 4: 2}, None, ("A121", 1), id="rows that nobody says went"),
    ],
)
def test_a_row_that_went_too_early_is_missing(
    rows: dict[int, int], expired: ExpiredRows | None, found: tuple[str, int]
) -> None:
    assert codes(facts(rows=rows, expired=expired))[0] == found


def below_a_milestone(standing: int, expired: ExpiredRows | None, *, accepted: int = 0) -> Facts:
    """The markers of epochs 1 to 3 are gone; of 7 rows so many are left."""
    epochs = line()
    rows = 7 if not accepted else 4
    away = replace(held(epochs[3:], AWAY), milestone=PrunedEpochs(3, epochs[2].chain, rows, accepted), expired=expired)
    went = expired.rows if expired and expired.epoch == 4 else 0
    away = replace(away, rows={2: 0, 3: standing, 4: 2 - went})
    return Facts(PIPELINE, (held(epochs, SINK), away), None)


@pytest.mark.parametrize(
    ("standing", "expired", "code"),
    [
        (7, None, "A166"),
        (4, gone(1, 3, 3), "A166"),
        (3, gone(1, 3, 3), "A121"),
        (5, gone(1, 3, 3), "A122"),
        (4, None, "A121"),
        (0, gone(4, 1, 8, 9000), "A166"),
        (1, gone(4, 1, 8, 9000), "A122"),
    ],
)
def test_rows_below_a_milestone_are_compared_with_all_that_went(
    standing: int, expired: ExpiredRows | None, code: str
) -> None:
    assert code in [one for one, _ in codes(below_a_milestone(standing, expired))]
    assert not {"A166", "A121", "A122"} - {code} & {one for one, _ in codes(below_a_milestone(standing, expired))}


def test_rows_that_went_do_not_make_the_rest_of_their_epoch_unprovable() -> None:
    content = Content({4: Digest(2, 2, 2)}, "no types")
    given = facts(rows={3: 1, 4: 2}, expired=gone(3, 3, 6), content=content)
    assert codes(given) == [("A163", 1)]
    assert codes(replace(given, sinks=(given.sinks[0], replace(given.sinks[1], expired=gone(1, 3, 3)))))[0][0] == "A121"


# ---- the page


def test_the_page_says_what_was_set_aside_by_epoch_and_escapes_what_is_data() -> None:
    given = facts(line(rule="<b>&small"))
    page = render([(given, judge(given))], TAKEN)
    assert "9 rows of 3 epochs" in page
    assert "&lt;b&gt;&amp;small 9" in page
    assert page.count("<td>&lt;b&gt;&amp;small") == 3
    assert '"bad": {"1": {"rows": 3' in page or '"bad":{"1":{"rows":3' in page
    without = Facts(PIPELINE, (held(line(), SINK),), ledger_of(line(), BOTH))
    plain = replace(without, sinks=(held([replace(one, outputs=()) for one in line()], SINK),), ledger=None)
    assert "set aside" not in render([(plain, judge(plain))], TAKEN)


def test_what_went_after_its_time_is_no_difference_in_the_picture_of_rows() -> None:
    given = facts(rows={3: 1, 4: 2}, expired=gone(3, 3, 6))
    grid = grid_of(given, judge(given))
    assert [column.surplus for column in grid.columns] == [(0, 0)] * 4
