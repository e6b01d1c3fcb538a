"""Histories of runs that keep every promise: a small world with drivers, sinks, readers and faults, all from one seed.

Nothing here is shared with the product or with the checker: it is a second opinion on what a right run looks like.
Actors are generators; a scheduler lets one of them take a step, so their lines interleave in every way. A driver that
was replaced by another one is a zombie: it goes on until a sink refuses it.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from onceonly_lab.history import (
    BAD,
    LEDGER,
    RESTORE,
    Entry,
    Header,
    History,
    Kind,
    Mark,
    MarkTime,
    Op,
    Part,
    Promise,
    Range,
    Row,
)

Steps = Generator[None, None, None]
REFUSED = "E203"


@dataclass(frozen=True)
class Content:
    """What an epoch is, the same in every sink that holds it."""

    number: int
    start: int
    end: int
    rows: tuple[Row, ...]
    digest: str
    manifest: str | None
    parts: tuple[Part, ...] = ()

    def share(self, output: str) -> tuple[Row, ...]:
        """The rows of those who get an output."""
        held = {part.output: set(part.rows) for part in self.parts}
        bad = held.get(BAD, set())
        if output == BAD:
            return tuple(row for row in self.rows if row.identity in bad)
        wanted = held.get(output, {row.identity for row in self.rows})
        return tuple(row for row in self.rows if row.identity in wanted - bad)


@dataclass
class Sink:
    name: str
    ordered: bool
    whole: bool
    tagged: bool
    valued: bool
    markers_always: bool
    slow: bool
    generation: int = 0
    owner: int = 0
    output: str = ""
    epochs: list[tuple[Content, int]] = field(default_factory=list)
    hidden: int = 0
    late: list[tuple[Content, int, int]] = field(default_factory=list)

    def install(self, generation: int, owner: int) -> bool:
        if generation <= self.generation and owner != self.owner:
            return False
        self.generation, self.owner, self.hidden, self.late = generation, owner, 0, []
        return True

    def commit(self, content: Content, generation: int, owner: int) -> bool:
        if (generation, owner) != (self.generation, self.owner) or content.number != len(self.epochs) + 1:
            return False
        self.epochs.append((content, generation))
        self.hidden = 1 if self.slow else 0
        return True

    @property
    def visible(self) -> list[tuple[Content, int]]:
        return self.epochs[: len(self.epochs) - self.hidden]


class World:
    """One run. ``history()`` gives what was recorded."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[Entry] = []
        self.sinks = [self._sink(name) for name in ["postgres", "kafka", "delta"][: self.random.randint(1, 3)]]
        self.deterministic = self.random.random() < 0.7
        self.shares = random.Random(f"shares of {seed}")
        self.once = self.shares.random() < 0.2
        self.chunks = [self._chunk(number) for number in range(self.random.randint(2, 7))]
        self._share_out()
        self.offers: dict[int, tuple[int, int]] = {}
        self.acknowledged = 0
        self.records: dict[int, Mark] = {}
        self.computations = 0
        self.drivers: list[tuple[int, Steps]] = []
        self.incarnations = 0
        self.calm = False
        self.restored = False

    def _sink(self, name: str) -> Sink:
        def maybe() -> bool:
            return self.random.random() < 0.5

        return Sink(name, maybe(), self.random.random() < 0.8, maybe(), maybe(), maybe(), maybe())

    def _chunk(self, number: int) -> tuple[Row, ...]:
        size = self.random.randint(0, 4)
        rows = tuple(Row(f"r{number}.{place}", None, self.random.choice("ab"), "v") for place in range(size))
        return tuple(replace(row, key=f"k{row.identity}") for row in rows) if self.once else rows

    def _share_out(self) -> None:
        """In some runs some sinks get an output, and one may get the bad rows."""
        if len(self.sinks) > 1 and self.shares.random() < 0.4:
            for sink in self.sinks:
                sink.output = self.shares.choice(("", "picked"))
            self.shares.choice(self.sinks).output = self.shares.choice((BAD, BAD, "picked"))

    def _parts(self, rows: tuple[Row, ...]) -> tuple[Part, ...]:
        """What this computation makes of rows: no two need want the same."""
        outputs = sorted({sink.output for sink in self.sinks} - {""})
        return tuple(
            Part(output, tuple(sorted(row.identity for row in rows if self.shares.random() < 0.5)))
            for output in outputs
        )

    def log(self, actor: str, kind: Kind, op: Op | None = None, **fields: object) -> None:
        self.lines.append(Entry(actor, kind, op, **fields))  # type: ignore[arg-type]

    def history(self) -> History:
        for number, rows in enumerate(self.chunks):
            self.log("source", Kind.OK, Op.INPUT, slice=(Range("0", number, number + 1),), rows=rows)
        readers = [self._reader(sink) for sink in self.sinks]
        self._start_driver()
        for _ in range(self.random.randint(20, 120)):
            self._step(readers)
        self._settle()
        sinks = tuple(
            Promise(sink.name, sink.ordered, sink.whole, output=sink.output, once=self.once) for sink in self.sinks
        )
        header = Header(sinks, "clean", deterministic=self.deterministic, refusals=(REFUSED,))
        return History(header, tuple(self.lines))

    def _step(self, readers: list[Steps]) -> None:
        dice = self.random.random()
        if dice < 0.35:
            next(self.random.choice(readers))
        elif dice < 0.39:
            self._kill()
        elif dice < 0.42:
            self._start_driver()  # and the ones before become zombies
        elif dice < 0.46:
            self._unveil()
        else:
            self._advance()

    def _unveil(self) -> None:
        for sink in self.sinks:
            sink.hidden = 0
            for late in sink.late:
                sink.commit(*late)
            sink.late = []

    def _kill(self) -> None:
        if self.drivers:
            incarnation, steps = self.drivers.pop(self.random.randrange(len(self.drivers)))
            steps.close()
            self.log("nemesis", Kind.KILL, incarnation=incarnation)
        if not self.drivers:
            self._start_driver()

    def _start_driver(self) -> None:
        self.incarnations += 1
        self.drivers.append((self.incarnations, self._driver(self.incarnations)))

    def _advance(self) -> None:
        place = self.random.randrange(len(self.drivers))
        try:
            next(self.drivers[place][1])
        except StopIteration:
            self.drivers.pop(place)
            if not self.drivers:
                self._start_driver()

    def _settle(self) -> None:
        if self.random.random() < 0.1:
            self._restore()
        self.log("judge", Kind.INVOKE, Op.SETTLE)
        self.calm = True
        if self.restored:
            self.log("judge", Kind.FAIL, Op.SETTLE, code=REFUSED)
        else:
            self._finish()
            self.log("judge", Kind.OK, Op.SETTLE)
        for sink in self.sinks:
            sink.hidden = 0
            self.log("reader-" + sink.name, Kind.INVOKE, Op.READ, sink=sink.name)
            self._answer(sink, sink.epochs, final=True)
        self.log("reader-ledger", Kind.READ, sink=LEDGER, markers=tuple(self.records.values()), final=True)

    def _finish(self) -> None:
        while True:
            self._start_driver()
            for _ in self.drivers[-1][1]:
                pass
            if self.acknowledged and self.offers[self.acknowledged][1] == len(self.chunks):
                return

    def _restore(self) -> None:
        sink = self.random.choice(self.sinks)
        if len(sink.epochs) > 1:
            self.restored = True
            self.log("nemesis", Kind.FAULT, fault=RESTORE, sink=sink.name)
            del sink.epochs[self.random.randrange(1, len(sink.epochs)) :]
            sink.hidden = 0

    def _reader(self, sink: Sink) -> Steps:
        while True:
            self.log("reader-" + sink.name, Kind.INVOKE, Op.READ, sink=sink.name)
            yield
            seen = list(sink.visible)
            yield
            self._answer(sink, seen, final=False)
            yield

    def _answer(self, sink: Sink, seen: list[tuple[Content, int]], *, final: bool) -> None:
        rows = [self._seen(sink, content, row) for content, _ in seen for row in content.share(sink.output)]
        if not sink.ordered:
            self.random.shuffle(rows)
        elif seen and not sink.whole and not final and not self.lines_shown(sink, len(seen)):
            # Partitions of a topic show a transaction one after the other.
            rows = rows[: len(rows) - self.random.randint(0, len(seen[-1][0].share(sink.output)))]
        marks = tuple(self._mark(sink, one, generation) for one, generation in seen)
        shown = marks if sink.markers_always or final else None
        self.log("reader-" + sink.name, Kind.READ, sink=sink.name, rows=tuple(rows), markers=shown, final=final)

    def _mark(self, sink: Sink, content: Content, generation: int) -> Mark:
        held = len(content.share(sink.output))
        mark = Mark(content.number, generation, held, content.digest, time=MarkTime(content.end, content.end))
        if not content.parts:
            brought = sum(len(one.rows) for one, _ in sink.epochs if one.number <= content.number)
            return replace(mark, windows=brought)
        bad = 0 if sink.output == BAD else len(content.share(BAD))
        return replace(mark, filtered=len(content.rows) - held - bad, bad=bad)

    def lines_shown(self, sink: Sink, epochs: int) -> bool:
        """Whether an earlier read has shown so many epochs."""
        reads = [line for line in self.lines if line.kind is Kind.READ and line.sink == sink.name]
        total = sum(len(content.share(sink.output)) for content, _ in sink.epochs[: epochs - 1])
        return any(len(read.rows or ()) > total for read in reads)

    def _seen(self, sink: Sink, content: Content, row: Row) -> Row:
        return Row(row.identity, content.number if sink.tagged else None, row.key, row.value if sink.valued else None)

    def _lost(self, chance: float = 0.15) -> bool:
        return not self.calm and self.random.random() < chance

    def _driver(self, me: int) -> Steps:
        def log(kind: Kind, op: Op | None = None, **fields: object) -> None:
            self.log("driver", kind, op, incarnation=me, **fields)

        log(Kind.START)
        while True:
            generation = 1 + max(sink.generation for sink in self.sinks)
            yield
            for sink in self.sinks:
                if not (yield from self._install(sink, generation, me)):
                    return
            if not (yield from self._heal(generation, me)):
                return
            while (yield from self._epoch(generation, me)):
                pass
            if self.acknowledged and self.offers[self.acknowledged][1] == len(self.chunks):
                return
            if (self.sinks[0].generation, self.sinks[0].owner) != (generation, me):
                return

    def _install(self, sink: Sink, generation: int, me: int) -> Generator[None, None, bool]:
        who = {"incarnation": me, "sink": sink.name, "generation": generation}
        while True:
            self.log("driver", Kind.INVOKE, Op.INSTALL, **who)
            yield
            done = sink.install(generation, me)
            yield
            if self._lost():
                self.log("driver", Kind.INFO, Op.INSTALL, **who)
                continue
            self.log("driver", Kind.OK if done else Kind.FAIL, Op.INSTALL, **who)
            return done

    def _heal(self, generation: int, me: int) -> Generator[None, None, bool]:
        highest = max(self.sinks, key=lambda sink: len(sink.epochs))
        for sink in self.sinks:
            if len(sink.epochs) < len(highest.epochs):
                content = highest.epochs[len(sink.epochs)][0]
                if not (yield from self._commit(sink, content, generation, me)):
                    return False
        for content, _ in self.sinks[0].epochs:
            if self.sinks[0].owner == me:
                self._record(content, me)
        yield
        return True

    def _record(self, content: Content, me: int) -> None:
        if content.number not in self.records:
            self.records[content.number] = Mark(content.number, None, len(content.share("")), content.digest)
            self.log("driver", Kind.INVOKE, Op.RECORD, incarnation=me, sink=LEDGER, epoch=content.number)
            self.log("driver", Kind.OK, Op.RECORD, incarnation=me, sink=LEDGER, epoch=content.number)

    def _epoch(self, generation: int, me: int) -> Generator[None, None, bool]:
        number = self.acknowledged + 1
        start = self.offers[self.acknowledged][1] if self.acknowledged else 0
        if start == len(self.chunks):
            return False
        # Who has lost a sink sees of it what a reader sees: before its yes, a slow one may show nothing.
        stands = min(len(sink.epochs if sink.owner == me else sink.visible) for sink in self.sinks)
        nowhere = all(len(sink.epochs) < number and sink.owner == me for sink in self.sinks)
        if number not in self.offers or (nowhere and self.random.random() < 0.1):
            self.offers[number] = start, self.random.randint(start + 1, min(start + 3, len(self.chunks)))
        start, end = self.offers[number]
        where = {"incarnation": me, "slice": (Range("0", start, end),)}
        self.log("engine", Kind.INVOKE, Op.OFFER, **where)
        yield
        if number <= stands:
            self._acknowledge(number, where)
            return True
        content = yield from self._compute(number, start, end, generation, me)
        for sink in self.sinks:
            if not (yield from self._commit(sink, content, generation, me)):
                self.log("engine", Kind.FAIL, Op.OFFER, **where)
                return False
        self._record(content, me)
        yield
        self._acknowledge(number, where)
        return True

    def _acknowledge(self, number: int, where: dict[str, object]) -> None:
        self.log("engine", Kind.OK, Op.OFFER, epoch=number, **where)
        self.acknowledged = max(self.acknowledged, number)

    def _compute(self, number: int, start: int, end: int, generation: int, me: int) -> Generator[None, None, Content]:
        self.computations += 1
        value = "v" if self.deterministic else f"v{self.computations}"
        rows = tuple(replace(row, value=value) for chunk in self.chunks[start:end] for row in chunk)
        manifest = f"stage/{number}-{self.computations}" if len(self.sinks) > 1 else None
        op = Op.STAGE if manifest else Op.PREPARE
        what = {"incarnation": me, "epoch": number, "slice": (Range("0", start, end),)}
        self.log("driver", Kind.INVOKE, op, **what)
        yield
        digest, parts = f"{value}:{start}-{end}", self._parts(rows)
        self.log("driver", Kind.OK, op, digest=digest, manifest=manifest, outputs=parts or None, **what)
        yield
        return Content(number, start, end, rows, digest, manifest, parts)

    def _commit(self, sink: Sink, content: Content, generation: int, me: int) -> Generator[None, None, bool]:
        who = {"incarnation": me, "sink": sink.name, "epoch": content.number, "generation": generation}
        what = {"slice": (Range("0", content.start, content.end),), "digest": content.digest}
        rows = {"rows": content.rows} if self.random.random() < 0.7 else {}
        self.log("driver", Kind.INVOKE, Op.COMMIT, manifest=content.manifest, **who, **what, **rows)
        yield
        fate = self.random.choice(["request lost", "answer lost", "late"]) if self._lost() else ""
        done = fate != "request lost" and fate != "late" and sink.commit(content, generation, me)
        if fate == "late":
            sink.late.append((content, generation, me))
        yield
        if not fate:
            self.log("driver", Kind.OK if done else Kind.FAIL, Op.COMMIT, **who)
            return done
        self.log("driver", Kind.INFO, Op.COMMIT, **who)
        return (yield from self._look_up(sink, content, who))

    def _look_up(self, sink: Sink, content: Content, who: dict[str, object]) -> Generator[None, None, bool]:
        self.log("driver", Kind.INVOKE, Op.LOOK_UP, **who)
        yield
        ours = (sink.generation, sink.owner) == (who["generation"], who["incarnation"])
        there = (content, who["generation"]) in sink.epochs
        if ours:
            sink.late = []
        yield
        if not ours or self._lost():
            self.log("driver", Kind.INFO, Op.LOOK_UP, **who)
            return False
        self.log("driver", Kind.OK if there else Kind.FAIL, Op.LOOK_UP, **who)
        return there


def clean_run(seed: int) -> History:
    """The history of one right run."""
    return World(seed).history()
