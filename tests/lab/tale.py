"""Tells the history of a run in sentences; what the sinks hold follows from what was told, unless a test says else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onceonly_lab.checker import Anomaly, Judgement, judge
from onceonly_lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Mark, Op, Part, Promise, Range, Row


class Tale:
    """One run into the named sinks. Every ``input`` is one slice, and becomes the epoch of its number."""

    def __init__(self, *sinks: str, **header: Any) -> None:
        self.header = Header(tuple(Promise(sink) for sink in sinks), "a tale", **header)
        self.entries: list[Entry] = []
        self.chunks: list[tuple[Row, ...]] = []
        self.held: dict[str, list[Row]] = {sink: [] for sink in sinks}
        self.marks: dict[str, dict[int, Mark]] = {sink: {} for sink in (*sinks, LEDGER)}

    def promising(self, sink: str, **promises: bool | str) -> Tale:
        changed = (replace(one, **promises) if one.sink == sink else one for one in self.header.sinks)
        self.header = replace(self.header, sinks=tuple(changed))
        return self

    def say(self, actor: str, kind: Kind, op: Op | None = None, **fields: Any) -> int:
        """Append an entry; the number of its line."""
        self.entries.append(Entry(actor, kind, op, **fields))
        return len(self.entries) + 1

    def input(self, *identities: str, key: str | None = None) -> None:
        rows = tuple(Row(identity, key=key, value="v") for identity in identities)
        number = len(self.chunks)
        self.chunks.append(rows)
        self.say("source", Kind.OK, Op.INPUT, slice=(Range("0", number, number + 1),), rows=rows)

    def install(self, sink: str, generation: int, driver: int = 1, outcome: Kind | None = Kind.OK) -> None:
        who = {"incarnation": driver, "sink": sink, "generation": generation}
        self.say("driver", Kind.INVOKE, Op.INSTALL, **who)
        if outcome:
            self.say("driver", outcome, Op.INSTALL, **who)

    def compute(self, op: Op, epoch: int, digest: str | None = None, driver: int = 1, **fields: Any) -> None:
        where = {"incarnation": driver, "epoch": epoch, "slice": self.slice(epoch)}
        self.say("driver", Kind.INVOKE, op, **where)
        self.say("driver", Kind.OK, op, digest=digest or self.digest(epoch), **where, **fields)

    def stage(self, epoch: int, **fields: Any) -> None:
        self.compute(Op.STAGE, epoch, manifest=f"m{epoch}", **fields)

    def compute_in_memory(self, epoch: int, outputs: tuple[Part, ...], driver: int = 1) -> None:
        """A staging that leaves no bytes: its rows lie in the driver's memory."""
        self.compute(Op.STAGE, epoch, driver=driver, outputs=outputs)

    def slice(self, epoch: int) -> tuple[Range, ...]:
        return (Range("0", epoch - 1, epoch),)

    def digest(self, epoch: int) -> str:
        return "".join(row.identity for row in self.chunks[epoch - 1])

    def commit(
        self,
        sink: str,
        epoch: int,
        driver: int = 1,
        generation: int = 1,
        outcome: Kind | None = Kind.OK,
        landed: bool | None = None,
        **fields: Any,
    ) -> None:
        who = {"incarnation": driver, "sink": sink, "epoch": epoch, "generation": generation}
        what = {"slice": self.slice(epoch), "rows": self.chunks[epoch - 1], "digest": self.digest(epoch), **fields}
        self.say("driver", Kind.INVOKE, Op.COMMIT, **who, **what)
        if landed or (landed is None and outcome is Kind.OK):
            self.land(sink, epoch, generation)
        if outcome:
            self.say("driver", outcome, Op.COMMIT, **who)

    def land(self, sink: str, epoch: int, generation: int = 1) -> None:
        """The epoch is in the sink from here on."""
        rows = self.chunks[epoch - 1]
        self.held[sink] += [replace(row, epoch=epoch) for row in rows]
        self.marks[sink][epoch] = Mark(epoch, generation, len(rows), self.digest(epoch))

    def look_up(self, sink: str, epoch: int, outcome: Kind, driver: int = 1) -> None:
        self.say("driver", Kind.INVOKE, Op.LOOK_UP, incarnation=driver, sink=sink, epoch=epoch)
        self.say("driver", outcome, Op.LOOK_UP, incarnation=driver, sink=sink, epoch=epoch)

    def record(self, epoch: int, driver: int = 1) -> None:
        self.marks[LEDGER][epoch] = Mark(epoch, None, len(self.chunks[epoch - 1]), self.digest(epoch))
        self.say("driver", Kind.INVOKE, Op.RECORD, incarnation=driver, sink=LEDGER, epoch=epoch)
        self.say("driver", Kind.OK, Op.RECORD, incarnation=driver, sink=LEDGER, epoch=epoch)

    def offered(self, epoch: int, outcome: Kind = Kind.OK) -> None:
        self.say("engine", Kind.INVOKE, Op.OFFER, slice=self.slice(epoch))
        self.say("engine", outcome, Op.OFFER, epoch=epoch)

    def restore(self, sink: str, *epochs: int) -> None:
        """The sink holds only these epochs now."""
        self.say("nemesis", Kind.FAULT, fault=RESTORE, sink=sink)
        self.marks[sink] = {epoch: mark for epoch, mark in self.marks[sink].items() if epoch in epochs}
        self.held[sink] = [row for row in self.held[sink] if row.epoch in epochs]

    def read(self, sink: str, *, reader: str = "reader", final: bool = False, **fields: Any) -> None:
        """A read of what is there, except for what ``rows`` or ``markers`` say instead."""
        self.say(reader, Kind.INVOKE, Op.READ, sink=sink)
        shown = {"rows": self.held.get(sink), "markers": self.marks[sink].values(), **fields}
        told = {name: None if value is None else tuple(value) for name, value in shown.items() if name != "leaks"}
        self.say(reader, Kind.READ, sink=sink, final=final, leaks=fields.get("leaks", ()), **told)

    def settle(self, outcome: Kind | None = Kind.OK, code: str | None = None) -> None:
        self.say("judge", Kind.INVOKE, Op.SETTLE)
        if outcome:
            self.say("judge", outcome, Op.SETTLE, code=code)

    def last_reads(self, **by_sink: dict[str, Any]) -> None:
        for sink in self.held:
            self.read(sink, final=True, **by_sink.get(sink, {}))
        self.read(LEDGER, final=True, **by_sink.get(LEDGER, {}))

    def end(self, **by_sink: dict[str, Any]) -> None:
        self.settle()
        self.last_reads(**by_sink)

    @property
    def history(self) -> History:
        return History(self.header, tuple(self.entries))

    def judged(self, golden: History | None = None) -> Judgement:
        """The judgement; each of its findings must show where it looked."""
        judgement = judge(self.history, golden)
        for finding in judgement.findings:
            assert finding.lines
            about_the_run = finding.anomaly in (Anomaly.STUCK, Anomaly.NONDET) or finding.what.startswith(
                "does not hold"
            )
            assert finding.sink or about_the_run
        return judgement

    def anomalies(self, golden: History | None = None) -> set[str]:
        return {str(anomaly) for anomaly in self.judged(golden).anomalies}


def without(rows: Iterable[Row], *identities: str) -> list[Row]:
    return [row for row in rows if row.identity not in identities]


def written(*sinks: str, epochs: int = 2, **header: Any) -> Tale:
    """Epochs of two rows each, committed everywhere and recorded; not yet settled and read."""
    tale = Tale(*sinks, **header)
    for number in range(1, epochs + 1):
        tale.input(f"a{number}", f"b{number}", key="k")
    for sink in sinks:
        tale.install(sink, 1)
    for number in range(1, epochs + 1):
        write(tale, number)
    return tale


def write(tale: Tale, epoch: int) -> None:
    """One epoch, as it should be."""
    several = len(tale.held) > 1
    if several:
        tale.stage(epoch)
    else:
        tale.compute(Op.PREPARE, epoch)
    for sink in tale.held:
        tale.commit(sink, epoch, **({"manifest": f"m{epoch}"} if several else {}))
    tale.record(epoch)
    tale.offered(epoch)
