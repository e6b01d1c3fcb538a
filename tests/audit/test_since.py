"""``audit --since``: from one epoch on, with everything that reaches across it."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.histories import entry, epochs, ledger_of, sink_of, true_facts, with_history, with_rows, with_sink

from onceonly.audit import AuditResult, Verdict, judge
from onceonly.audit.facts import Content, Facts
from onceonly_checkpoints.digests import Digest


def since(first: int, facts: Facts) -> AuditResult:
    return judge(replace(facts, since=first))


def codes(result: AuditResult) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.epoch) for finding in result.findings]


def test_what_is_wrong_before_it_is_not_reported() -> None:
    facts = with_rows(true_facts(), e1=9)
    assert judge(facts).verdict is Verdict.GAPS
    found = since(3, facts)
    assert (found.verdict, codes(found)) == (Verdict.EXACTLY_ONCE, [])
    assert [line.epoch.number for line in found.epochs] == [3, 4]
    assert found.scope == "memory:orders holds epochs 3 to 4; 19 rows counted there, 19 committed."
    assert found.summary()["since"] == 3


def test_what_is_wrong_from_it_on_is() -> None:
    assert codes(since(3, with_rows(true_facts(), e3=6))) == [("A121", 3)]


def test_its_predecessor_is_still_looked_at() -> None:
    line = epochs()
    other = epochs((11, 0, 7, 12))
    facts = with_history(true_facts(), (*line[:2], *other[2:]))
    assert ("A112", 3) in codes(since(3, replace(facts, ledger=None)))
    assert ("A112", 3) not in codes(since(4, replace(facts, ledger=None)))


def test_a_loss_that_began_before_it_and_reaches_over_it_is_reported() -> None:
    line = epochs()
    facts = Facts("orders", (sink_of(line[:1]),), ledger_of(line))
    [finding] = [one for one in since(3, facts).findings if one.code == "A132"]
    assert "epochs 2 to 4" in finding.evidence


def test_a_history_that_the_sink_no_longer_remembers_is_asked_for_from_it_on_only() -> None:
    line = epochs()
    facts = replace(true_facts(), ledger=None)
    facts = with_sink(facts, history=tuple(entry(epoch) for epoch in line[2:]))
    assert ("A104", 1) in codes(judge(facts))
    assert "A104" not in dict(codes(since(3, facts)))
    assert ("A104", 2) in codes(since(2, facts))


def test_nothing_from_it_on_is_no_clean_answer() -> None:
    found = since(5, true_facts())
    assert codes(found) == [("A108", None)]
    assert (found.verdict, found.exit_code) == (Verdict.CANNOT_TELL, 2)
    assert "holds no epoch from 5 on" in found.scope


# ---- what the rows hash to, on facts


def with_content(**digests: Digest) -> Facts:
    line = epochs()
    found = {epoch.number: epoch.digest for epoch in line if epoch.digest.rows}
    found |= {int(name[1:]): digest for name, digest in digests.items()}
    return with_sink(true_facts(), content=Content(found, "other types"))


def test_rows_that_hash_to_what_was_committed_are_no_finding() -> None:
    assert codes(judge(with_content())) == []


def test_rows_that_hash_to_something_else_are_in_doubt() -> None:
    found = judge(with_content(e3=Digest(7, 1, 2)))
    assert (found.verdict, codes(found)) == (Verdict.IN_DOUBT, [("A129", 3)])


def test_rows_of_another_number_are_told_once() -> None:
    facts = with_rows(with_content(e3=Digest(6, 1, 2)), e3=6)
    assert codes(judge(facts)) == [("A121", 3)]


def test_an_epoch_of_which_nothing_is_known_cannot_be_told() -> None:
    facts = with_sink(true_facts(), content=Content({}, "other types"))
    found = judge(facts)
    assert (found.verdict, found.exit_code) == (Verdict.CANNOT_TELL, 3)
    [finding] = found.findings
    assert finding.code == "A109"
    assert "epochs 1, 3 to 4: other types" in finding.evidence
