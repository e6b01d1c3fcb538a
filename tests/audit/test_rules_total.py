"""EXACTLY ONCE is said of rows that were counted: sinks that do not tell them by epoch, in sum or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.audit.histories import PIPELINE, SINK, epoch_after, epochs, ledger_of, sink_of, true_facts, with_sink

from onceonly.audit import Facts, Verdict, judge
from onceonly.audit.finding import exit_code_of, verdict_of
from onceonly.audit.rules_total import ids_known, rows_in_all, rows_uncounted
from onceonly.audit.sink_history import line_of
from onceonly.protocol.values import ExpiredRows, ExternalChange, Leaves, PrunedEpochs, Total
from onceonly.windows.read_results import StateFacts
from onceonly_checkpoints.digests import SEEN_IDS, STATE, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Adoption, AdoptionKind


def codes(facts: Facts) -> list[str]:
    return [finding.code for finding in judge(facts).findings]


def upserted(rows: int | None, leaves: Leaves = Leaves.ALL, **said: object) -> Facts:
    """Epochs of 10, 0, 7 and 12 rows in a table whose rows replace one another."""
    total = None if rows is None else Total(rows, leaves)
    return with_sink(true_facts(), **{"rows": None, "append_only": False, "total": total, **said})


def test_exactly_once_is_never_said_of_a_sink_that_was_not_counted() -> None:
    for facts in (upserted(None), upserted(29), upserted(500, Leaves.ANY), upserted(0, Leaves.ANY)):
        result = judge(facts)
        assert (result.verdict, codes(facts)) == (Verdict.NOT_COUNTED, ["A119"]), result.text
        assert result.text.startswith("NOT COUNTED")
        assert "by its chain; rows are not counted." in result.scope
        assert (result.exit_code, exit_code_of(result.findings, uncounted_ok=True)) == (3, 0)
    beside = sink_of(epochs(), "memory:other")
    assert judge(replace(upserted(29), sinks=(*upserted(29).sinks, beside))).verdict is Verdict.NOT_COUNTED


@pytest.mark.parametrize(
    ("rows", "leaves", "missing"),
    [
        (12, Leaves.ALL, ""),
        (11, Leaves.ALL, "11 stand, and at least 12 must: epoch 4 brought so many"),
        (0, Leaves.ALL, "0 stand, and at least 12 must"),
        (1, Leaves.SOME, ""),
        (0, Leaves.SOME, "0 stand, and at least 1 must: epoch 4 brought rows, and none removes any"),
        (0, Leaves.ANY, ""),
    ],
)
def test_an_upserted_table_with_fewer_rows_than_an_epoch_leaves_has_a_gap(
    rows: int, leaves: Leaves, missing: str
) -> None:
    result = judge(upserted(rows, leaves))
    assert (result.verdict is Verdict.GAPS, result.exit_code) == ((True, 1) if missing else (False, 3))
    assert missing in result.findings[0].evidence


def test_rows_of_the_newest_epoch_are_the_last_that_were_written_under_their_keys() -> None:
    written = {1: 5, 3: 0, 4: 11}
    facts = upserted(16, total=Total(16, Leaves.ALL, written))
    assert codes(facts) == ["A154", "A119"]
    assert judge(facts).findings[0].evidence == "epoch 4 wrote 12 rows, and 11 of them stand"
    assert codes(upserted(17, total=Total(17, Leaves.ALL, {**written, 4: 12}))) == ["A119"]
    assert codes(upserted(16, total=Total(16, Leaves.SOME, written))) == ["A119"], "an older change may have lost"
    assert codes(upserted(16, total=Total(16, Leaves.ALL, written), counted=3)) == ["A119"], (
        "a driver went on meanwhile"
    )


def test_what_an_operator_or_others_were_allowed_to_do_is_not_asked_of_the_table() -> None:
    line = [*epochs()]
    line.append(epoch_after(line[-1], 0, adoption=Adoption(AdoptionKind.ACCEPT_LOSS, sinks=(SINK,), first=1, last=4)))
    facts = with_sink(Facts(PIPELINE, (sink_of(line),), ledger_of(line)), rows=None, append_only=False)
    assert codes(with_sink(facts, total=Total(0, Leaves.ALL))) == ["A119", "A116"]


@pytest.mark.parametrize(
    ("rows", "verdict", "found"),
    [(29, Verdict.EXACTLY_ONCE, []), (30, Verdict.NOT_COUNTED, ["A119"]), (28, Verdict.GAPS, ["A154", "A119"])],
)
def test_rows_that_are_only_added_are_counted_in_sum_where_no_column_numbers_them(
    rows: int, verdict: Verdict, found: list[str]
) -> None:
    facts = upserted(rows, append_only=True)
    assert (judge(facts).verdict, codes(facts)) == (verdict, found)
    if verdict is Verdict.EXACTLY_ONCE:
        assert "29 rows counted there, 29 committed" in judge(facts).scope


def test_a_sum_counts_epochs_whose_markers_were_let_go() -> None:
    line = epochs()
    facts = with_sink(
        Facts(PIPELINE, (sink_of(line[3:]),), ledger_of(line)),
        rows=None,
        milestone=PrunedEpochs(3, line[2].chain, 17),
        total=Total(29, Leaves.ALL),
    )
    assert judge(facts).verdict is Verdict.EXACTLY_ONCE


def test_where_others_wrote_a_sum_that_fits_by_chance_proves_nothing() -> None:
    for said in ({"others": ("second",)}, {"disturbances": (ExternalChange("deleted", "DELETE", fatal=True),)}):
        facts = upserted(29, append_only=True, **said)
        assert "A120" in codes(facts)
        assert judge(facts).verdict is not Verdict.EXACTLY_ONCE


def test_a_second_pipeline_explains_rows_that_only_ever_are_added() -> None:
    assert "A120" not in codes(upserted(29, others=("second",))), "rows that replace one another are not counted anyway"


def test_epochs_that_the_sink_forgot_are_counted_in_sum_or_not_at_all() -> None:
    line = epochs()
    facts = with_sink(Facts(PIPELINE, (sink_of(line[2:]),), ledger_of(line)), rows={3: 7, 4: 12})
    assert (judge(facts).verdict, codes(facts)) == (Verdict.NOT_COUNTED, ["A119", "A103"])
    assert "of epochs 1: the sink no longer remembers" in judge(facts).text
    whole = with_sink(facts, total=Total(29, Leaves.ALL))
    assert (judge(whole).verdict, codes(whole)) == (Verdict.EXACTLY_ONCE, ["A103"])
    short = with_sink(facts, total=Total(28, Leaves.ALL))
    assert (judge(short).verdict, codes(short)[0]) == (Verdict.GAPS, "A154")


# ---- tables of ours


def ours(name: str, brought: Sequence[int], *, panes: EpochWindows | None = None, **counted: object) -> Facts:
    """A sink of ids or of state: an epoch a second, by the clock."""
    line: list[Epoch] = []
    for count in brought:
        output = OutputDigest(name, (SINK,), "ids", Digest(count, count, count))
        line.append(epoch_after(line[-1] if line else None, 50, outputs=(output,), panes=panes))
    facts = Facts(PIPELINE, (sink_of(line),), ledger_of(line))
    return with_sink(facts, **{"rows": None, "append_only": False, **counted})


def told(facts: Facts) -> list[tuple[str, int | None, str]]:
    line = line_of(facts.sinks[0], facts.ledger)
    found = [*rows_uncounted(line), *rows_in_all(line), *ids_known(line)]
    return [(one.code, one.epoch, one.text) for one in found]


def test_ids_are_counted_for_as_long_as_they_are_kept() -> None:
    whole = ours(SEEN_IDS, (3, 4, 5), rows={1: 3, 2: 4, 3: 5})
    assert told(whole) == []
    assert f"{SINK} holds epochs 1 to 3 by its chain; 12 ids counted." in judge(whole).scope
    lineage = whole.sinks[0].epochs[1].lineage
    assert lineage is not None
    aged = ExpiredRows(1, 3, 3, before_ms=lineage.batch_timestamp_ms)
    assert told(ours(SEEN_IDS, (3, 4, 5), rows={2: 4, 3: 5}, expired=aged)) == []
    gone = ours(SEEN_IDS, (3, 4, 5), rows={3: 5})
    assert told(gone) == [("A190", 1, "ids of epochs 1 to 2 are gone before their time: 7")]
    one = ours(SEEN_IDS, (3, 4, 5), rows={1: 3, 2: 3, 3: 5})
    assert told(one) == [("A190", 2, "ids of epoch 2 are gone before their time: 1")]
    assert judge(gone).verdict is Verdict.IN_DOUBT
    assert told(ours(SEEN_IDS, (3, 4, 5))) == [("A119", None, "its rows replace one another")]


def test_open_windows_are_counted_against_what_the_newest_epoch_left() -> None:
    panes = EpochWindows("d", "m", Digest(6, 1, 1), 50, 0, 1000)
    whole = ours(STATE, (3, 4), total=Total(6, Leaves.ANY), panes=panes)
    assert told(whole) == []
    assert "6 open windows counted" in judge(whole).scope
    gone = ours(STATE, (3, 4), total=Total(5, Leaves.ANY), panes=panes)
    assert told(gone) == [("A176", 2, "5 windows stand, and epoch 2 left 6")]
    hashed = with_sink(gone, state=StateFacts(Digest(5, 1, 1)))
    assert [finding.code for finding in judge(hashed).findings if finding.code == "A176"] == ["A176"], "told once"


def test_each_of_these_verdicts_has_one_code_that_it_hangs_on() -> None:
    """What these rules keep from being: a verdict without a scope, and an empty table that is called whole."""
    gone = ours(SEEN_IDS, (3, 4, 5), rows={3: 5})
    panes = EpochWindows("d", "m", Digest(6, 1, 1), 50, 0, 1000)
    wanted = {
        "EXACTLY ONCE of a sink that nobody counted": (upserted(29), {"A119"}),
        "an upserted table that is empty": (upserted(0), {"A119", "A154"}),
        "a table without a column of epochs that is short": (upserted(28, append_only=True), {"A119", "A154"}),
        "ids that are gone": (gone, {"A190"}),
        "state that is gone": (ours(STATE, (3, 4), total=Total(5, Leaves.ANY), panes=panes), {"A176"}),
    }
    for broken, (facts, rules) in wanted.items():
        found = [finding for finding in judge(facts).findings if finding.code not in {"A124", "A160"}]
        assert verdict_of(found) is not Verdict.EXACTLY_ONCE, broken
        assert verdict_of([one for one in found if one.code not in rules]) is Verdict.EXACTLY_ONCE, broken
        for rule in rules - {"A119"}:
            assert verdict_of([one for one in found if one.code != rule]) is not verdict_of(found), (broken, rule)
