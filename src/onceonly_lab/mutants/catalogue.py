"""Catalogue of mutants: the defect, the killing schedule, the expected anomaly."""

from __future__ import annotations

from typing import Any

from onceonly.faults import Point
from onceonly_checkpoints.model import AdoptionKind
from onceonly_lab.checker import Anomaly
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.spark import Damage
from onceonly_lab.mutants import outcomes, panes, people, refresh, shares, times, transactions
from onceonly_lab.mutants.play import Mutant
from onceonly_lab.schedule import LEDGER, Action, Fault, Gets, Loss, Schedule
from onceonly_lab.stores.world import Making, Terms

_AT_THE_END = Terms(reads=())
_ONE_EPOCH_FIRST = Fault(1, Point.RETURN_BEFORE, Action.KILL)
"""The first driver writes an epoch and dies; its successor finds the target as a running pipeline leaves it."""


def _on(*kinds: Kind, faults: tuple[Fault, ...], rows: int = 2, **more: object) -> Schedule:
    drivers = max(fault.incarnation for fault in faults)
    options = {"records": 3, "incarnations": drivers, **more}
    return Schedule(kinds, rows=rows, faults=faults, **options)  # type: ignore[arg-type]


_P, _D, _K = Kind.POSTGRES, Kind.DELTA, Kind.KAFKA
_CRASH_BETWEEN = (_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_SENT, Action.KILL))
_ZOMBIE = (_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_BEFORE, Action.PAUSE, steps=100))
_FENCED = Fault(3, Point.REINDEX_AFTER, Action.KILL)
"""The third driver ends the zombie's transaction and dies, and whoever finds another checkpoint fences nobody."""
_ANSWER_LOST = (_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_SENT, Action.LOSE_ANSWER))
_DELAYED = (_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_SENT, Action.DELAY))
# M10 passes PREPARE_SENT twice in each commit; this many points after epoch 2 began to commit is epoch 3's first half.
_AT_HALF_OF_THE_NEXT = 14
_OVERTAKEN = (
    Fault(1, Point.INSTALL_BEFORE, Action.PAUSE, steps=28),
    Fault(2, Point.RETURN_BEFORE, Action.KILL),
)
"""The second driver writes an epoch and dies while the first is about to fence, which goes on before a third does."""
_DYING_BEFORE = (_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_BEFORE, Action.KILL))
_BETWEEN_SINKS = (Fault(1, Point.COMMIT_AFTER, Action.KILL),)
_TWO_EPOCHS = (Fault(1, Point.RETURN_BEFORE, Action.KILL, hit=2),)
_TWO_MORE = Fault(2, Point.RETURN_BEFORE, Action.KILL, hit=3)
"""The second driver skips that epoch, writes two more and dies."""
_CHECKPOINT_LOST = (Loss(2, Damage.DELETED),)

_REFRESHED: dict[str, Any] = {"losses": (Loss(2, Damage.REFRESHED),), "replaces": True}

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "M1",
        "rows commit, marker in a second transaction",
        "crash between",
        (Anomaly.DUP,),
        _on(_P, faults=_CRASH_BETWEEN),
        Making(sink=transactions.RowsThenMarker),
        _AT_THE_END,
    ),
    Mutant(
        "M2",
        "marker first, then rows",
        "crash between",
        (Anomaly.LOSS,),
        _on(_P, faults=_CRASH_BETWEEN),
        Making(sink=transactions.MarkerThenRows),
        _AT_THE_END,
    ),
    Mutant(
        "M3",
        "no fence, check then write",
        "zombie between",
        (Anomaly.DUP,),
        _on(_P, faults=_ZOMBIE),
        Making(sink=outcomes.ChecksThenWrites),
        _AT_THE_END,
    ),
    Mutant(
        "M4",
        "a lower generation accepted once the ledger is lost",
        "ledger deleted, old driver still alive",
        (Anomaly.DUP, Anomaly.ZOMBIE),
        _on(_P, faults=_ZOMBIE, losses=(Loss(3, LEDGER),)),
        Making(sink=outcomes.TrustsTheLedger, driver=outcomes.CountsInTheLedger),
        _AT_THE_END,
    ),
    Mutant(
        "M5",
        "skip on batch id alone",
        "checkpoint lost, other cut",
        (Anomaly.LOSS,),
        _on(_P, faults=_TWO_EPOCHS, records=4, cuts=(1, 1, 2, 2), losses=_CHECKPOINT_LOST),
        Making(driver=outcomes.SkipsByBatchId),
        _AT_THE_END,
    ),
    Mutant(
        "M6",
        "key contains Spark's query id",
        "checkpoint deleted",
        (Anomaly.DUP,),
        _on(_P, faults=_TWO_EPOCHS, losses=_CHECKPOINT_LOST),
        Making(driver=outcomes.NamedByQueryId),
        _AT_THE_END,
    ),
    Mutant(
        "M7",
        "skip whole epoch by end offset, no trim",
        "checkpoint lost, other cut",
        (Anomaly.DUP,),
        _on(_P, faults=_TWO_EPOCHS, cuts=(1, 1, 3), losses=_CHECKPOINT_LOST),
        Making(driver=outcomes.SkipsByEndOffset),
        _AT_THE_END,
    ),
    Mutant(
        "M8",
        "unknown commit taken for success",
        "request lost",
        (Anomaly.LOSS, Anomaly.AUDIT),
        _on(_P, faults=(_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_SENT, Action.LOSE_REQUEST)), records=2),
        Making(sink=outcomes.TakesSilenceForYes),
        _AT_THE_END,
    ),
    Mutant(
        "M9",
        "unknown commit taken for failure, blind retry",
        "answer lost",
        (Anomaly.DUP,),
        _on(_P, faults=_ANSWER_LOST),
        Making(sink=outcomes.TakesSilenceForNo),
        _AT_THE_END,
    ),
    Mutant(
        "M10",
        "Kafka producer reused after a commit timeout",
        "delayed EndTxn",
        (Anomaly.TORN,),
        _on(_K, faults=(_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_SENT, Action.DELAY, steps=_AT_HALF_OF_THE_NEXT))),
        Making(sink=transactions.ReusesItsProducer),
        _AT_THE_END,
    ),
    Mutant(
        "M11",
        "Kafka marker outside the transaction",
        "answer lost, restart",
        (Anomaly.DUP,),
        _on(_K, faults=(*_ANSWER_LOST, Fault(2, Point.LOOK_UP_AFTER, Action.KILL))),
        Making(sink=transactions.RowsThenMarker),
        _AT_THE_END,
    ),
    Mutant(
        "M12",
        "no staging, plan uses rand()",
        "crash between sinks",
        (Anomaly.CROSS,),
        _on(_P, _D, faults=_BETWEEN_SINKS),
        Making(runner=transactions.ComputesAgain),
        Terms(reads=(), random=True),
    ),
    Mutant(
        "M13",
        "recorded and returned before the last sink committed",
        "crash between",
        (Anomaly.AUDIT,),
        _on(_P, _D, faults=(Fault(1, Point.COMMIT_BEFORE, Action.KILL, hit=2),)),
        Making(runner=transactions.RecordsTooEarly),
        _AT_THE_END,
    ),
    Mutant(
        "M14",
        "stage not flushed, digest unchecked",
        "torn stage file",
        (Anomaly.TORN,),
        _on(_D, _P, faults=_BETWEEN_SINKS),
        Making(runner=transactions.BelievesTheStage),
        Terms(reads=(), before=((2, transactions.tear),)),
    ),
    Mutant(
        "M15",
        "after a lost COMMIT the head is read without its lock",
        "the COMMIT lands late",
        (Anomaly.DUP,),
        _on(_P, faults=_DELAYED),
        Making(sink=outcomes.LooksWithoutTheLock),
        _AT_THE_END,
    ),
    Mutant(
        "M16",
        "Delta version read on one handle, committed by path",
        "zombie between",
        (Anomaly.DUP, Anomaly.ZOMBIE),
        _on(_D, faults=_ZOMBIE),
        Making(sink=outcomes.by_path),
        Terms(reads={Point.REINDEX_AFTER}),
    ),
    Mutant(
        "M17",
        "duplicate task attempt not excluded",
        "speculative writer",
        (Anomaly.DUP,),
        _on(_P, faults=(_ONE_EPOCH_FIRST,)),
        Making(sink=transactions.TakesEveryAttempt),
        Terms(reads=(), speculative=True),
    ),
    Mutant(
        "M18",
        "recovery not repeatable",
        "crash inside recovery",
        (Anomaly.DUP,),
        _on(_D, _P, faults=(*_BETWEEN_SINKS, Fault(2, Point.COMMIT_SENT, Action.KILL))),
        Making(runner=transactions.HealsInTwoSteps),
        _AT_THE_END,
    ),
    Mutant(
        "M19",
        "staging removed before every sink has the epoch",
        "crash after the sweep",
        (Anomaly.STUCK,),
        _on(_P, _D, faults=_BETWEEN_SINKS),
        Making(runner=transactions.SweepsTooEarly),
        Terms(reads=(), random=True),
    ),
    Mutant(
        "M20",
        "reader at read_uncommitted",
        "open transaction, then abort",
        (Anomaly.PHANTOM,),
        _on(_K, faults=(*_ZOMBIE, _FENCED), losses=(Loss(4, Damage.DELETED),)),
        Making(look=transactions.uncommitted),
        _AT_THE_END,
    ),
    Mutant(
        "M21",
        "a slice equal as text skipped across lineages",
        "checkpoint deleted, more files in the first batch",
        (Anomaly.LOSS,),
        _on(_P, faults=(Fault(1, Point.RETURN_BEFORE, Action.KILL),), cuts=(1, 3), losses=_CHECKPOINT_LOST),
        Making(driver=outcomes.SkipsByText),
        Terms(reads=(), files=True),
    ),
    Mutant(
        "M22",
        "rows of two partitions interleaved under order_by=",
        "parallel writer",
        (Anomaly.ORDER,),
        _on(_P, faults=(_ONE_EPOCH_FIRST,), rows=8),
        Making(sink=transactions.WritesInParallel),
        Terms(reads=(), ordered=True),
    ),
    Mutant(
        "M23",
        "a second call for a batch is skipped",
        "a program hands a batch over in two calls",
        (Anomaly.LOSS,),
        _on(_P, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),)),
        Making(driver=people.SkipsASecondCall),
        Terms(reads=(), parts=2, refusals=frozenset({"E123"})),
    ),
    Mutant(
        "M24",
        "an acceptance switches off unrelated rules",
        "one sink moved, the other set back before that is accepted",
        (Anomaly.LOSS, Anomaly.AUDIT),
        _on(_P, _D, faults=(_ONE_EPOCH_FIRST, _TWO_MORE), records=4, incarnations=3),
        Making(operator=people.TakesAWordForAll),
        Terms(
            reads=(),
            before=(
                (2, people.back_up),
                (3, people.move_table),
                (4, people.restore),
                (4, lambda world: world.operator().obey(AdoptionKind.ACCEPT_LOSS)),
            ),
            refusals=frozenset({"E207", "E208"}),  # of the one that was set back, or of the one that was moved
        ),
    ),
    Mutant(
        "M25",
        "the start of a checkpoint's first batch is remembered as none",
        "topic moved, new checkpoint, that accepted",
        (Anomaly.STUCK,),
        _on(_P, faults=(_ONE_EPOCH_FIRST,), incarnations=2),
        Making(runner=people.RemembersNoStart),
        Terms(
            reads=(),
            begins=True,
            before=((2, people.move_topic), (3, lambda world: world.operator().obey(AdoptionKind.CONTINUE))),
            refusals=frozenset({"E212"}),
        ),
    ),
    Mutant(
        "M26",
        "a refused row filed as an unknown outcome",
        "a constraint refuses a row",
        (Anomaly.STUCK,),
        _on(_P, faults=(_ONE_EPOCH_FIRST,)),
        Making(sink=people.TakesARefusalForSilence),
        Terms(reads=(), before=((2, people.forbid),), refusals=frozenset({"E503"})),
    ),
    Mutant(
        "M27",
        "rows taken into a partition that does not last as its table does",
        "server killed",
        (Anomaly.LOSS,),
        _on(_P, faults=(Fault(1, Point.DISCOVER_AFTER, Action.KILL),), rows=1, incarnations=2),
        Making(sink=people.careless),
        Terms(
            reads=(),
            before=((1, people.unlogged_partition), (3, people.crash)),
            refusals=frozenset({"E508"}),
        ),
    ),
    Mutant(
        "M28",
        "staging keyed by name only",
        "crash between sinks, another pipeline of the name opens",
        (Anomaly.STUCK,),
        _on(_P, _D, faults=_BETWEEN_SINKS),
        Making(staging=transactions.by_name),
        Terms(reads=(), random=True, before=((2, transactions.another_environment),)),
    ),
    Mutant(
        "M29",
        "a sink that is healed keeps the rows that a full refresh replaced",
        "crash between sinks, in the first epoch of a refresh",
        (Anomaly.DUP,),
        _on(_D, _P, faults=(_ONE_EPOCH_FIRST, Fault(2, Point.COMMIT_AFTER, Action.KILL)), **_REFRESHED),
        Making(runner=refresh.HealsWithoutDeleting),
        _AT_THE_END,
    ),
    Mutant(
        "M30",
        "rows that a full refresh replaces leave before the new ones come",
        "crash between",
        # The next start finds no row of the newest epoch, and stops: what left is in nobody's hands.
        (Anomaly.LOSS, Anomaly.REGRESS, Anomaly.STUCK),
        _on(_P, faults=_CRASH_BETWEEN, **_REFRESHED),
        Making(sink=refresh.ClearsFirst),
        Terms(),
    ),
    Mutant(
        "M31",
        "tables of one database committed one after the other, from the driver's memory",
        "crash between",
        (Anomaly.STUCK,),
        _on(_P, _P, faults=_CRASH_BETWEEN),
        Making(runner=transactions.CommitsOneByOne),
        _AT_THE_END,
    ),
    Mutant(
        "M32",
        "a bad row withheld only from the sink that refuses it",
        "crash between sinks",
        (Anomaly.ASIDE,),
        _on(_P, _D, _P, faults=_BETWEEN_SINKS, gets=(Gets.ALL, Gets.ALL, Gets.BAD), bad=(0b001,)),
        Making(runner=shares.WithholdsFromOneSink),
        _AT_THE_END,
    ),
    Mutant(
        "M33",
        "a sink that is behind gets the output of the call, not of the marker",
        "crash between sinks, another output from then on",
        (Anomaly.CROSS,),
        _on(_P, _D, faults=_BETWEEN_SINKS, cuts=(2,), gets=(Gets.ALL, Gets.PICKED), wants=(0b001, 0b010)),
        Making(runner=shares.HealsByTheCall),
        _AT_THE_END,
    ),
    Mutant(
        "M34",
        "bad rows written when they are found, before the epoch's transaction",
        "crash between",
        (Anomaly.ASIDE,),
        _on(_D, _P, faults=_DYING_BEFORE, gets=(Gets.ALL, Gets.BAD), bad=(0b010,)),
        Making(runner=shares.WritesWhatItFinds),
        _AT_THE_END,
    ),
    Mutant(
        "M35",
        "rows that no output wants left out before they are counted",
        "crash between",
        (Anomaly.BALANCE,),
        _on(_P, faults=(_ONE_EPOCH_FIRST,), cuts=(2,), gets=(Gets.PICKED,), wants=(0b001,)),
        Making(runner=shares.CountsWhatIsWanted),
        _AT_THE_END,
    ),
    Mutant(
        "M36",
        "what an epoch says of time in a second transaction",
        "crash between",
        (Anomaly.TIME,),
        _on(_P, faults=_CRASH_BETWEEN),
        Making(sink=times.SaysTimeAfterwards),
        _AT_THE_END,
    ),
    Mutant(
        "M37",
        "a healer asks once more up to when all is there",
        "crash between sinks",
        (Anomaly.CROSS, Anomaly.STUCK),
        _on(_P, _D, faults=_BETWEEN_SINKS),
        Making(runner=times.HealsWithAnotherTime),
        _AT_THE_END,
    ),
    Mutant(
        "M38",
        "state of windows in a second transaction",
        "crash between",
        (Anomaly.PANE,),
        _on(_P, faults=_CRASH_BETWEEN, windows=True),
        Making(runner=panes.WritesStateAfterwards),
        _AT_THE_END,
    ),
    Mutant(
        "M39",
        "state of windows read before the fence",
        "another driver writes an epoch between",
        (Anomaly.PANE,),
        _on(_P, faults=_OVERTAKEN, windows=True),
        Making(runner=panes.ReadsStateEarly),
        _AT_THE_END,
    ),
    Mutant(
        "M40",
        "state of windows of a version before the newest",
        "two epochs of one driver",
        (Anomaly.PANE,),
        _on(_D, faults=(_ONE_EPOCH_FIRST,), windows=True),
        Making(runner=panes.ReadsAnOlderVersion),
        _AT_THE_END,
    ),
)
"""In the order of their numbers. Every one is broken in one place, and runs on real stores."""
