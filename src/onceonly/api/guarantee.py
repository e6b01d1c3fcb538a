"""Derive the guarantee that ``.explain()`` prints.

It follows from sink, plan and source, and shows as text or as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.machine.facts import Adopt, OnRefresh
from onceonly.protocol import Sink
from onceonly.runtime import shared_transaction
from onceonly_checkpoints.digests import BAD, SEEN_IDS
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.model import pairs, position_text, table, words

if TYPE_CHECKING:
    from onceonly.spark.engine import QueryPlan
    from onceonly.spark.fingerprint import Determinism


# ---- Values that show themselves in a notebook as tables: the promise, and what the sinks answered.


class Receipts(tuple[Receipt, ...]):
    """Receipts of one epoch, one per sink. A notebook shows a table."""

    __slots__ = ()

    @property
    def html(self) -> str:
        """A table with a row for each receipt."""
        if not self:
            return words("no epoch was written in this process yet")
        rows = [
            (receipt.sink, receipt.epoch, receipt.rows, position_text(receipt.position), receipt.identity)
            for receipt in self
        ]
        return table(("sink", "epoch", "rows", "position", "identity"), rows)

    def _repr_html_(self) -> str:
        return self.html


class Report(str):
    """The guarantee of each sink, as text. A notebook shows a table with a heading for each sink."""

    __slots__ = ()

    @property
    def html(self) -> str:
        """A table: an indented line gives a word and its text, any other line a heading."""
        lines = (line.strip().partition(" ") if line.startswith(" ") else ("", "", line) for line in self.splitlines())
        return pairs((word, text.strip()) for word, _, text in lines)

    def _repr_html_(self) -> str:
        return self.html


# ---- The promise in sentences: the text behind ``.explain()``.


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee of one sink: one sentence with its reasons, and the events that break it.

    ``target`` is the full address of the sink. ``readers`` is advice for readers of the table.
    """

    promise: str
    reasons: tuple[str, ...]
    target: str
    readers: str
    weakened_by: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole report."""
        lines = [self.promise, *(f"  because  {reason}" for reason in self.reasons)]
        lines += [f"  target   {self.target}", f"  readers  {self.readers}"]
        return "\n".join([*lines, *(f"  unless   {danger}" for danger in self.weakened_by)])


@dataclass(frozen=True, slots=True)
class GuaranteeInputs:
    """The arguments that affect the guarantee.

    Attributes:
        adopt: position of a target that held rows before: ``"here"``, or the offsets that it contains.
        transform: whether the call has a ``transform=``.
        staged: whether epochs are written to files first.
        outputs: by sink id, name and words of the rows that a sink gets in place of all rows.
        checked: conditions on all rows of an epoch together, in words. Empty for none.
        expected: the rules that a bad row breaks, in words. Empty for none.
        once: the identity by which rows repeat, in words. Empty for none.
        event_time: the source of completeness, in words. Empty for none.
        further: whether a group that changes is a further row.
    """

    adopt: Adopt = None
    transform: bool = False
    staged: bool = False
    on_refresh: OnRefresh = "stop"
    outputs: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    checked: str = ""
    expected: str = ""
    once: str = ""
    event_time: str = ""
    further: bool = False


_ALIKE = {
    False: "All sinks get the same bytes",
    True: "All sinks get their rows from the same bytes, each row that a side output leaves out is counted",
}
"""By whether there are outputs."""


def explain(sinks: Sequence[Sink], plan: QueryPlan | None, written: Determinism | None, chosen: GuaranteeInputs) -> str:
    """The reports of all sinks of a pipeline.

    ``plan`` is ``None`` until the query has started, and ``written`` before the first batch.
    """
    reports = [derive(sink, plan, written, chosen).text for sink in sinks]
    if len(sinks) > 1:
        reports.append(f"{_ALIKE[bool(chosen.outputs)]}: {_committed(sinks)}")
    elif chosen.staged:
        reports.append("Each epoch is staged first, and committed from there: it need not fit into the driver.")
    if chosen.on_refresh == "replace":
        reports.append(
            "A full refresh replaces: the old rows leave each sink with the first new ones.\n"
            "  readers  then see a table that refills, until the query has caught up\n"
            "  unless   the source no longer holds the rows of the sinks: these are then lost"
        )
    if chosen.event_time:
        reports.append(
            f"Each epoch records until when all rows are committed: {chosen.event_time}.\n"
            "  because  it is in the marker, which is committed with the rows, and never goes back\n"
            "  unless   a row is late: it is written, counted, and named in the pipeline's log"
        )
    return "\n".join(reports)


def _committed(sinks: Sequence[Sink]) -> str:
    """The transactions in which an epoch reaches several sinks."""
    groups = shared_transaction.transaction_groups(sinks)
    if groups == (tuple(sink.id for sink in sinks),):
        return (
            "one transaction brings each epoch to all of them.\n"
            "  readers  see an epoch in all of them or in none of them"
        )
    lines = ["each epoch is staged once and committed to them one after the other."]
    lines += [f"  but      {' and '.join(group)} commit in one transaction" for group in groups]
    return "\n".join([*lines, "  readers  for a moment some sinks show an epoch that others do not show yet"])


def derive(sink: Sink, plan: QueryPlan | None, written: Determinism | None, chosen: GuaranteeInputs) -> Guarantee:
    """The guarantee of one sink. Arguments as for :func:`explain`."""
    able = sink.capabilities
    if not able.transactional:
        return _idempotent(sink, plan, written, chosen)
    rows = "every row of the stream once" if able.append_only else "the effect of every row of the stream once"
    if chosen.further and able.append_only:
        rows = "each row that an epoch of the stream gives once: a group that changes is a further row (W717)"
    name, what = chosen.outputs.get(sink.id, ("", ""))
    if name:
        rows = f"{rows.replace('the stream', f'output {name}')}: {what}"
    if chosen.expected and name not in (BAD, SEEN_IDS):
        rows = f"{rows}, without rows that break {chosen.expected}"
    if chosen.once and name not in (BAD, SEEN_IDS):
        rows = f"{rows}, and without those that repeat a row by {chosen.once}"
    ordered = f"{'records of one key' if able.records else 'rows'} are in the order of {able.order}"
    reasons = [
        f"rows and marker are committed together ({able.committer})",
        "each start fences older drivers out before it reads the sink's position",
        *([able.foreign] if able.foreign else []),
        *([ordered] if able.order else []),
        *([f"no epoch of rows that break {chosen.checked} reaches it"] if chosen.checked and name != BAD else []),
    ]
    dangers = (*_dangers(sink, chosen.adopt), *_of_source(plan), *_of_code(plan, written, chosen))
    return Guarantee(
        f"{sink.id} holds {rows}.", (*reasons, *_of_plan(plan, written)), sink.address, able.readers, dangers
    )


def _idempotent(sink: Sink, plan: QueryPlan | None, written: Determinism | None, chosen: GuaranteeInputs) -> Guarantee:
    """The guarantee of a sink without transactions. It claims nothing that needs a transaction or a sure fence."""
    able = sink.capabilities
    put = "each row is put by itself under its key, and the marker last, once every row was acknowledged"
    reasons = (
        f"{put} ({able.committer})",
        "an interrupted epoch is put again, whole, by the replay of its batch",
        *([able.foreign] if able.foreign else []),
        *_of_plan(plan, written if plan and plan.stateful else None),
    )
    dangers = (*_ONE_BY_ONE, *_dangers(sink, chosen.adopt), *_of_source(plan), *_of_code(plan, written, chosen))
    other = "gives another result for the same rows: rows of an interrupted run stay next to it"
    code_dangers = tuple(f"{code_name} {other}" for code_name in _own(plan, written, chosen))
    return Guarantee(
        f"{sink.id} ends with the same final result as if every row of the stream had taken effect once.",
        reasons,
        sink.address,
        f"may see parts of an epoch, and rows put again; {able.readers}",
        (*dangers, *code_dangers),
    )


_ONE_BY_ONE = (
    "two drivers run at once: such a store cannot fence a driver out for certain",
    "a request that arrives late puts an older row over a newer one",
    "a replay gives other rows, by changed code or a changed source: keys that it does not give again stay",
    "an interrupted epoch is never replayed: its parts stay",
)
"""What breaks the promise of a sink that takes rows one by one, whichever it is."""


def _of_plan(plan: QueryPlan | None, written: Determinism | None) -> tuple[str, ...]:
    if plan is None:
        return ("the plan is looked at when the query starts",)
    if not plan.stateful:
        skipped = "the plan keeps no state: a batch that is already written is skipped without being run"
        if written is None or written.nondeterministic is None:
            return (skipped,)
        other = f"{written.nondeterministic} is another value in each run: the rows are those of the run that committed"
        return (skipped, other)
    reasons = (
        "the plan keeps state: a batch that is already written is replayed without a write, and its digest compared",
    )
    if written and written.left_out:
        left_out = ", ".join(sorted(written.left_out))
        return (*reasons, f"the digest excludes {left_out}: sums of floats (W702)")
    return reasons


def _of_code(plan: QueryPlan | None, written: Determinism | None, chosen: GuaranteeInputs) -> tuple[str, ...]:
    """Effects of the user's own code on a replay, which onceonly cannot see."""
    own = _own(plan, written, chosen)
    if plan is None or not own:
        return ()
    if plan.stateful:
        return tuple(
            f"{code_name} gives another result for the same rows: a replay is then refused (E215)" for code_name in own
        )
    return tuple(
        f"{code_name} writes anywhere by itself: its effects outside are repeated with each run" for code_name in own
    )


def _own(plan: QueryPlan | None, written: Determinism | None, chosen: GuaranteeInputs) -> tuple[str, ...]:
    """The user's own code, by name. Empty before the plan is known."""
    if plan is None:
        return ()
    functions = [f"the function {name}()" for name in written.functions] if written else []
    return (*functions, *(["transform="] if chosen.transform else []))


def _dangers(sink: Sink, adopt: Adopt) -> tuple[str, ...]:
    dangers: list[str] = []
    if not sink.capabilities.append_only:
        dangers.append("another program writes the same keys; audit cannot recount rows that are not only added")
    elif not sink.capabilities.recountable:
        dangers.append("rows carry no epoch, so audit cannot recount them")
    dangers.extend(sink.capabilities.dangers)
    if sink.capabilities.changes.forgets:
        dangers.append("a change that is older than the removal of its row comes in a later epoch: it brings it back")
    if not sink.capabilities.provable:
        dangers.append(
            "other programs change rows, which you tolerate: the content of an epoch's rows is then not proven"
        )
    if adopt is not None:
        dangers.append("Recovery(adopt=) took over rows whose origin is not known")
    return tuple(dangers)


def _of_source(plan: QueryPlan | None) -> tuple[str, ...]:
    if plan is None:
        return ()
    dangers: list[str] = []
    if any(source.reads_files for source in plan.sources):
        dangers.append(
            "input files of a pending batch vanish (refused, E214); files: offsets mean nothing in another checkpoint"
        )
    for source in plan.sources:
        if source.clears_up:
            dangers.append(
                f"a checkpoint or sink is restored: cleanSource={source.clears_up} has removed the files for a rebuild"
            )
        if source.lossy:
            dangers.append(f"a crash cuts a batch off: {source.lossy} sources cannot give rows again (W706)")
    return (*dangers, *plan.unseen)
