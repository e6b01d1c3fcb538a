"""Handwritten scenes for rules that bounds and random schedules miss.

Each scene lists the events of a pipeline.

A scene says what is wrong at its end by the rows that lie in the sinks, or by a query that does not go on where nothing
is in its way. Which code refuses is no matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import Offer
from onceonly.machine.source_order import kafka_identity
from onceonly.machine.writer_progress import TimedMarker, WriterSet
from onceonly.protocol.row_rules import Check
from onceonly.protocol.row_times import RowTimes
from onceonly_checkpoints.epoch_time import EpochTime, Unit
from onceonly_checkpoints.model import SourceIdentity
from onceonly_checkpoints.spark.offsets import PreviousBatch
from onceonly_lab.model.parts import Kind, SimulatedLedger, StagingArea, between, computed, offsets, records_in
from onceonly_lab.rulesoff.props import (
    Bare,
    Changed,
    Deaf,
    Dumb,
    Dying,
    Ended,
    Filled,
    Losing,
    Mixed,
    Noted,
    Sieve,
    Stage,
    Yielding,
    bad_rows,
    keeper,
    output,
    short_files,
)

P, D = Kind.POSTGRES, Kind.DELTA


def _refused(ended: Ended, went_on: str) -> str:
    """What is wrong where going on is a harm, and so is leaving something behind in some sinks."""
    if ended.code.startswith("X-"):
        return ended.code
    if ended.wrote:
        return f"X-AUDIT: refused by {ended.code} after rows were left in {', '.join(ended.wrote)}"
    return "" if ended.code else went_on


def _goes_on(stage: Stage, ended: Ended, records: int = 3) -> str:
    """What is wrong where nothing is in the way."""
    if ended.code:
        return ended.code if ended.code.startswith("X-") else f"X-STUCK: refused by {ended.code}"
    return stage.holds(between(0, records))


def rows_deleted_by_others() -> str:
    """Somebody deletes rows of epoch 1; the query goes on as if they were there."""
    stage = Stage(P)
    stage.starts().writes(2)
    target = stage.scene.targets[P]
    less = replace(target.held[0], content=computed(0))
    stage.scene.targets[P] = replace(target, held=(less, *target.held[1:]))
    ended = stage.starts(sinks={P: Changed}).writes()
    return _refused(ended, stage.holds(between(0, 3)))


def a_table_that_others_have_filled() -> str:
    """The first run, on a table that holds rows of somebody else: a reader cannot tell whose they are."""
    stage = Stage(P)
    ended = stage.starts(sinks={P: Filled}).writes()
    return _refused(ended, "X-PHANTOM: rows that no epoch names stand among those of the pipeline")


def a_sink_left_out() -> str:
    """The query is called with one of its two sinks."""
    stage = Stage(P, D)
    stage.starts().writes(2)
    ended = stage.starts(P).writes()
    return _refused(ended, stage.holds(between(0, 3)))


def the_name_in_another_place() -> str:
    """A new query under the name of one that writes elsewhere, with the same ledger."""
    stage = Stage(P, D)
    stage.starts(P).writes(2)
    stage.elsewhere(0)
    ended = stage.starts(D).writes()
    return _refused(ended, "X-AUDIT: the ledger tells of epochs that the sink does not hold")


def sinks_of_two_histories() -> str:
    """One of two sinks is a copy of another environment's, which wrote as many epochs under this name."""
    ours, theirs = Stage(P, D), Stage(P, D)
    ours.starts().writes(2)
    theirs.elsewhere(1)
    theirs.starts().writes(2)
    ours.scene.targets[D] = theirs.scene.targets[D]
    ours.scene.ledger = SimulatedLedger()
    ended = ours.starts().writes()
    return _refused(ended, ours.holds(between(0, 3)))


def markers_of_another_pipeline() -> str:
    """A sink mixes up two pipelines that one query writes: what one of them holds is skipped in the other."""
    stage = Stage(P)
    stage.starts().writes(1, returns=False)
    stage.scene.ledger = SimulatedLedger()
    ended = stage.starts(sinks={P: Mixed}).writes()
    theirs = records_in(stage.scene.targets[P].held[0].content)
    lacking = not any(records_in(held_epoch.content) & theirs for held_epoch in stage.scene.targets[P].held[1:])
    return _refused(ended, "X-LOSS: the other pipeline's epoch was taken for this one's" if lacking else "")


def a_fence_without_an_answer() -> str:
    """A sink never answers to a fence."""
    stage = Stage(P)
    return _refused(stage.starts(sinks={P: Deaf}).writes(), "X-ZOMBIE: written without a fence")


def a_commit_without_an_answer() -> str:
    """A sink answers neither to a commit nor to a look-up."""
    stage = Stage(P)
    return _refused(stage.starts(sinks={P: Dumb}).writes(), stage.holds(1))


def commits_that_never_arrive() -> str:
    """Each commit is lost on the way."""
    stage = Stage(P)
    return _refused(stage.starts(sinks={P: Losing}).writes(), stage.holds(1))


def commits_taken_back() -> str:
    """A sink takes each epoch back for the sake of others."""
    stage = Stage(P)
    return _refused(stage.starts(sinks={P: Yielding}).writes(), stage.holds(1))


def a_sink_that_keeps_less() -> str:
    """A sink prepares one row less than the batch has."""
    stage = Stage(P)
    return _refused(stage.starts(sinks={P: Sieve}).writes(), stage.holds(1))


def staged_files_that_hold_less() -> str:
    """The files that are staged have one row less than was counted."""
    stage = Stage(P, D)
    short_files(stage)
    return _refused(stage.starts().writes(), "X-TORN: the staged files lack a row")


def _cut_off_between_sinks(stage: Stage, batches: int) -> None:
    """Epochs in both sinks, one more in the first alone, and no staged bytes any more."""
    if batches:
        stage.starts().writes(batches)
    stage.starts(sinks={D: Dying}).writes()
    stage.scene.staging = StagingArea()


def bytes_gone_and_other_rows() -> str:
    """One sink lacks an epoch whose bytes are gone, and the batch gives other rows when it is run again."""
    stage = Stage(P, D, rows=2)
    _cut_off_between_sinks(stage, 1)
    ended = stage.starts().writes()
    newest = [target.held[-1].content for target in stage.scene.targets.values()]
    return _refused(ended, "X-CROSS: the sinks hold other rows of one epoch" if len(set(newest)) > 1 else "")


def an_output_that_does_not_add_up() -> str:
    """The rows that an output holds and those that it does not want are together one less than there are."""
    stage = Stage(P, D)
    output(stage, between(0, 1), uncounted=1)
    return _refused(stage.starts().writes(), "X-LOSS: a row is in no output, and none counts it")


def rows_that_are_all_bad() -> str:
    """Each row breaks an expectation, and none may."""
    stage = Stage(P, D)
    bad_rows(stage, between(0, 6), most=0)
    return _refused(stage.starts().writes(), "X-ASIDE: rows are set aside of which nobody has said so many may be")


def bytes_gone_and_another_output() -> str:
    """A sink lacks an epoch whose bytes are gone, and the program gives it another output by now."""
    stage = Stage(P, D)
    output(stage, between(0, 6))
    _cut_off_between_sinks(stage, 1)
    output(stage, between(0, 7))
    ended = stage.starts().writes()
    held = stage.scene.targets[D].held
    other = any(held_epoch.content != held_epoch.epoch.digest_in(D) for held_epoch in held)
    return _refused(ended, "X-CROSS: a sink holds another output than its marker names" if other else "")


def bytes_gone_of_a_trimmed_epoch() -> str:
    """One sink lacks an epoch of which a part was left out, and whose bytes are gone."""
    stage = Stage(P, D, trims=True, cuts=(2,))
    stage.starts().writes(1)
    stage.elsewhere(1)
    _cut_off_between_sinks(stage, 0)
    ended = stage.starts().writes()
    return _refused(ended, stage.holds(between(0, 3)))


def an_epoch_that_was_never_staged() -> str:
    """One sink lacks an epoch whose marker does not say where its bytes are."""
    stage = Stage(P, D)
    stage.starts().writes(1)
    stage.starts(sinks={D: Dying}).writes()
    ended = stage.starts(sinks={P: Bare}).writes()
    return _refused(ended, stage.holds(between(0, 2)))


def a_topic_made_anew() -> str:
    """The topic is deleted and made again, and grows past where the query stands: its first records never come."""
    stage = Stage(P)
    stage.starts().writes(2)
    identity = SourceIdentity("0", kafka_identity("cluster", {"events": "another topic"}))

    def changes(offered: Offer) -> Offer:
        return replace(offered, sources=(identity,))

    ended = stage.starts(changes=changes).writes()
    return _refused(ended, "X-LOSS: records 1 to 2 of the new topic are in no sink")


def state_gone() -> str:
    """A query that keeps state goes on, on a checkpoint that has none."""
    stage = Stage(P, stateful=True)
    stage.starts().writes(2)
    stage.elsewhere(2)
    ended = stage.starts().writes()
    return _refused(ended, "X-LOSS: what records 1 to 2 had left in the state is in no row after them")


def state_of_another_run() -> str:
    """A query that keeps state goes on, and its state is that of another run."""
    stage = Stage(P, stateful=True)
    stage.starts().writes(2)
    ended = stage.starts(state="of another run").writes()
    return _refused(ended, "X-LOSS: what records 1 to 2 had left in the state is in no row after them")


def state_of_another_run_under_a_replay() -> str:
    """A batch runs again for its state alone, and begins with the state of another run."""
    stage = Stage(P, stateful=True)
    stage.starts().writes(2, returns=False)
    ended = stage.starts(state="of another run").writes()
    return _refused(ended, "X-LOSS: what record 1 had left in the state is in no row after record 2")


def a_replay_that_leaves_other_files() -> str:
    """A replay leaves the same state in files of other sizes, and the query goes on."""
    stage = Stage(P, stateful=True)
    stage.starts().writes(2, returns=False)
    stage.starts(leaves="in other files").writes()
    return _goes_on(stage, stage.starts(state="in other files").writes())


def a_new_checkpoint_at_the_end() -> str:
    """A new checkpoint that begins exactly where the last epoch ended goes on."""
    stage = Stage(P)
    stage.starts().writes(2)
    stage.elsewhere(2)
    return _goes_on(stage, stage.starts().writes())


def a_new_checkpoint_before_the_end() -> str:
    """A new checkpoint that begins with rows of recorded epochs goes on where these are to be left out."""
    stage = Stage(P, trims=True, cuts=(2,))
    stage.starts().writes(1)
    stage.elsewhere(1)
    return _goes_on(stage, stage.starts().writes())


def a_full_refresh() -> str:
    """A checkpoint begins anew beside the one that still holds the newest epoch's batch: its rows replace all."""
    stage = Stage(P, replaces=True)
    stage.starts().writes(2)
    stage.elsewhere(0, stage.newest)
    return _goes_on(stage, stage.starts().writes(1), 1)


def _beside_something_else(change: Callable[[PreviousBatch], PreviousBatch]) -> str:
    """A new checkpoint that begins behind a record, beside one that does not hold the newest epoch's batch."""
    stage = Stage(P, replaces=True)
    stage.starts().writes(2)
    stage.elsewhere(1, change(stage.newest))
    return _refused(stage.starts().writes(), stage.holds(between(0, 2)))


def beside_another_query() -> str:
    """It holds a batch of another query, which began in the same moment and ended at the same place."""
    return _beside_something_else(lambda old: replace(old, lineage=replace(old.lineage, query_id="theirs")))


def beside_another_moment() -> str:
    """It holds the batch as it was planned once more, in another moment."""
    moment = 10_000
    return _beside_something_else(lambda old: replace(old, lineage=replace(old.lineage, batch_timestamp_ms=moment)))


def beside_another_end() -> str:
    """It holds the batch with another end."""
    return _beside_something_else(lambda old: replace(old, end=offsets(6)))


def _says(unit: Unit, *words: int) -> Noted:
    """Of each epoch, in the order of their numbers."""
    return EventTimeConfig("function", unit), lambda epoch: words[epoch.number - 1]


def a_word_that_goes_back() -> str:
    """The third epoch says that less is complete than the second one did."""
    stage = Stage(P, D)
    ended = stage.starts(notes=_says("integer", 10, 20, 15)).writes(3)
    return _goes_on(stage, ended) or stage.goes_back()


def times_in_another_unit() -> str:
    """A query that noted heights of blocks notes milliseconds."""
    stage = Stage(P)
    stage.starts(notes=_says("integer", 10, 20)).writes(2)
    ended = stage.starts(notes=_says("ms", 0, 0, 30)).writes()
    return _refused(ended, stage.goes_back() or "X-TIME: numbers of two units stand in one line")


def a_writer_that_counts_otherwise() -> str:
    """A query notes heights of blocks, and another writer of its dataset milliseconds."""
    stage, (noting, says) = Stage(P), _says("integer", 10)
    other = TimedMarker("another", 1, EpochTime("ms", 10, 10, 10))
    ended = stage.starts(notes=(replace(noting, writers=WriterSet()), says), peers=[other]).writes()
    return _refused(ended, "X-TIME: numbers of two units stand in one dataset")


def a_row_of_the_far_future() -> str:
    """A row is of a time far beyond the clock of its batch, and may be an hour ahead of it."""
    hour = EventTimeConfig("rows", "ms", "at", ahead=3_600_000)
    ended = Stage(P).starts(notes=(hour, None), times=RowTimes(1, 10**15)).writes()
    return _refused(ended, "X-TIME: one row moved time for good")


def rows_that_break_a_check() -> str:
    """The rows of a batch do not add up, and their writer declared that they do."""
    ended = Stage(P, D).starts(check=Check("balanced", "sum(debit) = sum(credit)")).writes()
    return _refused(ended, "X-INVARIANT: rows stand in the sinks that contradict what was declared of them")


def more_windows_than_may_be() -> str:
    """Each epoch opens windows, and after two of them no more may be open."""
    stage = Stage(P)
    ended = stage.starts(windows=WindowsConfig("sums by team", "sums", most=2)).writes(3)
    return ended.code if ended.code.startswith("X-") else "" if ended.code else "X-PANE: more is open than may be"


def windows_of_another_meaning() -> str:
    """A query that summed by team counts by player, on the state that it finds."""
    stage = Stage(P)
    stage.starts(windows=WindowsConfig("sums by team", "sums")).writes(2)
    ended = stage.starts(windows=WindowsConfig("counts by player", "counts")).writes()
    return _refused(ended, "X-PANE: windows that held sums go on as counts")


def _computed_again(stage: Stage, by: WindowsConfig) -> Ended:
    """A sink lacks an epoch of windows whose bytes are gone, and the query is started again with these."""
    windows = WindowsConfig("sums by team", "sums")
    stage.starts(windows=windows).writes(1)
    stage.starts(sinks={D: Dying}, windows=windows).writes()
    stage.scene.staging = StagingArea()
    return stage.starts(windows=by).writes()


def an_epoch_whose_windows_went_on() -> str:
    """No sink that lacks the epoch keeps state: who keeps it holds what the epoch left."""
    ended = _computed_again(Stage(P, D), WindowsConfig("sums by team", "sums"))
    return _refused(ended, "X-PANE: panes are computed again from state that holds their rows")


def an_epoch_whose_windows_are_defined_otherwise() -> str:
    """The keeper of state lacks the epoch, and by now its windows have another trigger."""
    stage = Stage(P, D)
    keeper(stage)
    ended = _computed_again(stage, WindowsConfig("sums by team, and early ones", "sums"))
    return _refused(ended, "X-PANE: state of another definition stands under the marker of the one before")


SCENES: tuple[Callable[[], str], ...] = (
    rows_deleted_by_others,
    a_table_that_others_have_filled,
    a_sink_left_out,
    the_name_in_another_place,
    sinks_of_two_histories,
    markers_of_another_pipeline,
    a_fence_without_an_answer,
    a_commit_without_an_answer,
    commits_that_never_arrive,
    commits_taken_back,
    a_sink_that_keeps_less,
    staged_files_that_hold_less,
    bytes_gone_and_other_rows,
    an_output_that_does_not_add_up,
    rows_that_are_all_bad,
    bytes_gone_and_another_output,
    bytes_gone_of_a_trimmed_epoch,
    an_epoch_that_was_never_staged,
    a_topic_made_anew,
    state_gone,
    state_of_another_run,
    state_of_another_run_under_a_replay,
    a_replay_that_leaves_other_files,
    a_new_checkpoint_at_the_end,
    a_new_checkpoint_before_the_end,
    a_full_refresh,
    beside_another_query,
    beside_another_moment,
    beside_another_end,
    a_word_that_goes_back,
    times_in_another_unit,
    a_writer_that_counts_otherwise,
    a_row_of_the_far_future,
    rows_that_break_a_check,
    more_windows_than_may_be,
    windows_of_another_meaning,
    an_epoch_whose_windows_went_on,
    an_epoch_whose_windows_are_defined_otherwise,
)


def played(name: str = "") -> Iterator[tuple[str, str | Exception]]:
    """The scene of a name, or each, with what is wrong at its end or has broken it; empty: nothing."""
    for scene in (candidate for candidate in SCENES if name in ("", candidate.__name__)):
        try:
            yield scene.__name__, scene()
        except Exception as error:  # noqa: BLE001 - a machine that breaks for want of a rule has noticed it
            yield scene.__name__, error
