"""``recover adopt``, ``recover rebuild-ledger``, ``recover resolve``: a plan first, and only ``--yes`` writes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import epoch_after, slice_
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document
from tests.core.several import left_behind

from onceonly.machine.acceptance import Stop
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import EpochRecord, Fence
from onceonly_checkpoints.ledger import EventKind, Intent
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Slice, SourceIdentity, SourceOffsets
from onceonly_sinks.memory.store import StoreEntry


def head(world: World):
    marker, _ = list(world.sink.history())[-1]
    return marker.epoch


# ---- recover adopt


def test_an_adoption_is_only_planned_without_yes(on: Run, world: World) -> None:
    remembered(world, "E204", first=5, last=5, offered=slice_(500, 600))
    result = on("recover", "adopt", "orders", "--accept-loss", "5..5", "--reason", "files are gone")
    assert result.exit_code == 4
    assert "accept-loss of epoch 5: files are gone" in result.stdout
    assert result.stderr.splitlines()[-1].endswith("adopt orders --accept-loss 5..5 --reason 'files are gone' --yes")
    assert "epoch 4" in result.stdout
    assert "Nothing was changed" in result.stderr
    assert head(world).number == 4
    assert world.sink.fence() == Fence(1, "a" * 32)


def test_an_adoption_moves_the_position_by_an_epoch_of_its_own(on: Run, world: World) -> None:
    result = on("recover", "adopt", "orders", "--start", '{"events":{"0":900}}', "--reason", "skip", "--yes")
    assert result.exit_code == 0, result.output
    adopted = head(world)
    assert (adopted.number, adopted.digest.rows, adopted.lineage) == (5, 0, None)
    assert adopted.written == slice_(400, 900)
    assert adopted.adoption is not None
    assert (adopted.adoption.kind, adopted.adoption.reason) == ("start", "skip")
    assert adopted.adoption.who
    assert adopted.adoption.at_ms
    recorded = world.ledger.head("orders")
    assert recorded is not None
    assert recorded.epoch == adopted


def test_an_adopted_pipeline_audits_clean_and_tells_the_adoption(on: Run) -> None:
    on("recover", "adopt", "orders", "--start", '{"events":{"0":900}}', "--yes")
    result = on("audit")
    assert result.exit_code == 0
    assert "A116" in result.stdout


def remembered(world: World, code: str, **named: object) -> None:
    """What a query leaves behind that was refused."""
    stop = replace(Stop(code, head=4, offered=slice_(400, 500)), **named)  # type: ignore[arg-type]
    assert stop.offered is not None
    world.ledger.intend(Intent("orders", 0, world.fence, stop.offered, refused=stop.text))


ANSWERS = [
    ("E204", {"first": 5, "last": 5, "offered": slice_(500, 600)}, ["--accept-loss", "5..5"]),
    ("E214", {"first": 5, "last": 5}, ["--accept-loss", "5..5"]),
    ("E203", {"first": 3, "last": 4, "offered": slice_(250, 500)}, ["--accept-duplicates", "3..4"]),
    ("E206", {}, ["--accept-state-loss"]),
    ("E211", {"first": 1, "last": 4}, ["--continue"]),
    ("E215", {"first": 4, "last": 4}, ["--keep-recomputed-state", "4"]),
]


@pytest.mark.parametrize(("code", "named", "option"), ANSWERS, ids=lambda value: value if type(value) is str else "")
def test_every_kind_of_adoption_reaches_the_marker(
    on: Run, world: World, code: str, named: dict[str, object], option: list[str]
) -> None:
    remembered(world, code, **named)
    result = on("recover", "adopt", "orders", *option, "--yes")
    assert result.exit_code == 0, result.output
    adopted = head(world).adoption
    assert adopted is not None
    assert f"--{adopted.kind}" == option[0]
    assert on("status", "orders").stdout.count(adopted.words) == 1


@pytest.mark.parametrize(("code", "named", "option"), ANSWERS, ids=lambda value: value if type(value) is str else "")
def test_without_its_range_or_with_another_one_the_full_command_is_printed(
    on: Run, run: Run, world: World, code: str, named: dict[str, object], option: list[str]
) -> None:
    remembered(world, code, **named)
    for wrong in ([], ["1..9"], ["4..4"]) if len(option) > 1 and option[1] != "4" else ():
        result = on("recover", "adopt", "orders", option[0], *wrong, "--yes")
        assert result.exit_code == 2
        assert head(world).number == 4
        assert "Next: onceonly recover adopt orders --ledger" in result.stderr
        assert result.stderr.rstrip().endswith(" ".join(option))
        assert run(*printed(result.stderr, option[0])).exit_code == 4  # the plan; with --yes it is carried out


def test_nothing_is_accepted_that_did_not_stop_the_pipeline(on: Run, world: World) -> None:
    for option in (
        ["--accept-loss", "3..4"],
        ["--accept-state-loss"],
        ["--accept-change", "--sink", "memory:orders@9"],
    ):
        result = on("recover", "adopt", "orders", *option, "--yes")
        assert result.exit_code == 2
        assert "Nothing that" in result.stderr
    remembered(world, "E206", head=3)
    assert on("recover", "adopt", "orders", "--accept-state-loss", "--yes").exit_code == 2  # it has gone on since
    assert head(world).number == 4


def test_a_source_that_begins_with_rows_of_epochs_is_not_taken_for_one_that_goes_on(on: Run, world: World) -> None:
    remembered(world, "E211", first=1, last=4, repeats=True)
    result = on("recover", "adopt", "orders", "--continue", "--yes")
    assert result.exit_code == 2
    assert "Nothing that --continue accepts" in result.stderr


def test_what_may_come_again_is_named_with_its_rows_and_keeps_the_audit_from_an_answer(
    on: Run, run: Run, world: World
) -> None:
    remembered(world, "E211", first=1, last=4, doubtful=True)
    unnamed = on("recover", "adopt", "orders", "--continue", "--yes")
    assert (unnamed.exit_code, head(world).number) == (2, 4)
    command = printed(unnamed.stderr, "--continue")
    assert command[-3:] == ["--continue", "--may-repeat", "1..4"]
    assert on("recover", "adopt", "orders", "--continue", "--may-repeat", "2..4", "--yes").exit_code == 2
    plan = run(*command)
    assert plan.exit_code == 4
    assert "whether the batch repeats epochs 1 to 4 (4 epochs, " in " ".join(plan.stdout.split())
    assert run(*printed(plan.stderr, "--yes")).exit_code == 0
    accepted = head(world).adoption
    assert accepted is not None
    assert (accepted.first, accepted.last) == (1, 4)
    audited = on("audit")
    assert audited.exit_code == 2
    assert audited.stdout.startswith("CANNOT TELL")
    assert "A198" in audited.stdout


def test_a_plan_to_go_on_is_bound_to_where_it_says_that_the_source_starts(on: Run, run: Run, world: World) -> None:
    remembered(world, "E211", first=1, last=4)
    plan = on("recover", "adopt", "orders", "--continue", "--reason", "moved")
    assert plan.exit_code == 4
    assert 'moves to  {"events":{"0":400}}' in plan.stdout
    command = plan.stderr.splitlines()[-1]
    assert command.endswith("""adopt orders '--continue={"0":{"events":{"0":400}}}' --reason moved --yes""")
    words = shlex.split(command)[1:]
    remembered(world, "E211", first=1, last=4, offered=slice_(700, 800))  # the query was started again
    result = run(*words, ONCEONLY_LEDGER=str(world.path))
    assert_answerless(result, "--continue was decided about another range", "without --yes")
    assert head(world).number == 4
    remembered(world, "E211", first=1, last=4)
    assert run(*words, ONCEONLY_LEDGER=str(world.path)).exit_code == 0
    assert head(world).written == slice_(400, 400)


@pytest.mark.parametrize("given", ["--continue=here", "--continue={}", "--continue=7"])
def test_where_the_source_goes_on_is_given_as_offsets(on: Run, world: World, given: str) -> None:
    remembered(world, "E211", first=1, last=4)
    assert_answerless(on("recover", "adopt", "orders", given, "--yes"), "--continue")
    assert head(world).number == 4


@pytest.mark.parametrize("offset", ["5", '"abc"', '"5"', "abc", '{"shard":3}'])
def test_a_printed_command_to_go_on_applies_whatever_offsets_look_like(
    on: Run, run: Run, world: World, offset: str
) -> None:
    start = SourceOffsets.of({"0": offset})
    remembered(world, "E211", first=1, last=4, offered=Slice(start, start))
    words = shlex.split(on("recover", "adopt", "orders", "--continue").stderr.splitlines()[-1])[1:]
    done = run(*words, ONCEONLY_LEDGER=str(world.path))
    assert done.exit_code == 0, done.stderr
    assert head(world).written.end == start


def test_an_offset_that_is_a_number_can_be_given_as_one(on: Run, world: World) -> None:
    start = SourceOffsets.of({"0": "5"})
    remembered(world, "E211", first=1, last=4, offered=Slice(start, start))
    assert on("recover", "adopt", "orders", "--continue=5", "--yes").exit_code == 0


def test_to_go_on_may_stand_before_the_name(on: Run, world: World) -> None:
    remembered(world, "E211", first=1, last=4)
    assert on("recover", "adopt", "--continue", "orders", "--yes").exit_code == 0
    assert head(world).written == slice_(400, 400)


def test_offsets_as_printed_can_be_given_back(on: Run, world: World) -> None:
    printed = on("epochs", "show", "2", "--offsets").stdout.strip()
    assert on("recover", "adopt", "orders", "--start", printed, "--yes").exit_code == 0
    assert head(world).written.end == world.line[1].written.end


def test_offsets_may_be_named_by_source(on: Run, world: World) -> None:
    assert on("recover", "adopt", "orders", "--start", '{"0": {"events": {"0": 7}}}', "--yes").exit_code == 0
    assert head(world).written.end == slice_(0, 7).end


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders"], ["exactly one thing to accept"]),
        (["orders", "--accept-loss", "--continue"], ["not 2: accept-loss, continue"]),
        (["orders", "--start", "not json"], ["is not the offsets of this pipeline"]),
        (["orders", "--start", '"text"'], ["is not the offsets of this pipeline", "0"]),
        (["nosuch", "--accept-loss"], ["does not know a pipeline"]),
        (["orders", "--accept-loss", "--sink", "x:y"], ["is not the address of a sink"]),
    ],
)
def test_bad_input_to_adopt_changes_nothing(on: Run, world: World, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("recover", "adopt", *arguments, "--yes"), *words)
    assert head(world).number == 4


def test_a_pipeline_without_an_epoch_cannot_be_adopted(run: Run, tmp_path: Path) -> None:
    fresh = World(tmp_path, "fresh", ledger="fresh.db")
    result = run("recover", "adopt", "fresh", "--accept-loss", "--yes", ONCEONLY_LEDGER=str(fresh.path))
    assert_answerless(result, "has no epoch yet")


def test_adopting_needs_a_ledger(run: Run, world: World) -> None:
    result = run("recover", "adopt", "orders", "--accept-loss", "--yes", "--sink", world.sink.address)
    assert_answerless(result, "No ledger was named")


# ---- recover rebuild-ledger


def rebuild(run: Run, world: World, *more: str):
    where = ("--sink", world.sink.address, "--ledger", str(world.path))
    return run("recover", "rebuild-ledger", "--query", "orders", *where, *more)


def test_a_deleted_ledger_is_rebuilt_from_markers(run: Run, world: World) -> None:
    world.delete_ledger()
    result = rebuild(run, world, "--yes")
    assert result.exit_code == 0, result.output
    fresh = SqlLedger(str(world.path))
    assert [record.epoch for record in fresh.epochs("orders")] == world.line
    assert [event.kind for event in fresh.events("orders")] == [EventKind.REBUILT]
    assert fresh.pipelines()[0].sinks == ((world.sink.id, world.sink.address),)
    assert run("audit", "--ledger", str(world.path)).exit_code == 0
    fresh.close()


def test_a_marker_of_another_pipeline_is_no_record(run: Run, world: World) -> None:
    world.delete_ledger()
    newest, _ = list(world.sink.history())[-1]
    foreign, writer = replace(newest, pipeline="flights"), ("orders", world.sink.id)
    world.sink.store.add(StoreEntry(writer, newest.fence, foreign.text, newest.epoch.number))
    result = rebuild(run, world, "--yes")
    assert result.exit_code == 2
    assert "[ONCE-E508]" in result.stderr
    assert 'pipeline "flights"' in result.stderr


def test_without_yes_no_record_is_touched(run: Run, world: World) -> None:
    world.ledger.discard("orders", 3)
    result = rebuild(run, world)
    assert result.exit_code == 4
    assert "epochs 3 to 4" in result.stdout
    assert len(world.ledger.epochs("orders")) == 2


def test_records_that_agree_keep_files_and_phases(run: Run, world: World) -> None:
    world.commit(world.next_epoch(3))
    assert rebuild(run, world, "--yes").exit_code == 0
    records = world.ledger.epochs("orders")
    assert [len(record.files) for record in records] == [1, 1, 1, 1, 0]
    assert records[0].phases == (("prepare", 0.2), ("commit", 0.01))


def test_a_record_of_another_history_is_replaced(run: Run, world: World) -> None:
    world.ledger.discard("orders", 4)
    stranger = epoch_after(world.line[2], 99, sinks=(world.sink.id,))
    world.ledger.record(EpochRecord("orders", world.fence, stranger, ()))
    result = rebuild(run, world, "--yes")
    assert "forgotten" in result.stdout
    assert [record.epoch for record in world.ledger.epochs("orders")] == world.line


def test_epochs_that_the_sink_forgot_stay_in_the_ledger(run: Run, world: World) -> None:
    world.store.clean_up()
    assert rebuild(run, world, "--yes").exit_code == 0
    assert [record.epoch for record in world.ledger.epochs("orders")] == world.line


def test_records_that_a_restored_sink_no_longer_confirms_are_forgotten(run: Run, world: World) -> None:
    world.store.restore(2)
    assert rebuild(run, world, "--yes").exit_code == 0
    assert len(world.ledger.epochs("orders")) == 2


def test_markers_that_are_not_sound_are_never_recorded(run: Run, world: World) -> None:
    from dataclasses import replace

    forged = replace(world.next_epoch(3), digest=Digest(4))
    world.commit(forged)
    assert_answerless(rebuild(run, world, "--yes"), "E210", "epoch 5")
    assert len(world.ledger.epochs("orders")) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--query", "nosuch", "--sink", "{sink}"], ['No sink holds a marker of "nosuch"']),
        (["--query", "nosuch"], ["does not know a pipeline"]),
        (["--query", "orders", "--sink", "memory:gone@0"], ["no such store"]),
    ],
)
def test_bad_input_to_rebuild_is_answered_in_words(
    on: Run, world: World, arguments: list[str], words: list[str]
) -> None:
    filled = [argument.format(sink=world.sink.address) for argument in arguments]
    assert_answerless(on("recover", "rebuild-ledger", *filled, "--yes"), *words)
    assert len(world.ledger.epochs("orders")) == 4


def test_rebuild_wants_a_name_where_the_ledger_knows_several_pipelines(on: Run, tmp_path: Path) -> None:
    assert on("recover", "rebuild-ledger").stdout.split()[:2] == ["pipeline", "orders"]
    World(tmp_path, "payments").write_all((1, 2))
    assert_answerless(on("recover", "rebuild-ledger"), "the ledger knows: orders, payments", "--query NAME")


# ---- status --in-doubt and resolve


def test_a_clean_pipeline_has_nothing_in_doubt(on: Run) -> None:
    assert document(on("status", "--in-doubt", "-o", "json"))["doubts"] == []
    assert "each is in all its sinks" in on("status", "--in-doubt").stdout


def test_an_epoch_that_was_begun_is_listed_until_it_is_settled(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    listed = on("status", "--in-doubt", "-o", "json")
    [doubt] = document(listed)["doubts"]
    assert (doubt["pipeline"], doubt["epoch"], doubt["state"]) == ("orders", 5, "outcome unknown")
    assert listed.exit_code == 1
    assert "onceonly recover resolve --query orders" in on("status", "--in-doubt").stdout


def test_an_epoch_that_is_being_written_asks_for_nothing(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500))
    listed = on("status", "--in-doubt")
    assert listed.exit_code == 0
    assert "being written" in listed.stdout
    assert "next:" not in listed.stdout + listed.stderr
    assert on("audit").exit_code == 0


def test_an_epoch_in_some_sinks_only_is_listed_and_brought_to_the_others(run: Run, tmp_path: Path) -> None:
    left = left_behind(tmp_path)
    env = {"ONCEONLY_LEDGER": str(left.root / "ledger.db")}
    [doubt] = document(run("status", "--in-doubt", "-o", "json", **env))["doubts"]
    assert (doubt["epoch"], doubt["state"], doubt["behind"]) == (2, "being written", ["memory:b", "memory:c"])
    assert run("recover", "resolve", "--yes", **env).exit_code == 0
    assert document(run("status", "--in-doubt", "-o", "json", **env))["doubts"] == []
    left.holds(2)


def test_resolve_fences_out_older_drivers_and_says_where_it_stands(on: Run, world: World) -> None:
    found = document(on("recover", "resolve", "--query", "orders", "-o", "json", "--yes"))
    assert (found["epoch"], found["generation"]) == (4, 2)
    fence = world.sink.fence()
    assert fence is not None
    assert fence.generation == 2


def test_resolve_prints_whom_it_fences_out_and_waits_for_a_yes(on: Run, world: World) -> None:
    world.take_over(Fence(2, "f00d ann@host:4711 app-1"))
    result = on("recover", "resolve")
    assert result.exit_code == 4
    assert "generation 2 (ann@host:4711 app-1)" in result.stdout
    assert world.sink.fence() == Fence(2, "f00d ann@host:4711 app-1")


def test_once_an_open_epoch_is_settled_everybody_says_so(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    assert "IN DOUBT" in on("status", "--watch", "--count", "1").stdout
    assert on("recover", "resolve", "--yes").exit_code == 0
    assert "IN DOUBT" not in on("status", "--watch", "--count", "1").stdout
    listed = on("status", "--in-doubt")
    assert listed.exit_code == 0
    assert "abandoned" in listed.stdout
    assert "next:" not in listed.stdout + listed.stderr


def test_resolve_settles_an_open_epoch(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    assert on("audit").exit_code == 1
    result = on("recover", "resolve", "--yes")
    assert result.exit_code == 0
    assert "epoch 5 was begun" in result.stdout
    assert on("audit").exit_code == 0


def test_resolve_records_what_a_dead_driver_did_not(on: Run, world: World) -> None:
    world.commit(world.next_epoch(3))
    assert on("recover", "resolve", "--yes").exit_code == 0
    assert len(world.ledger.epochs("orders")) == 5


def test_resolve_refuses_a_sink_that_was_set_back(on: Run, world: World) -> None:
    world.store.restore(2)
    result = on("recover", "resolve", "--yes")
    assert result.exit_code == 2
    assert "[ONCE-E207]" in result.stderr


def test_what_is_printed_for_a_sink_that_was_set_back_opens_it_again(on: Run, world: World) -> None:
    world.store.restore(2)
    refused = on("recover", "resolve", "--yes")
    assert "ONCE-E207" in refused.stderr
    assert on(*printed(refused.stderr, "--accept-loss"), "--yes").exit_code == 0
    assert on("recover", "resolve", "--yes").exit_code == 0
    assert (head(world).number, head(world).digest.rows) == (3, 0)
    adopted = head(world).adoption
    assert adopted is not None
    assert adopted.kind == "accept-loss"


def test_what_is_printed_for_a_ledger_of_another_history_opens_it_again(on: Run, world: World) -> None:
    world.ledger.discard("orders", 4)
    stranger = epoch_after(world.line[2], 99, sinks=(world.sink.id,))
    world.ledger.record(EpochRecord("orders", world.fence, stranger, ()))
    refused = on("recover", "resolve", "--yes")
    assert "ONCE-E210" in refused.stderr
    assert on(*printed(refused.stderr, "recover rebuild-ledger"), "--yes").exit_code == 0
    assert on("recover", "resolve", "--yes").exit_code == 0
    assert [record.epoch for record in world.ledger.epochs("orders")] == world.line


def printed(said: str, words: str) -> list[str]:
    """The arguments of the printed command that contains ``words``, whatever the width of the terminal broke."""
    flat = " ".join(said.split())
    [found] = [one for one in flat.split("onceonly ")[1:] if words in one]
    parts = shlex.split(found)
    options = {"--query", "--ledger", "--sink", "--accept-loss", "--accept-duplicates", "--may-repeat"}
    return [part for at, part in enumerate(parts) if part.startswith("--") or at < 3 or parts[at - 1] in options]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--query", "nosuch"], ["does not know a pipeline"]),
        (["--sink", "x:y"], ["is not the address of a sink"]),
        (["--ledger", "/no/such.db"], ["There is no ledger at"]),
    ],
)
def test_bad_input_to_resolve_is_answered_in_words(on: Run, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("recover", "resolve", "--yes", *arguments), *words)


def test_file_lists_that_a_trimmed_query_still_needs_are_not_pruned(on: Run, world: World) -> None:
    files = (SourceIdentity("0", "files:/in"),)
    trimmed = chain.linked(replace(world.next_epoch(3), offered=slice_(0, 500), sources=files))
    world.ledger.record(EpochRecord("orders", world.fence, trimmed, (world.commit(trimmed),)))
    result = on("ledger", "prune", "--query", "orders", "--keep-epochs", "1", "--yes")
    assert result.exit_code == 2
    assert "still compares its batches" in result.stderr
    assert len(world.ledger.epochs("orders")) == 5
