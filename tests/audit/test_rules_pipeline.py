"""Rules that compare sinks with each other, with the ledger, and with what was begun."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.audit.histories import (
    PIPELINE,
    SINK,
    at,
    entry,
    epochs,
    intent,
    ledger_of,
    record_of,
    sink_of,
    true_facts,
    with_history,
    with_ledger,
    with_sink,
    without_ledger,
)

from onceonly.audit import Verdict, judge
from onceonly.audit.catalogue import RULES, Severity
from onceonly.audit.facts import EngineFacts, Facts, LedgerFacts, SinkFacts
from onceonly.audit.finding import Finding
from onceonly.errors.codes import sections, text_of
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Fence

OTHER = "delta:orders"


def codes(facts: Facts) -> list[str]:
    return [finding.code for finding in judge(facts).findings]


def only(facts: Facts, code: str):
    found = [finding for finding in judge(facts).findings if finding.code == code]
    assert len(found) == 1, judge(facts).text
    return found[0]


def two_sinks(here: int = 4, there: int = 4) -> Facts:
    line = epochs(sinks=(SINK, OTHER))
    sinks = (sink_of(line[:here]), sink_of(line[:there], OTHER))
    return Facts(PIPELINE, sinks, ledger_of(line[: min(here, there)], (SINK, OTHER)))


def test_a_sink_that_cannot_be_read_is_said_and_the_code_is_two() -> None:
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True, unreadable="no route to host"),), None)
    result = judge(facts)
    assert only(facts, "A101").evidence == "no route to host"
    assert (result.verdict, result.exit_code) == (Verdict.CANNOT_TELL, 2)


def test_an_unreadable_sink_does_not_hide_a_gap_in_another() -> None:
    facts = two_sinks()
    broken = SinkFacts(OTHER, "delta:x", True, unreadable="no route to host")
    holed = replace(facts.sinks[0], rows={1: 10, 3: 1, 4: 12})
    result = judge(replace(facts, sinks=(holed, broken)))
    assert (result.verdict, result.exit_code) == (Verdict.GAPS, 1)


def test_nothing_written_anywhere_cannot_be_told() -> None:
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True),), None)
    assert only(facts, "A102").severity == Severity.ERROR
    assert judge(facts).exit_code == 2


def test_a_pipeline_opened_without_an_epoch_is_no_failure() -> None:
    ledger = replace(ledger_of(()), records=())
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True),), ledger)
    assert codes(facts) == ["A105"]
    assert judge(facts).exit_code == 3


def test_a_ledger_and_sinks_that_know_nothing_say_only_that_nothing_is_there() -> None:
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True),), LedgerFacts("sqlite:///l.db"))
    assert codes(facts) == ["A102"]


def test_a_missing_ledger_is_told_and_changes_nothing() -> None:
    result = judge(without_ledger(true_facts()))
    assert [finding.code for finding in result.findings] == ["A131"]
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 0)


def test_a_ledger_that_does_not_know_the_pipeline_counts_as_missing() -> None:
    assert codes(replace(true_facts(), ledger=LedgerFacts("sqlite:///other.db"))) == ["A131"]


def test_an_unreadable_ledger_is_a_warning_and_the_sinks_are_judged() -> None:
    facts = with_sink(
        replace(true_facts(), ledger=LedgerFacts("sqlite:///l.db", unreadable="disk I/O error")),
        rows={1: 10, 3: 7, 4: 1},
    )
    assert set(codes(facts)) == {"A106", "A121"}


def test_a_ledger_behind_the_sink_is_an_ordinary_crash_window() -> None:
    facts = replace(true_facts(), ledger=ledger_of(epochs()[:3]))
    assert "epochs 4 are in the sink" in only(facts, "A130").evidence
    assert judge(facts).verdict == Verdict.EXACTLY_ONCE


def test_a_ledger_ahead_of_the_sink_is_a_regressed_sink() -> None:
    line = epochs()
    facts = Facts(PIPELINE, (sink_of(line[:2]),), ledger_of(line))
    finding = only(facts, "A132")
    assert (finding.epoch, judge(facts).verdict, judge(facts).exit_code) == (3, Verdict.GAPS, 1)
    assert "epochs 3 to 4 with 19 rows" in finding.evidence


def test_an_emptied_sink_is_a_regressed_sink() -> None:
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True),), ledger_of(epochs()))
    assert only(facts, "A132").epoch == 1
    assert "holds no marker" in only(facts, "A132").evidence


def test_records_of_another_sink_do_not_make_this_one_regressed() -> None:
    line = epochs()
    records = (*(record_of(epoch) for epoch in line[:2]), *(record_of(epoch, (OTHER,)) for epoch in line[2:]))
    facts = Facts(PIPELINE, (sink_of(line[:2]),), replace(ledger_of(line), records=records))
    assert "A132" not in codes(facts)


def test_a_record_of_another_chain_is_two_histories() -> None:
    mixed = (*epochs()[:3], epochs((10, 0, 7, 13))[3])
    facts = with_ledger(true_facts(), records=ledger_of(mixed).records)
    assert only(facts, "A133").epoch == 4
    assert judge(facts).verdict == Verdict.IN_DOUBT


def test_a_receipt_of_another_table_is_found() -> None:
    records = tuple(
        replace(record, receipts=(replace(record.receipts[0], identity="table-0"),))
        for record in ledger_of(epochs()).records[:1]
    )
    facts = with_ledger(true_facts(), records=records)
    assert "table-0" in only(facts, "A134").evidence


def test_a_receipt_at_another_place_is_found() -> None:
    records = list(ledger_of(epochs()).records)
    moved = replace(records[1].receipts[0], position=(("entry", 77),))
    records[1] = replace(records[1], receipts=(moved,))
    facts = with_ledger(true_facts(), records=tuple(records))
    assert "entry 77" in only(facts, "A135").evidence


def test_an_edited_record_is_the_ledgers_problem_not_the_sinks() -> None:
    records = list(ledger_of(epochs()).records)
    records[1] = replace(records[1], epoch=replace(records[1].epoch, digest=Digest(5)))
    facts = with_ledger(true_facts(), records=tuple(records))
    assert codes(facts) == ["A136"]
    assert judge(facts).verdict == Verdict.EXACTLY_ONCE


def test_level_sinks_have_no_findings() -> None:
    assert codes(two_sinks()) == []


def test_sinks_with_different_chains_disagree() -> None:
    facts = two_sinks()
    other = sink_of(epochs((10, 0, 7, 13), (SINK, OTHER)), OTHER)
    found = replace(facts, sinks=(facts.sinks[0], other))
    assert only(found, "A140").epoch == 4


def test_a_sink_one_behind_is_in_doubt() -> None:
    facts = two_sinks(here=4, there=3)
    assert only(facts, "A141").epoch == 4
    assert judge(facts).verdict == Verdict.IN_DOUBT


def test_a_sink_several_behind_is_a_gap() -> None:
    facts = two_sinks(here=4, there=2)
    assert only(facts, "A142").epoch == 3
    assert judge(facts).verdict == Verdict.GAPS


def test_a_listed_sink_that_was_not_named_cannot_be_told() -> None:
    facts = two_sinks()
    result = judge(replace(facts, sinks=facts.sinks[:1]))
    assert [finding.code for finding in result.findings] == ["A107"]
    assert result.exit_code == 2


def test_an_intent_without_a_marker_is_in_doubt() -> None:
    facts = with_ledger(true_facts(), intent=intent(5))
    result = judge(facts)
    assert only(facts, "A150").epoch == 5
    assert (result.verdict, result.exit_code) == (Verdict.IN_DOUBT, 1)


def test_an_intent_that_got_its_marker_is_settled() -> None:
    assert codes(with_ledger(true_facts(), intent=intent(4))) == []


def test_an_intent_of_a_fenced_driver_can_no_longer_land() -> None:
    newer = with_sink(true_facts(), fence=Fence(2, "b" * 32))
    facts = with_ledger(newer, intent=intent(5))
    assert codes(facts) == ["A151"]
    assert judge(facts).exit_code == 0


def test_an_intent_for_the_first_epoch_is_in_doubt_too() -> None:
    ledger = replace(ledger_of(()), records=(), intent=intent(1))
    facts = Facts(PIPELINE, (SinkFacts(SINK, "memory:x", True, Fence(1, "a" * 32)),), ledger)
    assert "A150" in codes(facts)


def progress(batch: int, end: int, query: str = "q-1") -> EngineFacts:
    return EngineFacts("file:/ck", query, batch, at(end))


def test_batches_that_spark_finished_and_no_epoch_knows_are_a_gap() -> None:
    facts = replace(true_facts(), engine=progress(5, 600))
    result = judge(facts)
    assert [finding.code for finding in result.findings] == ["A180"]
    assert (result.verdict, result.exit_code) == (Verdict.GAPS, 1)
    assert "recover rewind orders --ledger sqlite:///l.db --to 4" in result.findings[0].remedy


@pytest.mark.parametrize(
    "engine",
    [
        progress(3, 400),
        progress(2, 300),
        progress(5, 400),
        progress(5, 600, "q-2"),
        replace(progress(5, 600), end=None),
        None,
    ],
    ids=["level", "the crash window", "the same offsets", "another query", "no offsets", "unreadable"],
)
def test_a_checkpoint_that_is_not_ahead_is_no_finding(engine: EngineFacts | None) -> None:
    assert codes(replace(true_facts(), engine=engine)) == []


def test_no_code_is_given_twice() -> None:
    headings = [heading for heading, _ in sections(text_of("findings", "onceonly.audit"))]
    assert len({heading.partition(" ")[0] for heading in headings}) == len(headings) == len(RULES)


def test_every_code_has_whole_sentences_and_a_remedy() -> None:
    facts = true_facts()
    remedies = {code: Finding(code, PIPELINE, None, 1, "seen").advised(facts).remedy for code in RULES}
    assert [code for code, rule in RULES.items() if not (rule.title.endswith(".") and rule.meaning.endswith("."))] == []
    assert {code: remedy for code, remedy in remedies.items() if not remedy or "{" in remedy} == {}


def test_findings_come_worst_first_and_then_by_epoch() -> None:
    facts = with_ledger(with_sink(true_facts(), rows={1: 10, 3: 1, 4: 1}), intent=intent(5))
    assert [(finding.code, finding.epoch) for finding in judge(facts).findings] == [
        ("A121", 3),
        ("A121", 4),
        ("A150", 5),
    ]


def test_the_dict_form_has_the_promised_keys() -> None:
    document = judge(with_sink(true_facts(), rows={1: 10, 3: 6, 4: 12})).to_json()
    assert {"schema_version", "verdict", "pipelines", "epochs", "findings"} <= document.keys()
    assert {"code", "severity", "epoch", "evidence", "remedy"} <= document["findings"][0].keys()
    assert [epoch["findings"] for epoch in document["epochs"]] == [[], [], ["A121"], []]
    assert document["epochs"][2]["sinks"][SINK] == {"marker": True, "rows": 6, "position": {"entry": 3}}


def test_the_text_form_names_verdict_code_and_next_step() -> None:
    text = judge(with_sink(true_facts(), rows={1: 10, 3: 6, 4: 12})).text
    assert text.startswith("GAPS  orders")
    assert "A121" in text
    assert "next: " in text


def test_the_history_helper_is_true_to_the_markers() -> None:
    line = epochs()
    assert with_history(true_facts(), line).sinks[0].history == tuple(entry(epoch) for epoch in line)
