"""What an audit says of the code that wrote the epochs."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.histories import PIPELINE, epochs, ledger_of, relinked, sink_of, true_facts, with_ledger

from onceonly.audit.catalogue import Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.result import judge
from onceonly_checkpoints.epoch import OutputColumns


def written_by(*versions: str) -> Facts:
    """The true history, of whose epochs each notes the version that stands here."""
    facts = true_facts()
    assert facts.ledger is not None
    records = [
        replace(one, epoch=replace(one.epoch, lineage=replace(one.epoch.lineage, version=version)))
        for one, version in zip(facts.ledger.records, versions, strict=True)
        if one.epoch.lineage is not None
    ]
    return with_ledger(facts, records=tuple(records))


def count() -> int:
    facts = true_facts()
    assert facts.ledger is not None
    return len(facts.ledger.records)


def test_epochs_of_one_code_are_not_mentioned() -> None:
    assert judge(written_by(*["a"] * count())).findings == ()


def test_epochs_are_told_by_code_and_the_verdict_stands() -> None:
    result = judge(written_by("", "a", *["b"] * (count() - 2)))
    assert result.verdict is Verdict.EXACTLY_ONCE
    [finding] = result.findings
    assert (finding.code, finding.epoch) == ("A183", 3)
    assert finding.evidence == f"epochs 2..2: version a; epochs 3..{count()}: version b"


def test_an_epoch_that_changes_columns_is_told_with_both_sides_and_the_verdict_stands() -> None:
    before, now = (("id", "int", True),), (("id", "bigint", True),)
    first, second, *rest = epochs()
    first = replace(first, columns=(OutputColumns("", before),))
    second = replace(second, columns=(OutputColumns("", now, before), OutputColumns("large", before)))
    line = relinked([first, second, *(replace(epoch, columns_since=2) for epoch in rest)])
    result = judge(Facts(PIPELINE, (sink_of(line),), ledger_of(line)))
    assert result.verdict is Verdict.EXACTLY_ONCE
    [finding] = result.findings
    assert (finding.code, finding.epoch, finding.evidence) == ("A188", 2, "id: int null -> bigint null")
