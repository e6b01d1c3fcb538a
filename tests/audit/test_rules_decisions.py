"""What an audit says of operators' decisions: each record is read, and without it the answer is another one."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.histories import (
    PIPELINE,
    SINK,
    epoch_after,
    epochs,
    ledger_of,
    relinked,
    sink_of,
    slice_,
    with_rows,
)
from tests.audit.test_rules_outputs import AWAY, BOTH, codes, held, line, said

from onceonly.audit import Facts, Verdict, judge
from onceonly.machine.acceptance import KINDS
from onceonly_checkpoints.digests import STATE, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice

TWO = epochs((10, 5))
"""Two epochs of 10 and 5 rows, up to 200 in the source."""

READERS = {kind: {"A197"} for kind in AdoptionKind} | {
    AdoptionKind.ACCEPT_LOSS: {"A121", "A197"},
    AdoptionKind.ACCEPT_CHANGE: {"A121", "A197"},
    AdoptionKind.DROP_SINK: {"A195", "A197"},
    AdoptionKind.FROM_CHECKPOINT: set[str](),
}
"""What an audit finds where the epoch of a decision stands and the decision is gone.

That of a job that was taken over has the older job's batch, like an ordinary first epoch: A116 alone tells of it.
"""


def facts_of(decided: Adoption, to: Slice | None, lacks: int) -> tuple[Facts, Facts]:
    """A line that ends with a decision, and the same line whose last epoch says nothing of it.

    Args:
        decided: the decision.
        to: where it moves the position; ``None``: nowhere.
        lacks: rows of epoch 2 that are not there.
    """
    here = Slice(TWO[-1].written.end, TWO[-1].written.end)
    last = epoch_after(TWO[-1], 0, written=to or here, adoption=decided)
    silent = relinked((*TWO, replace(last, adoption=None, carried=None)))
    with_, without = (with_rows(_facts(one), e2=5 - lacks) for one in ([*TWO, last], silent))
    return with_, without


def _facts(made: list[Epoch]) -> Facts:
    return Facts(PIPELINE, (sink_of(made),), ledger_of(made))


def decisions() -> dict[AdoptionKind, list[tuple[Adoption, Slice | None, int]]]:
    """Each kind as commands write it, with what it does to the position and the rows that are not there."""
    onward, back = slice_(200, 300), slice_(200, 100)
    of_sink = {"sinks": (SINK,), "first": 2, "last": 2}
    cases = {
        AdoptionKind.ACCEPT_LOSS: [({**of_sink, "rows": 5}, None, 5), ({"offsets": onward}, onward, 0)],
        AdoptionKind.ACCEPT_DUPLICATES: [({"first": 2, "last": 2}, back, 0)],
        AdoptionKind.ACCEPT_CHANGE: [({"sinks": (SINK,), "versions": ("7",)}, None, 5)],
        AdoptionKind.CONTINUE: [({}, onward, 0)],
        AdoptionKind.START: [({}, onward, 0)],
        AdoptionKind.SAME_DATA: [({"sinks": (SINK,)}, None, 0)],
    }
    made = {kind: cases.get(kind, [({}, None, 0)]) for kind, found in READERS.items() if found}
    return {kind: [(Adoption(kind, **named), *rest) for named, *rest in each] for kind, each in made.items()}  # type: ignore[arg-type, misc]


def test_each_decision_is_read_by_a_rule_and_its_absence_is_another_verdict() -> None:
    assert set(KINDS) <= set(decisions())
    wrong = []
    for kind, each in decisions().items():
        found = set[str]()
        for case in each:
            said_, silent = map(judge, facts_of(*case))
            if (said_.verdict, said_.exit_code) != (Verdict.EXACTLY_ONCE, 0):
                wrong.append((kind, said_.spoken, [str(finding) for finding in said_.findings]))
            if silent.verdict is Verdict.EXACTLY_ONCE or silent.exit_code == 0:
                wrong.append((kind, silent.spoken))
            found |= {finding.code for finding in silent.findings}
        if kind is not AdoptionKind.DROP_SINK and found != READERS[kind]:
            wrong.append((kind, found))
    assert wrong == []


def test_what_operators_brought_and_published_says_so() -> None:
    """Rows of state that were computed again, and those of a rerun, are of no batch either."""
    state = OutputDigest(STATE, ("memory:state",), "", Digest(3))
    brought = replace(epoch_after(TWO[-1], 3, adoption=Adoption(AdoptionKind.REBUILD_PANES)), outputs=(state,))
    rerun = replace(epoch_after(TWO[-1], 3), lineage=None, replays=ReplayedEpochs("orders~v2", 1, 2, "c"))
    assert "A197" not in {code for last in (brought, rerun) for code, _ in codes(_facts(relinked([*TWO, last])))}
    assert "A197" in {code for code, _ in codes(_facts(relinked([*TWO, replace(rerun, replays=None)])))}


def left(adoption: Adoption | None, *, confirmed: int, forgotten: bool = False) -> Facts:
    """The sink of bad rows is taken out by epoch 5, and the ledger has its receipts up to some epoch."""
    epochs = line()
    gone = epoch_after(epochs[-1], 0, adoption=adoption, sinks=(SINK,))
    both = [epoch for epoch in epochs if epoch.number <= confirmed]
    records = (
        *ledger_of(both, (SINK,) if forgotten else BOTH).records,
        *ledger_of([*epochs[confirmed:], gone]).records,
    )
    return Facts(PIPELINE, (held([*epochs, gone], SINK),), replace(ledger_of([gone]), records=records))


def test_rows_of_a_sink_that_left_are_confirmed_or_given_up_by_epoch() -> None:
    """Of epochs 3 and 4 that sink alone has 4 and 2 rows; of epoch 2 it has none."""

    def dropped(**named: int) -> Adoption:
        return Adoption(AdoptionKind.DROP_SINK, (AWAY,), **named)

    cases = {
        "confirmed all": (left(dropped(), confirmed=4), None),
        "lacks the newest": (left(dropped(), confirmed=3), 4),
        "lacks two": (left(dropped(), confirmed=2), 3),
        "lacks one without rows": (left(dropped(first=3, last=4), confirmed=1), None),
        "given up": (left(dropped(first=4, last=4, rows=2), confirmed=3), None),
        "given up in part": (left(dropped(first=4, last=4, rows=2), confirmed=2), 3),
        "a ledger that was made again says nothing": (left(dropped(), confirmed=2, forgotten=True), None),
        "nobody took it out": (left(None, confirmed=4), 5),
        "something else was decided": (left(Adoption(AdoptionKind.ACCEPT_LOSS, (SINK,), 1, 4), confirmed=4), 5),
        "its loss was accepted": (
            left(Adoption(AdoptionKind.ACCEPT_LOSS, (AWAY,), 1, 4), confirmed=4),
            5,
        ),
        "another sink was taken out": (left(Adoption(AdoptionKind.DROP_SINK, ("memory:x",)), confirmed=4), 5),
    }
    told = {case: next((at for code, at in codes(given) if code == "A195"), None) for case, (given, _) in cases.items()}
    assert told == {case: at for case, (_, at) in cases.items()}
    assert "had not confirmed epochs 3 to 4: 6 rows" in said(left(dropped(), confirmed=2), "A195")
    assert judge(left(dropped(), confirmed=3)).verdict is Verdict.IN_DOUBT
    assert "rows of epoch 4 given up, accepted" in judge(left(dropped(first=4, last=4), confirmed=3)).spoken
