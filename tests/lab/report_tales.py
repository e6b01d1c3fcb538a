"""Runs for reports: two sinks, three faults; as it should be, damaged, and with every text an attack."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.test_page import EVIL
from tests.lab.tale import Tale, without, write

from onceonly.page import Provenance
from onceonly_lab.history import History, Kind, Mark, Op, Row
from onceonly_lab.report import Run, run_of

TAKEN = Provenance(1_790_003_600_000, "0.1.0", "3.11.0")


def story(*sinks: str, epochs: int = 4) -> Tale:
    """A run that heals: an answer is lost and found, a driver is killed, its zombie is refused."""
    first, second = sinks or ("postgres", "kafka")
    tale = Tale(first, second)
    for number in range(1, epochs + 1):
        tale.input(f"a{number}", f"b{number}", key="k")
    for sink in (first, second):
        tale.install(sink, 1)
    for number in range(1, epochs):
        write(tale, number)
    tale.stage(epochs)
    tale.commit(first, epochs, manifest=f"m{epochs}", outcome=Kind.INFO, landed=True)
    tale.say("nemesis", Kind.FAULT, fault="commit.sent:lose answer")
    tale.look_up(first, epochs, Kind.OK)
    tale.say("nemesis", Kind.FAULT, fault="look_up.after:kill")
    tale.say("driver", Kind.KILL, incarnation=1)
    tale.say("driver", Kind.START, incarnation=2)
    for sink in (first, second):
        tale.install(sink, 2, driver=2)
    tale.commit(second, epochs, driver=2, generation=2, manifest=f"m{epochs}")
    tale.commit(second, epochs, manifest=f"m{epochs}", outcome=Kind.FAIL)
    tale.say("nemesis", Kind.FAULT, fault="checkpoint: deleted")
    tale.record(epochs, driver=2)
    tale.offered(epochs)
    return tale


def clean() -> Run:
    tale = story()
    tale.end()
    return run_of("clean.jsonl", tale.history)


def damaged() -> Run:
    """Rows of the third epoch are missing in one sink, and one of the second is doubled in the other."""
    tale = story()
    doubled = [*tale.held["kafka"], Row("a2", 2, "k", "v")]
    tale.end(postgres={"rows": without(tale.held["postgres"], "a3", "b3")}, kafka={"rows": doubled})
    history = tale.history
    again = ("replay", "it's here.json", "--level", "L2")
    return run_of("damaged.jsonl", replace(history, header=replace(history.header, again=again)))


def inconclusive() -> Run:
    return run_of("unfinished.jsonl", story().history)


def hostile() -> Run:
    """Every text that comes from a history is an attack."""
    tale = story(EVIL, f"second {EVIL}")
    tale.input(f"row {EVIL}", key=EVIL)
    tale.say(EVIL, Kind.INVOKE, Op.COMMIT, incarnation=3, sink=EVIL, epoch=9, rows=tale.chunks[0], note=EVIL)
    tale.say("nemesis", Kind.FAULT, fault=EVIL, sink=EVIL, note=EVIL)
    marks = {9: Mark(9, 9, 1, EVIL)}
    tale.marks[EVIL].update(marks)
    tale.settle(Kind.FAIL, code=EVIL)
    tale.last_reads(**{EVIL: {"rows": [Row(EVIL, 9, EVIL, EVIL)], "leaks": (EVIL,)}})
    history = tale.history
    header = replace(history.header, run=EVIL, again=("replay", EVIL, "; rm -rf ~"))
    return run_of(f"{EVIL}.jsonl", History(header, history.entries))
