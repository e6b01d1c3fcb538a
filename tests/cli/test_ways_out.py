"""Every state in which a pipeline stops has a way out: what is printed is run as printed, and the pipeline goes on."""

from __future__ import annotations

import gc
import re
import secrets
import shlex
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import fsspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fsspec.implementations.memory import MemoryFileSystem
from tests.cli.conftest import Run, assert_answerless, document
from tests.core.several import Crash, Pipeline, crash, left_behind, offered, rows
from tests.core.stories import at, cut, lineage, offer
from tests.sinks.delta_harness import DeltaHarness

from onceonly import faults
from onceonly.errors import ConfigurationError, IdentityError, OnceOnlyError
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.acceptance import applicable
from onceonly.machine.facts import Offer
from onceonly.machine.source_order import kafka_identity
from onceonly.machine.state import Job, State
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime import remedies
from onceonly.runtime.operator import adopt
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.ledger import EventKind, Ledger
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.manifest import NAME
from onceonly_checkpoints.model import Adoption, AdoptionKind, SourceIdentity, SourceOffsets
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemoryStore


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One sink that holds two epochs."""
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1, 2)
    return pipeline


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    """Three sinks that hold two epochs."""
    pipeline = Pipeline(tmp_path)
    pipeline.driver().writes(1, 2)
    return pipeline


class Executable(ArrowBatch):
    """A batch that can also be run without being written, as a stateful query needs it."""

    def execute(self) -> Digest:
        return self.digest()


def write(sinks: Sequence[Sink], ledger: Ledger, root: Path, what: Offer, table: pa.Table, **options: object) -> State:
    """Start a query whose first batch is ``what``."""
    ids = tuple(sink.id for sink in sinks)
    state = coordinator.start(Job("orders", ids, secrets.token_hex(4), what, **options))  # type: ignore[arg-type]
    return Runner(sinks, ledger, staging=StagedEpochs(str(root / "staging"), "orders", sinks)).run(
        state, Executable(table)
    )


def starts(pipeline: Pipeline, what: Offer, table: pa.Table | None = None, **options: object) -> State:
    return write(pipeline.sinks(), pipeline.ledger, pipeline.root, what, table or rows(7), **options)


def refused(pipeline: Pipeline, code: str, what: Offer, table: pa.Table | None = None, **options: object) -> str:
    with pytest.raises(IdentityError) as error:
        starts(pipeline, what, table, **options)
    assert error.value.code == code, error.value
    return str(error.value)


def printed(said: str, words: str) -> list[str]:
    """The arguments of the printed command that contains ``words``, as a shell would split it."""
    [line] = [line for line in re.findall(r"onceonly ([^\n]*)", said) if words in line]
    return shlex.split(line)


def obeys(run: Run, said: str, words: str) -> str:
    """Run a printed command; it must change nothing, and print the one that does."""
    planned = run(*printed(said, words))
    assert planned.exit_code == 4, planned.output
    assert "Nothing was changed" in planned.stderr
    done = run(*printed(planned.stderr, "--yes"))
    assert done.exit_code == 0, done.output
    return str(planned.stdout)


def ids(pipeline: Pipeline, name: str) -> list[int]:
    [sink] = [sink for sink in pipeline.sinks_open() if sink.id == f"memory:{name}"]
    return sorted(row["id"] for row in sink.rows())


def audited(run: Run, pipeline: Pipeline) -> set[str]:
    ledger = str(pipeline.root / "ledger.db")
    return {found["code"] for found in document(run("audit", "--ledger", ledger, "-o", "json"))["findings"]}


# ---- a sink that is not given any more


def without(pipeline: Pipeline, name: str) -> str:
    """What the query says that is started without a sink."""
    del pipeline.stores[name]
    return refused(pipeline, "E213", offered(3))


def test_a_sink_is_taken_out_by_name_and_the_others_go_on(run: Run, three: Pipeline) -> None:
    plan = obeys(run, without(three, "b"), "drop-sink")
    assert "misses everything after epoch 2" in plan
    three.driver().writes(3)
    assert ids(three, "a") == ids(three, "c") == list(range(30))
    head = three.ledger.head("orders")
    assert head is not None
    assert head.epoch.sinks == (("memory:a", 1), ("memory:c", 1))
    (adopted,) = three.events(EventKind.ADOPTED)
    assert adopted.startswith("drop-sink memory:b (by ")
    assert audited(run, three) == {"A116"}


def test_a_sink_that_cannot_be_found_any_more_can_still_be_taken_out(run: Run, three: Pipeline) -> None:
    address = three.stores["a"].address
    said = without(three, "a")
    gc.collect()
    assert MemoryStore.at(address) is None
    obeys(run, said, "drop-sink")
    three.driver().writes(3)
    assert ids(three, "b") == list(range(30))


def test_a_sink_is_taken_out_although_the_ledger_is_new(run: Run, three: Pipeline) -> None:
    three.ledger.close()
    three.ledger = SqlLedger(str(three.root / "new.db"))
    obeys(run, without(three, "b"), "drop-sink")
    three.driver().writes(3)
    assert ids(three, "a") == ids(three, "c") == list(range(30))


def test_what_only_the_dropped_sink_holds_the_others_write_themselves(run: Run, tmp_path: Path) -> None:
    pipeline = left_behind(tmp_path)
    del pipeline.stores["a"]
    obeys(run, refused(pipeline, "E213", offered(2)), "drop-sink")
    pipeline.driver().writes(2, 3)
    assert ids(pipeline, "b") == ids(pipeline, "c") == list(range(30))


def test_sinks_left_behind_are_healed_before_another_is_dropped(run: Run, tmp_path: Path) -> None:
    pipeline = left_behind(tmp_path)
    del pipeline.stores["c"]
    obeys(run, refused(pipeline, "E213", offered(2)), "drop-sink")
    assert ids(pipeline, "a") == ids(pipeline, "b") == list(range(20))
    pipeline.driver().writes(2, 3)
    assert ids(pipeline, "a") == ids(pipeline, "b") == list(range(30))


def test_a_drop_that_reached_one_sink_reaches_the_others(run: Run, three: Pipeline) -> None:
    command = printed(without(three, "b"), "drop-sink")
    faults.arm(Point.COMMIT_SENT, crash, 2)
    with pytest.raises(Crash):
        run(*command, "--yes")
    faults.disarm()
    three.driver().writes(3)
    assert ids(three, "a") == ids(three, "c") == list(range(30))


def test_a_drop_says_nothing_about_the_source(run: Run, three: Pipeline) -> None:
    obeys(run, without(three, "b"), "drop-sink")
    other = (SourceIdentity("0", kafka_identity("cluster", {"events": "made anew"})),)
    refused(three, "E212", offer(cut(20, 30), 2, sources=other))
    refused(three, "E204", offer(cut(25, 30), 2))


def test_a_dropped_sink_joins_again_only_when_that_is_said(run: Run, three: Pipeline) -> None:
    store = three.stores["b"]
    obeys(run, without(three, "b"), "drop-sink")
    three.driver().writes(3)
    three.stores["b"] = store
    refused(three, "E202", offered(4))
    starts(three, offered(4), rows(4), adopt="here")
    three.driver().writes(5)
    assert ids(three, "a") == list(range(50))
    assert ids(three, "b") == [*range(20), *range(30, 50)]
    assert "A121" not in audited(run, three)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory:z", "--accept-loss"], ["has no sink memory:z", "memory:a, memory:b, memory:c"]),
        (["memory:b"], ["would miss everything", "--accept-loss"]),
    ],
)
def test_bad_input_to_drop_sink_changes_nothing(
    run: Run, three: Pipeline, arguments: list[str], words: list[str]
) -> None:
    ledger = str(three.root / "ledger.db")
    assert_answerless(run("recover", "drop-sink", "orders", *arguments, "--ledger", ledger, "--yes"), *words)
    three.driver().writes(3)
    three.holds(3)


def test_the_last_sink_is_never_dropped(run: Run, one: Pipeline) -> None:
    ledger = str(one.root / "ledger.db")
    result = run("recover", "drop-sink", "orders", "memory:a", "--accept-loss", "--ledger", ledger, "--yes")
    assert_answerless(result, "is the last sink")
    one.driver().writes(3)
    one.holds(3)


# ---- a sink that holds rows of others


def test_a_sink_that_joins_with_rows_is_taken_as_it_stands_when_that_is_said(one: Pipeline) -> None:
    one.stores["b"] = MemoryStore()
    one.stores["b"].append_foreign(pa.table({"id": [900], "text": ["before"]}))
    assert 'adopt="here"' in refused(one, "E202", offered(3))
    starts(one, offered(3), rows(3), adopt="here")
    assert ids(one, "a") == list(range(30))
    assert ids(one, "b") == [*range(20, 30), 900]


def test_a_sink_that_joins_empty_needs_nothing_said(one: Pipeline) -> None:
    one.stores["b"] = MemoryStore()
    one.driver().writes(3)
    assert ids(one, "b") == list(range(20, 30))


def test_offsets_that_do_not_fit_are_replaced_by_here(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.stores["a"].append_foreign(rows(1))
    said = refused(pipeline, "E218", offer(cut(20, 30), 4), adopt=at(10))
    assert 'use recovery=Recovery(adopt="here")' in said
    starts(pipeline, offer(cut(20, 30), 4), rows(3), adopt="here")
    assert ids(pipeline, "a") == [*range(10), *range(20, 30)]


def test_offsets_that_fit_are_taken(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.stores["a"].append_foreign(rows(1))
    refused(pipeline, "E218", offer(cut(20, 30), 4), adopt=at(10))
    starts(pipeline, offer(cut(10, 20), 4), rows(2), adopt=at(10))
    assert ids(pipeline, "a") == list(range(20))


# ---- batches that do not go on where the sinks end


def test_an_overlap_is_written_again_when_that_is_said(run: Run, one: Pipeline) -> None:
    again = offer(cut(10, 30), 0, "q2")
    plan = obeys(run, refused(one, "E203", again), "accept-duplicates")
    assert "where the batch starts that was refused last" in plan
    starts(one, again, rows(2))
    assert ids(one, "a") == sorted([*range(20), *range(10, 20)])


def test_an_overlap_that_cannot_be_proven_is_written_again_when_that_is_said(run: Run, one: Pipeline) -> None:
    again = offer(cut(None, 30), 0, "q2")
    obeys(run, refused(one, "E220", again, overlap="trim"), "accept-duplicates")
    starts(one, again, rows(1), overlap="trim")
    assert ids(one, "a") == sorted([*range(20), *range(10)])


def test_a_ledger_with_a_hole_is_filled_and_the_batch_is_proven(run: Run, one: Pipeline) -> None:
    one.driver().writes(3)
    [newest] = one.ledger.epochs("orders", 3)
    one.ledger.discard("orders", 2)
    one.ledger.record(newest)  # as a driver did that was fenced out while the ledger lost the one before
    said = refused(one, "E203", offered(1))
    assert said.index("recover rebuild-ledger") < said.index("recover rebuild-checkpoint")
    obeys(run, said, "recover rebuild-ledger")
    assert starts(one, offered(1), rows(1)).work.skipped


def test_a_start_further_back_is_written_again_although_epochs_hold_it(run: Run, one: Pipeline) -> None:
    start = at(10).entries[0][1] or ""
    place = ("--ledger", str(one.root / "ledger.db"), "--yes")
    assert run("recover", "adopt", "orders", "--start", start, *place).exit_code == 0
    starts(one, offered(2), rows(2))  # its checkpoint was rolled back to there
    starts(one, offered(3), rows(3))
    assert ids(one, "a") == sorted([*range(30), *range(10, 20)])


def test_where_a_pipeline_stands_is_printed_for_an_overlap(run: Run, one: Pipeline) -> None:
    for code, what, options in (
        ("E203", offer(cut(10, 30), 0, "q2"), {}),
        ("E220", offer(cut(None, 30), 0, "q2"), {"overlap": "trim"}),
    ):
        command = printed(refused(one, code, what, **options), "epochs show --offsets")
        assert run(*command).stdout.strip() == '{"events":{"0":20}}'


def test_other_sources_go_on_when_that_is_said(run: Run, one: Pipeline) -> None:
    other = (SourceIdentity("0", kafka_identity("cluster", {"events": "made anew"})),)
    moved = offer(cut(0, 10), 0, "q2", sources=other)
    obeys(run, refused(one, "E212", moved), "--continue")
    starts(one, moved, rows(3))
    assert ids(one, "a") == list(range(30))
    starts(one, offer(cut(10, 20), 1, "q2", sources=other), rows(4))
    assert ids(one, "a") == list(range(40))


# ---- a new checkpoint over a source that says where it begins, and whose offset log does not


def begins(start: int, end: int, batch: int = 0, **options: object) -> Offer:
    """Batch 0 of a Kafka source: no start in the offset log, one in the source's own note."""
    planned = offer(cut(None, end), batch, "q2", begins=at(start))
    return replace(planned, **options)  # type: ignore[arg-type]


def ways(said: str) -> list[list[str]]:
    """Every printed command of ``recover adopt``, as a shell would split it."""
    return [words for line in re.findall(r"onceonly ([^\n]*)", said) if (words := shlex.split(line))[:2] == ADOPT]


ADOPT = ["recover", "adopt"]

WALKS = {
    "earliest": (begins(0, 30), "E203", range(20)),
    "in the middle": (begins(10, 30), "E203", range(10, 20)),
    "latest": (begins(25, 30), "E204", ()),
    "earliest, with state": (begins(0, 30, stateful=True), "E206", range(20)),
    "latest, with state": (begins(25, 30, stateful=True), "E206", ()),
    "where it ended, with state": (begins(20, 30, stateful=True), "E206", ()),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_new_checkpoint_over_kafka_goes_on_by_obeying_what_is_printed(run: Run, one: Pipeline, name: str) -> None:
    what, code, doubled = WALKS[name]
    assert what.slice.start.unset
    assert what.start == what.begins
    written = pa.table({"id": range(int(_at(what)), 30), "text": [""] * (30 - int(_at(what)))})
    said, asked = refused(one, code, what, written), 0
    while said:
        asked += 1
        assert asked <= 1 + what.stateful, said  # lost state is one question, the position another
        command, *_ = ways(said)
        planned = run(*command)
        assert planned.exit_code == 4, planned.output
        done = run(*printed(planned.stderr, "--yes"))
        assert done.exit_code == 0, done.output
        said = refusal(one, what, written)
    assert ids(one, "a") == sorted([*range(20), *range(int(_at(what)), 30)])
    assert Counter(ids(one, "a")) - Counter(range(30)) == Counter(doubled)
    starts(one, offer(cut(30, 40), 1, "q2", stateful=what.stateful), rows(4))
    assert ids(one, "a")[-10:] == list(range(30, 40))


def refusal(pipeline: Pipeline, what: Offer, table: pa.Table) -> str:
    """What the query says when it is restarted; empty if it goes on."""
    try:
        starts(pipeline, what, table)
    except IdentityError as error:
        return str(error)
    return ""


def _at(what: Offer) -> int:
    return int(re.findall(r":(\d+)", what.start.text.replace("\\", ""))[-1])


def test_the_old_checkpoint_put_back_goes_on_although_lost_state_was_accepted(run: Run, one: Pipeline) -> None:
    obeys(run, refused(one, "E206", begins(0, 30, stateful=True)), "--accept-state-loss")
    starts(one, stateful(3), rows(3))
    assert ids(one, "a") == list(range(30))


def test_a_batch_that_repeats_rows_and_skips_others_is_not_taken_as_duplicates(run: Run, one: Pipeline) -> None:
    two = SourceOffsets.of({"0": '{"events":{"0":10,"1":5}}'})
    torn = replace(begins(0, 30), begins=two)
    said = refused(one, "E203", torn)
    assert "accept-duplicates" not in said
    place = ("--ledger", str(one.root / "ledger.db"), "--yes")
    assert_answerless(run("recover", "adopt", "orders", "--accept-duplicates", "1..2", *place), "Nothing that")


def test_a_sink_that_was_moved_with_its_rows_is_taken_after_a_check(run: Run, one: Pipeline) -> None:
    one.stores["a"].identity = "another server"
    obeys(run, refused(one, "E208", offered(3)), "--same-data")
    one.driver().writes(3)
    assert ids(one, "a") == list(range(30))


def moved_away(pipeline: Pipeline, identity: str) -> str:
    """The sink at another address, with all it held; nothing is at the old one any more. The options that name it."""
    store = MemoryStore()
    store._log[:], store._serials = pipeline.stores["a"]._log, pipeline.stores["a"]._serials
    store.identity = identity or pipeline.stores["a"].identity
    old = pipeline.stores["a"].address
    pipeline.stores["a"] = store
    gc.collect()
    assert MemoryStore.at(old) is None
    [sink] = pipeline.sinks()
    return shlex.join(("--sink", sink.address))


def test_every_command_names_the_place_that_the_sink_has_now(run: Run, one: Pipeline) -> None:
    one.driver().writes(3, 4)
    place = moved_away(one, "")
    one.stores["a"].restore(2)
    one.stores["a"]._mishaps.clear()
    said = refused(one, "E207", offered(5))
    found = [line for line in said.splitlines() if "onceonly " in line]
    assert ["recover rewind" in found[0], "--accept-loss" in found[1]] == [True, True]
    assert all(place in line for line in found), said
    # Its plan; what it does to checkpoints is shown elsewhere.
    assert run(*printed(said, "recover rewind")).exit_code == 4
    obeys(run, said, "--accept-loss")
    starts(one, offered(5), rows(5))
    assert ids(one, "a") == [*range(20), *range(40, 50)]


def test_an_audit_that_is_printed_asks_the_sink_that_is_running(run: Run, one: Pipeline) -> None:
    place = moved_away(one, "")
    one.stores["a"].overwrite(rows(2))
    said = refused(one, "E209", offered(3))
    assert place in shlex.join(printed(said, "audit --query"))
    assert run(*printed(said, "audit --query")).exit_code == 1
    obeys(run, said, "accept-change")


def test_a_server_that_was_moved_is_not_told_that_its_rows_are_gone(run: Run, one: Pipeline) -> None:
    place = moved_away(one, "another server")
    said = refused(one, "E208", offered(3))
    assert "One that was moved may hold all of them." in said
    commands = ways(said)
    assert [place in shlex.join(command) for command in commands] == [True, True]
    assert ["--same-data" in command for command in commands] == [True, False]
    obeys(run, said, "--same-data")
    one.driver().writes(3)
    assert ids(one, "a") == list(range(30))


def test_a_copy_that_lacks_rows_is_not_taken_for_the_same_data(run: Run, one: Pipeline) -> None:
    one.stores["a"].identity = "another server"
    said = refused(one, "E208", offered(3))
    log = one.stores["a"]._log
    place = next(at for at, entry in enumerate(log) if entry.epoch == 2)
    log[place] = replace(log[place], rows=rows(2).slice(5))
    result = run(*printed(said, "--same-data"), "--yes")
    assert result.exit_code == 2
    assert "ONCE-E228" in result.stderr
    assert "5 of the 10 rows of epoch 2" in result.stderr


def test_same_data_is_not_offered_for_a_sink_that_was_made_anew(one: Pipeline) -> None:
    one.stores["a"].recreate()
    assert "--same-data" not in refused(one, "E208", offered(3))


def test_a_sink_that_was_set_back_is_told_first_what_loses_nothing(run: Run, one: Pipeline) -> None:
    one.driver().writes(3, 4)
    one.stores["a"].restore(2)
    one.stores["a"]._mishaps.clear()  # a backup knows nothing of what came after it
    said = refused(one, "E207", offered(5))
    found = [line for line in said.splitlines() if "onceonly" in line]
    assert ["recover rewind" in found[0], "--accept-loss 3..4" in found[1]] == [True, True]
    assert found[0].endswith("--to 2")
    assert "2 epochs, 20 rows" in found[1]
    one.ledger.supersede("orders", 3, "as a rewind does, whose checkpoint was not there")
    assert "it has batch 3 as done" in refused(one, "E229", offered(5))
    starts(one, offered(3), rows(3))  # as Spark offers it once its checkpoint was set back
    assert ids(one, "a") == list(range(30))


def test_a_checkpoint_that_is_ahead_says_how_many_epochs_are_given_up(run: Run, one: Pipeline) -> None:
    ahead = offer(cut(50, 60), 5)
    said = refused(one, "E229", ahead)
    assert "or give up 3 epochs, 30 offsets: " in said
    assert printed(said, "--accept-loss")[-1] == "3..5"
    obeys(run, said, "--accept-loss")
    starts(one, ahead, rows(6))
    assert ids(one, "a") == [*range(20), *range(50, 60)]


def test_a_gap_that_was_given_up_is_behind_a_checkpoint_that_is_put_back(run: Run, one: Pipeline) -> None:
    starts(one, begins(20, 30), rows(3))  # the plan of a new checkpoint names no start, so it is kept beside the slice
    ahead = offer(cut(50, 60), 3, "q2")
    obeys(run, refused(one, "E229", ahead), "--accept-loss")
    head = one.ledger.head("orders")
    assert head is not None
    assert (
        head.epoch.reached == head.epoch.written.end == at(50)
    )  # this is where `recover rebuild-checkpoint` lets Spark go on
    starts(one, ahead, rows(6))
    assert ids(one, "a") == [*range(30), *range(50, 60)]


def test_a_gap_that_grew_after_its_plan_was_shown_is_not_given_up(one: Pipeline) -> None:
    for code, kind, shown, later in (
        ("E204", AdoptionKind.ACCEPT_LOSS, begins(30, 40), begins(50, 60)),
        ("E203", AdoptionKind.ACCEPT_DUPLICATES, begins(15, 40), begins(12, 40)),
    ):
        refused(one, code, shown)
        wanted = applicable(kind, remedies.last(one.ledger, "orders"), at(20))
        assert wanted is not None
        refused(one, code, later)  # a supervisor starts the query again and again, each time with a new checkpoint
        with pytest.raises(OnceOnlyError, match="another range") as error:
            adopt(one.sinks(), one.ledger, "orders", wanted)
        assert error.value.code == "E110"
        refused(one, code, shown)
        head = one.ledger.head("orders")
        assert head is not None
        assert head.epoch.number == 2
    refused(one, "E204", begins(30, 40))
    lost = applicable(AdoptionKind.ACCEPT_LOSS, remedies.last(one.ledger, "orders"), at(20))
    assert lost is not None
    adopted = adopt(one.sinks(), one.ledger, "orders", lost)
    assert adopted is not None
    assert adopted.written == cut(20, 30)


def test_a_source_that_starts_elsewhere_since_the_plan_was_shown_does_not_go_on_there(one: Pipeline) -> None:
    elsewhere = (SourceIdentity("0", kafka_identity("c", {"t": "1"})),)
    shown, later = (replace(offer(cut(start, start + 10), 3), sources=elsewhere) for start in (20, 40))
    refused(one, "E212", shown)
    wanted = applicable(AdoptionKind.CONTINUE, remedies.last(one.ledger, "orders"), at(20))
    assert wanted is not None
    refused(one, "E212", later)
    with pytest.raises(OnceOnlyError, match="another range") as error:
        adopt(one.sinks(), one.ledger, "orders", wanted)
    assert error.value.code == "E110"
    refused(one, "E212", shown)
    adopted = adopt(one.sinks(), one.ledger, "orders", wanted)
    assert adopted is not None
    assert adopted.written == cut(20, 20)


def test_what_was_given_up_before_is_not_counted_again(run: Run, one: Pipeline) -> None:
    obeys(run, refused(one, "E229", offer(cut(50, 60), 5)), "--accept-loss")
    assert "or give up 1 epoch, 10 offsets: " in refused(one, "E229", offer(cut(60, 70), 6))


def test_one_of_several_that_was_set_back_by_an_epoch_gets_it_from_what_was_staged(run: Run, three: Pipeline) -> None:
    three.driver().writes(3)
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()  # a backup knows nothing of what came after it
    said = refused(three, "E207", offered(4))
    assert "accept-loss" not in said
    assert "so this loses nothing: onceonly recover resolve" in said
    obeys(run, said, "recover resolve")
    three.driver().writes(4)
    three.holds(4)


def test_staged_bytes_that_are_gone_are_not_counted_on(run: Run, three: Pipeline) -> None:
    three.driver().writes(3)
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()
    said = refused(three, "E207", offered(4))
    bereft(three)
    planned = run(*printed(said, "recover resolve"), "--yes")
    assert "[ONCE-E219]" in planned.stderr
    said = refused(three, "E207", offered(4))
    assert "recover resolve" not in said
    obeys(run, said, "accept-loss")
    three.driver().writes(4)
    assert ids(three, "b") == [*range(20), *range(30, 40)]


@pytest.mark.parametrize("name", [name for name, (what, _, _) in WALKS.items() if what.stateful])
def test_lost_state_prints_both_commands_and_the_query_goes_on_after_them(run: Run, one: Pipeline, name: str) -> None:
    what, code, doubled = WALKS[name]
    written = pa.table({"id": range(int(_at(what)), 30), "text": [""] * (30 - int(_at(what)))})
    commands = ways(refused(one, code, what, written))
    assert len(commands) == 1 + (int(_at(what)) != 20)
    for command in commands:
        planned = run(*command)
        assert planned.exit_code == 4, planned.output
        assert run(*printed(planned.stderr, "--yes")).exit_code == 0
    starts(one, what, written)
    assert Counter(ids(one, "a")) == Counter([*range(20), *range(int(_at(what)), 30)])
    assert set(doubled) <= set(range(20))


def test_one_of_several_that_was_set_back_by_more_is_told_what_brings_it_level(run: Run, three: Pipeline) -> None:
    three.driver().writes(3, 4)
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()
    said = refused(three, "E207", offered(5))
    planned = run(*printed(said, "recover rewind orders"))
    assert planned.exit_code == 4
    assert "gets epochs 3..4, 20 rows: 1 from sink:memory:a, 1 from stage" in planned.stdout


def test_two_of_several_that_were_set_back_are_answered_at_once(run: Run, three: Pipeline) -> None:
    three.driver().writes(3, 4)
    three.stores["b"].restore(1)
    three.stores["c"].restore(2)
    obeys(run, refused(three, "E207", offered(5)), "--accept-loss 2..4 --sink memory:b --sink memory:c")
    three.driver().writes(5)
    assert ids(three, "a") == list(range(50))
    assert ids(three, "b") == [*range(10), *range(40, 50)]
    assert ids(three, "c") == [*range(20), *range(40, 50)]


def test_two_of_several_that_others_changed_are_accepted_as_each_was_seen(run: Run, three: Pipeline) -> None:
    for name in ("b", "c"):
        three.stores[name].overwrite(rows(2))
    said = refused(three, "E209", offered(3))
    words = printed(said, "accept-change")
    (one, seen), (other, _) = (word.rpartition("@")[::2] for word in words if word.startswith("memory:"))
    assert (one, other) == ("memory:b", "memory:c")
    twice = [word if not word.startswith("memory:") else f"memory:b@{seen}" for word in words]
    assert_answerless(run(*twice, "--yes"), "names something else")
    three.stores["c"].overwrite(rows(3))
    assert run(*words, "--yes").exit_code == 2  # more was done to it than what was accepted
    obeys(run, refused(three, "E209", offered(3)), "accept-change")
    three.driver().writes(3)


# ---- sinks that lost something


def bereft(pipeline: Pipeline) -> Pipeline:
    for address in pipeline.staged():
        (Path(address) / NAME).unlink()
    return pipeline


def test_sinks_that_cannot_be_brought_to_the_others_go_on_without_that_epoch(run: Run, tmp_path: Path) -> None:
    pipeline = bereft(left_behind(tmp_path))
    obeys(run, refused(pipeline, "E219", offered(2)), "accept-loss")
    driver = pipeline.driver()
    driver.writes(2, 3)
    assert ids(pipeline, "a") == list(range(30))
    assert ids(pipeline, "b") == ids(pipeline, "c") == [*range(10), *range(20, 30)]
    assert any("cannot be brought to epoch 2" in reason for reason in pipeline.events(EventKind.DIVERGED))


def test_a_hole_is_given_up_only_as_a_loss(run: Run, tmp_path: Path) -> None:
    pipeline = bereft(left_behind(tmp_path))
    ledger = str(pipeline.root / "ledger.db")
    refused(pipeline, "E219", offered(2))
    assert_answerless(run("recover", "adopt", "orders", "--accept-change", "--ledger", ledger, "--yes"), "stops")
    with pytest.raises(IdentityError, match="ONCE-E219"):
        adopt(pipeline.sinks(), pipeline.ledger, "orders", Adoption(AdoptionKind.ACCEPT_LOSS, ("memory:b",), 2, 2))


def test_bytes_that_are_still_there_are_written_and_nothing_is_accepted(run: Run, tmp_path: Path) -> None:
    pipeline = left_behind(tmp_path)
    ledger = str(pipeline.root / "ledger.db")
    lost = ("--accept-loss", "2..2", "--sink", "memory:b", "--sink", "memory:c")
    done = run("recover", "adopt", "orders", *lost, "--ledger", ledger, "--yes")
    assert done.exit_code == 0, done.output
    assert "nothing to accept" in done.stdout
    assert all(ids(pipeline, name) == list(range(20)) for name in pipeline.stores)
    assert pipeline.events(EventKind.ADOPTED) == []


def test_one_of_several_sinks_that_was_set_back_goes_on_with_its_loss(run: Run, three: Pipeline) -> None:
    three.driver().writes(3)
    three.stores["b"].restore(1)
    said = refused(three, "E207", offered(4))
    obeys(run, said, "accept-loss")
    three.driver().writes(4)
    assert ids(three, "a") == ids(three, "c") == list(range(40))
    assert ids(three, "b") == [*range(10), *range(30, 40)]


def backup(pipeline: Pipeline, name: str, epochs: int) -> MemoryStore:
    """The store as it was after some epochs; like a database that was restored it does not know that it is so."""
    store = pipeline.stores[name]
    copied = MemoryStore()
    copied.identity = store.identity
    for entry in store.epochs(("orders", f"memory:{name}"))[:epochs]:
        copied.add(entry)
    return copied


def test_a_loss_is_not_accepted_for_sinks_that_nobody_named_and_that_lost_it_since(three: Pipeline) -> None:
    three.driver().writes(3, 4)
    three.ledger.close()
    three.ledger = SqlLedger(str(three.root / "another.db"))
    three.stores["b"] = backup(three, "b", 1)
    assert "--accept-loss 2..4 --sink memory:b" in refused(three, "E207", offered(5))
    three.stores |= {name: backup(three, name, 3) for name in ("a", "c")}
    with pytest.raises(ConfigurationError, match=r"Epoch 4 .* is in none of its sinks any more"):
        adopt(three.sinks(), three.ledger, "orders", Adoption(AdoptionKind.ACCEPT_LOSS, ("memory:b",), 2, 4))
    assert three.events(EventKind.ADOPTED) == []
    assert "--accept-loss" in refused(three, "E229", offered(5))


def test_one_of_several_sinks_that_was_made_anew_goes_on_with_its_loss(run: Run, three: Pipeline) -> None:
    three.stores["b"].recreate()
    obeys(run, refused(three, "E208", offered(3)), "accept-loss")
    three.driver().writes(3)
    assert ids(three, "a") == list(range(30))
    assert ids(three, "b") == list(range(20, 30))


def cut_off(pipeline: Pipeline, said: str, run: Run, at_: Point, action: Callable[[], None]) -> None:
    """Obey the acceptance of a loss; it ends where ``action`` strikes."""
    faults.arm(at_, action)
    with suppress(Crash):
        assert run(*printed(said, "accept-loss"), "--yes").exit_code != 0
    faults.disarm()


def test_a_loss_that_no_sink_took_leaves_what_the_ledger_knew(run: Run, one: Pipeline) -> None:
    def somebody_takes_over() -> None:
        [other] = one.sinks_open()
        fence = other.fence()
        assert fence is not None
        other.install(Fence(fence.generation + 1, "another driver"))

    one.stores["a"].recreate()
    said = refused(one, "E208", offered(3))
    cut_off(one, said, run, Point.REINDEX_AFTER, somebody_takes_over)
    assert [record.epoch.number for record in one.ledger.epochs("orders")] == [1, 2]
    again = refused(one, "E208", offered(3))
    assert printed(again, "accept-loss") == printed(said, "accept-loss")
    obeys(run, again, "accept-loss")
    one.driver().writes(3)
    assert ids(one, "a") == list(range(20, 30))


def test_a_loss_that_the_ledger_did_not_learn_of_is_read_back_by_a_rebuild(run: Run, one: Pipeline) -> None:
    one.stores["a"].restore(1)
    one.stores["a"]._mishaps.clear()
    cut_off(one, refused(one, "E207", offered(3)), run, Point.COMMIT_SENT, crash)
    obeys(run, refused(one, "E210", offered(3)), "recover rebuild-ledger")
    one.driver().writes(3)
    assert ids(one, "a") == [*range(10), *range(20, 30)]
    assert audited(run, one) == {"A116"}


@pytest.mark.parametrize(("code", "held"), [("E207", [*range(10)]), ("E208", [])])
def test_a_loss_accepted_again_after_a_crash_leaves_one_history(
    run: Run, one: Pipeline, code: str, held: list[int]
) -> None:
    one.driver().writes(3)
    if code == "E208":
        one.stores["a"].recreate()
    else:
        one.stores["a"].restore(1)
        one.stores["a"]._mishaps.clear()
    cut_off(one, refused(one, code, offered(4)), run, Point.COMMIT_SENT, crash)
    obeys(run, refused(one, code, offered(4)), "accept-loss")
    one.driver().writes(4)
    assert ids(one, "a") == [*held, *range(30, 40)]
    assert audited(run, one) == {"A116"}


def test_a_loss_does_not_move_the_position_back_over_a_batch_that_is_only_replayed(run: Run, one: Pipeline) -> None:
    one.stores["a"].overwrite(rows(2))
    obeys(run, refused(one, "E209", offered(2)), "accept-change")
    one.driver().writes(2, 3)
    assert ids(one, "a") == list(range(10, 30))


# ---- what the audit prints, before any start was refused


def adopted_by_audit(run: Run, pipeline: Pipeline, code: str, words: str) -> None:
    """Obey what the audit prints for each finding of a code."""
    result = document(run("audit", "--ledger", str(pipeline.root / "ledger.db"), "-o", "json"))
    remedies = {found["remedy"] for found in result["findings"] if found["code"] == code}
    assert remedies
    for remedy in remedies:
        [command] = [part for part in re.split(r"[;:] |\n", remedy) if words in part]
        planned = run(*shlex.split(command)[1:])
        assert "Nothing was changed" in planned.stderr, planned.output
    assert run(*printed(planned.stderr, "--yes")).exit_code == 0


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        ("b", "overwritten", "--accept-change"),
        ("bc", "overwritten", "--accept-change"),
        ("b", "moved", "--same-data"),
        ("b", "recreated", "--accept-loss"),
    ],
)
def test_what_the_audit_prints_for_what_others_did_is_accepted(
    run: Run, three: Pipeline, names: str, kind: str, words: str
) -> None:
    for name in names:
        three.stores[name]._suffer(kind, f"{kind}, by somebody else")
    adopted_by_audit(run, three, "A126", words)
    three.driver().writes(3)


def test_only_the_sinks_that_lost_something_are_named_beside_one_that_is_being_written(
    run: Run, tmp_path: Path
) -> None:
    pipeline = left_behind(tmp_path)
    pipeline.resolve()
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        pipeline.driver().writes(3)
    faults.disarm()
    pipeline.stores["c"].restore(1)
    pipeline.stores["c"]._mishaps.clear()
    adopted_by_audit(run, pipeline, "A142", "accept-loss")


def advice(run: Run, pipeline: Pipeline) -> dict[tuple[str, str], str]:
    """What the audit prints, by code and sink."""
    result = document(run("audit", "--ledger", str(pipeline.root / "ledger.db"), "-o", "json"))
    return {(one["code"], one["sink"]): one["remedy"] for one in result["findings"]}


def test_the_audit_gives_nothing_up_that_was_staged(run: Run, three: Pipeline) -> None:
    three.driver().writes(3)
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()
    said = advice(run, three)["A132", "memory:b"]
    assert said.startswith("stop every driver; its missing rows were staged for all sinks, so this loses nothing: ")
    assert "accept-loss" not in said
    adopted_by_audit(run, three, "A132", "recover resolve")
    three.driver().writes(4)
    three.holds(4)


def test_the_audit_counts_on_no_staged_bytes_that_are_gone(run: Run, three: Pipeline) -> None:
    three.driver().writes(3)
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()
    bereft(three)
    said = advice(run, three)["A132", "memory:b"]
    assert said.startswith("stop every driver; a newer backup of the sink loses nothing, if you have one")
    assert "No such file or directory" in said
    assert "recover resolve" not in said
    adopted_by_audit(run, three, "A132", "accept-loss")
    three.driver().writes(4)
    assert ids(three, "b") == [*range(20), *range(30, 40)]


class LockedStore(fsspec.AbstractFileSystem):
    """The same store, asked by somebody whom it does not let in; its driver has errors of its own."""

    def info(self, path: str, **_: object) -> NoReturn:
        raise LookupError(path)

    cat_file = _open = info


@pytest.fixture
def set_back_and_locked(tmp_path: Path) -> Iterator[Pipeline]:
    """One of three sinks lacks the newest epoch, and the store with its bytes gives no answer here."""
    pipeline = Pipeline(tmp_path, staging=f"memory://{tmp_path.name}")
    pipeline.driver().writes(1, 2, 3)
    pipeline.stores["b"].restore(2)
    pipeline.stores["b"]._mishaps.clear()
    fsspec.register_implementation("memory", LockedStore, clobber=True)
    yield pipeline
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)


def test_a_store_that_gives_no_answer_here_is_said_first_to_be_asked_from_elsewhere(
    run: Run, set_back_and_locked: Pipeline
) -> None:
    pipeline = set_back_and_locked
    for said in (refused(pipeline, "E207", offered(4)), advice(run, pipeline)["A132", "memory:b"]):
        assert "LookupError. Run it where it is" in said
        assert said.index("recover resolve") < said.index("accept-loss")
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)  # where it does
    assert run(*printed(said, "recover resolve"), "--yes").exit_code == 0
    pipeline.driver().writes(4)
    pipeline.holds(4)


def test_a_store_that_never_answers_again_is_no_dead_end(run: Run, set_back_and_locked: Pipeline) -> None:
    pipeline = set_back_and_locked
    obeys(run, refused(pipeline, "E207", offered(4)), "accept-loss")
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)  # the next epoch is staged in a new one
    pipeline.driver().writes(4)
    assert ids(pipeline, "b") == [*range(20), *range(30, 40)]


def test_the_audit_answers_two_of_several_that_were_set_back_at_once(run: Run, three: Pipeline) -> None:
    three.driver().writes(3, 4)
    three.stores["b"].restore(1)
    three.stores["c"].restore(2)
    for code in ("A132", "A142"):
        for sink in ("memory:b", "memory:c"):
            assert advice(run, three)[code, sink].endswith("--accept-loss 2..4 --sink memory:b --sink memory:c")
    adopted_by_audit(run, three, "A132", "accept-loss")
    three.driver().writes(5)
    assert ids(three, "c") == [*range(20), *range(40, 50)]


def test_the_audit_gives_up_what_the_ledger_does_not_know_yet_with_the_rest(run: Run, three: Pipeline) -> None:
    driver = three.driver()
    driver.writes(3)
    faults.arm(Point.RECORD_BEFORE, crash)
    with pytest.raises(Crash):
        driver.writes(4)
    faults.disarm()
    three.stores["b"].restore(2)
    three.stores["b"]._mishaps.clear()
    said = advice(run, three)
    for code in ("A132", "A142"):
        assert said[code, "memory:b"].endswith("--accept-loss 3..4 --sink memory:b")
    adopted_by_audit(run, three, "A132", "accept-loss")
    three.driver().writes(5)
    assert ids(three, "b") == [*range(20), *range(40, 50)]


# ---- state that was computed anew


def stateful(number: int) -> Offer:
    return replace(offered(number), stateful=True)


def test_recomputed_state_is_kept_when_that_is_said_and_no_row_changes(run: Run, one: Pipeline) -> None:
    said = refused(one, "E215", stateful(2), rows(7))
    plan = obeys(run, said, "--keep-recomputed-state")
    assert "rows of committed epochs stay as they were written" in plan
    assert "it stays there" in plan
    assert starts(one, stateful(2), rows(7)).work.skipped
    starts(one, stateful(3), rows(3))
    assert ids(one, "a") == list(range(30))
    assert any("Spark's state is kept" in reason for reason in one.events(EventKind.DIVERGED))
    assert audited(run, one) == {"A116"}


def test_recomputed_state_is_kept_only_until_the_next_epoch(run: Run, one: Pipeline) -> None:
    obeys(run, refused(one, "E215", stateful(2), rows(7)), "--keep-recomputed-state")
    starts(one, stateful(3), rows(3))
    refused(one, "E215", stateful(3), rows(8))


def test_recomputed_state_does_not_excuse_lost_state(run: Run, one: Pipeline) -> None:
    obeys(run, refused(one, "E215", stateful(2), rows(7)), "--keep-recomputed-state")
    refused(one, "E206", replace(stateful(3), lineage=lineage(0, "q2")))


# ---- a number whose text is gone


class Forgotten:
    """A Delta table whose log no longer holds the newest marker's text, and a new, empty ledger."""

    def __init__(self, root: Path) -> None:
        self.root, self.harness = root, DeltaHarness(root)
        self.ledger = SqlLedger(str(root / "first.db"))
        for number in (1, 2):
            self.starts(number)
        write_deltalake(self.harness.path, pa.table({"id": [900], "text": ["foreign"]}), mode="append")
        DeltaTable(self.harness.path).create_checkpoint()
        self.harness.forget_log_before_checkpoint()
        self.ledger.close()
        self.ledger = SqlLedger(str(root / "second.db"))

    def starts(self, number: int) -> None:
        sink = self.harness.connect()
        write([sink], self.ledger, self.root, offered(number), rows(number))
        sink.close()

    def refuses(self, number: int) -> str:
        with pytest.raises(IdentityError) as error:
            self.starts(number)
        assert error.value.code == "E216", error.value
        return str(error.value)

    @property
    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.harness.rows() if row["id"] != 900)


@pytest.fixture
def forgotten(tmp_path: Path) -> Forgotten:
    return Forgotten(tmp_path)


def test_a_forgotten_position_is_the_refused_batch_when_that_is_said(run: Run, forgotten: Forgotten) -> None:
    obeys(run, forgotten.refuses(3), "--continue")
    forgotten.starts(3)
    forgotten.starts(4)
    assert forgotten.ids == list(range(40))


def test_a_forgotten_position_can_be_stated(run: Run, forgotten: Forgotten) -> None:
    command = printed(forgotten.refuses(3), "--start")
    said = [at(20).entries[0][1] or "" if part == "OFFSETS" else part for part in command]
    assert run(*said, "--yes").exit_code == 0
    forgotten.starts(3)
    assert forgotten.ids == list(range(30))


def test_a_forgotten_position_is_not_guessed_from_another_acceptance(run: Run, forgotten: Forgotten) -> None:
    command = printed(forgotten.refuses(3), "--continue")
    result = run(*["--accept-state-loss" if part == "--continue" else part for part in command], "--yes")
    assert result.exit_code == 2
    assert "Nothing that --accept-state-loss accepts" in result.stderr
    assert forgotten.ids == list(range(20))


# ---- a Delta table at another place


class Copied:
    """A Delta table with two epochs, and a copy of it that the query writes to from now on."""

    def __init__(self, root: Path, **options: object) -> None:
        self.root = root
        self.old, self.new = (DeltaHarness(root / name, **options) for name in ("old", "new"))
        self.ledger = SqlLedger(str(root / "ledger.db"))
        for number in (1, 2):
            self.starts(self.old, offered(number), rows(number))

    def starts(self, harness: DeltaHarness, what: Offer, table: pa.Table) -> State:
        sink = harness.connect()
        try:
            return write([sink], self.ledger, self.root, what, table)
        finally:
            sink.close()

    def moves(self) -> None:
        shutil.copytree(self.old.path, self.new.path)

    def refuses(self, code: str, what: Offer) -> str:
        with pytest.raises(IdentityError) as error:
            self.starts(self.new, what, rows(3))
        assert error.value.code == code, error.value
        return str(error.value)


@pytest.mark.parametrize(
    ("code", "what", "words"),
    [
        ("E204", begins(25, 30), "--accept-loss"),
        ("E206", begins(20, 30, stateful=True), "--accept-state-loss"),
        ("E212", replace(offered(3), sources=(SourceIdentity("0", kafka_identity("c", {"t": "1"})),)), "--continue"),
        ("E214", replace(offered(3), missing=("file:/in/gone.csv",)), "--accept-loss"),
        ("E229", offer(cut(25, 30), 4), "--accept-loss"),
    ],
)
def test_what_a_look_prints_is_carried_out_where_the_table_is_now(
    run: Run, tmp_path: Path, code: str, what: Offer, words: str
) -> None:
    copied = Copied(tmp_path)
    before = DeltaTable(copied.old.path).version()
    copied.moves()
    said = copied.refuses(code, what)
    found = [line for line in said.splitlines() if "onceonly " in line]
    assert all(str(copied.new.path) in line and str(copied.old.path) not in line for line in found), said
    obeys(run, said, words)
    copied.starts(copied.new, what, rows(3))
    assert len(copied.new.rows()) == 30
    assert DeltaTable(copied.old.path).version() == before


def test_rows_that_others_deleted_by_leave_are_not_missed_in_a_copy(run: Run, tmp_path: Path) -> None:
    copied = Copied(tmp_path, external_changes="deletes")
    DeltaTable(copied.old.path).delete("id in (12, 13)")
    copied.starts(copied.old, offered(3), rows(3))
    copied.moves()
    was, new = str(DeltaTable(copied.old.path).metadata().id), str(uuid.uuid4())
    for version in (copied.new.path / "_delta_log").glob("*.json"):  # as a tool copies that gives new ids
        version.write_text(version.read_text().replace(was, new))
    copied.refuses("E208", offered(4))
    place = ("--ledger", str(tmp_path / "ledger.db"), "--sink", "delta:rows", "--sink", f"delta:{copied.new.path}")
    done = run("recover", "adopt", "orders", "--same-data", *place, "--yes")
    assert done.exit_code == 0, done.output
    copied.starts(copied.new, offered(4), rows(4))
    assert len(copied.new.rows()) == 38


@pytest.mark.parametrize("key", [None, "id"], ids=["appended", "by key"])
def test_a_delta_table_that_was_replaced_is_deleted_and_filled_by_what_is_printed(
    run: Run, tmp_path: Path, key: str | None
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ledger = SqlLedger(str(tmp_path / "ledger.db"))

    def writes(number: int) -> None:
        what = offered(number)
        what = replace(what, lineage=replace(what.lineage, checkpoint=(tmp_path / "checkpoint").as_uri()))
        sinks = [DeltaSink(str(first), key=key), DeltaSink(str(second))]
        staging = StagedEpochs(str(tmp_path / "staging"), "orders", sinks, 9)
        state = coordinator.start(Job("orders", tuple(sink.id for sink in sinks), "driver", what, stages=True))
        Runner(sinks, ledger, staging=staging).run(state, ArrowBatch(rows(number)))

    for number in (1, 2, 3):
        writes(number)
    DeltaTable.create(first, DeltaTable(first).schema(), mode="overwrite")
    with pytest.raises(IdentityError, match="E208") as stopped:
        writes(4)
    shutil.rmtree(first)
    obeys(run, str(stopped.value), "recover rewind")
    writes(4)
    assert sorted(DeltaTable(first).to_pyarrow_table()["id"].to_pylist()) == list(range(40))
