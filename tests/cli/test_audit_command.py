"""``onceonly audit`` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.histories import slice_
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless, document


def test_a_clean_pipeline_ends_with_zero_and_the_verdict_on_stdout(on: Run) -> None:
    result = on("audit")
    assert result.exit_code == 0
    assert result.stdout.startswith("EXACTLY ONCE  orders\n")
    assert "29 rows counted there, 29 committed" in result.stdout


def test_a_gap_ends_with_one_and_names_the_first_epoch(on: Run, world: World) -> None:
    world.keep_rows(3, 5)
    world.keep_rows(4, 5)
    result = on("audit")
    assert result.exit_code == 1
    assert "First disagreement: epoch 3" in result.stdout
    assert "next: " in result.stdout


def test_the_json_has_the_promised_keys(on: Run, world: World) -> None:
    world.keep_rows(3, 5)
    result = on("audit", "--output", "json")
    found = document(result)
    assert result.exit_code == 1
    assert found["verdict"] == "GAPS"
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3, 4]
    assert {"code", "severity", "epoch", "evidence", "remedy"} <= found["findings"][0].keys()
    assert found["pipelines"][0]["first_disagreement"]["epoch"] == 3


def test_rows_that_were_not_counted_end_with_three_unless_that_is_said_to_be_right(run: Run, tmp_path: Path) -> None:
    keyed = World(tmp_path, "latest", key=("id",), ledger="latest.db").write_all()
    for more, code in (((), 3), (("--uncounted-ok",), 0), (("--fail-on", "info"), 1)):
        result = run("audit", "latest", "--ledger", str(keyed.path), *more)
        assert (result.exit_code, result.stdout.split("\n")[0]) == (code, "NOT COUNTED  latest"), result.output


def test_all_pipelines_of_a_ledger_are_audited_and_the_worst_stands_on_top(
    on: Run, world: World, tmp_path: Path
) -> None:
    other = World(tmp_path, "payments").write_all((1, 2))
    other.keep_rows(2, 4)
    found = document(on("audit", "-o", "json"))
    assert found["verdict"] == "DUPLICATES"
    assert [(one["pipeline"], one["verdict"]) for one in found["pipelines"]] == [
        ("orders", "EXACTLY ONCE"),
        ("payments", "DUPLICATES"),
    ]


def test_one_pipeline_can_be_chosen(on: Run, tmp_path: Path) -> None:
    other = World(tmp_path, "payments").write_all((1, 2))
    other.keep_rows(2, 4)
    result = on("audit", "--query", "orders", "-o", "json")
    assert result.exit_code == 0
    assert [one["pipeline"] for one in document(result)["pipelines"]] == ["orders"]


@pytest.mark.parametrize("verb", [("audit",), ("status", "--watch", "--count", "1")], ids=lambda verb: verb[0])
def test_a_name_may_stand_where_other_verbs_have_it(on: Run, tmp_path: Path, verb: tuple[str, ...]) -> None:
    other = World(tmp_path, "payments").write_all((1, 2))
    for said in (["orders"], ["--query", "orders"], ["orders", "-q", "orders"]):
        result = on(*verb, *said)
        assert result.exit_code == 0, result.output
        assert "orders" in result.stdout
        assert "payments" not in result.stdout
    result = on(*verb, "payments", ONCEONLY_QUERY="orders")
    assert other.sink.id.split(":")[1] in result.stdout, result.stderr  # what was typed counts
    assert_answerless(on(*verb, "payments", "--query", "orders"), "ONCE-E110", "payments", "orders")


def test_it_works_without_a_ledger_when_the_sinks_are_named(run: Run, world: World) -> None:
    world.delete_ledger()
    result = run("audit", "--query", "orders", "--sink", world.sink.address)
    assert result.exit_code == 0
    assert "A131" in result.stdout


def test_a_deleted_ledger_file_is_told_and_not_created(run: Run, world: World) -> None:
    world.delete_ledger()
    result = run("audit", "-q", "orders", "--sink", world.sink.address, "--ledger", str(world.path))
    assert result.exit_code == 0
    assert "There is no ledger at" in result.stderr
    assert not world.path.exists()


def test_a_damaged_ledger_is_a_finding_beside_the_sinks(run: Run, world: World) -> None:
    world.delete_ledger()
    world.path.write_text("this is not a database, whatever its name may say")
    result = run("audit", "-q", "orders", "--sink", world.sink.address, "--ledger", str(world.path))
    assert result.exit_code == 1
    assert "A106" in result.stdout


def test_an_open_epoch_is_a_warning_that_can_be_let_pass(on: Run, world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    assert on("audit").exit_code == 1
    assert on("audit", "--fail-on", "error").exit_code == 0


def test_there_is_no_colour_on_a_pipe(on: Run) -> None:
    said = on("audit", FORCE_COLOR="").stdout
    assert (said.startswith("EXACTLY ONCE"), "\x1b" in said) == (True, False)


def test_a_sink_that_is_gone_ends_with_two(on: Run, world: World) -> None:
    world.store._all.clear()
    result = on("audit")
    assert result.exit_code == 2
    assert "E508" in result.stderr


def test_older_epochs_are_counted_when_they_are_not_shown(on: Run) -> None:
    result = on("audit", "--limit", "1")
    assert "3 older epochs not shown" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--query", "nosuch"], ["does not know a pipeline", "orders"]),
        (["--query", "orders", "--sink", "kafka9:x"], ["is not the address of a sink", "memory"]),
        (["--query", "orders", "--sink", "memory:gone@99"], ["no such store"]),
    ],
)
def test_bad_input_is_answered_in_words(on: Run, arguments: list[str], words: list[str]) -> None:
    assert_answerless(on("audit", *arguments), *words)


def test_no_ledger_and_no_sink_is_answered_in_words(run: Run, tmp_path: Path) -> None:
    assert_answerless(run("audit"), "No ledger was named", "ONCEONLY_LEDGER")
    assert_answerless(run("audit", "--ledger", str(tmp_path / "no.db")), "There is no ledger at")
    assert_answerless(run("audit", "--ledger", "mysql://u:geheim@h/db"), "is not the place of a ledger")


def test_a_password_in_a_location_is_never_printed(run: Run) -> None:
    result = run("audit", "--ledger", "mysql://u:geheim@h/db")
    assert "geheim" not in result.output
    assert "***" in result.stderr


def test_a_sink_without_a_query_name_is_asked_for_it(run: Run, world: World) -> None:
    assert_answerless(run("audit", "--sink", world.sink.address), "Which pipeline?", "--query NAME")


def test_unknown_options_end_with_two(run: Run) -> None:
    assert run("audit", "--nonsense").exit_code == 2
    assert run("audit", "--output", "yaml").exit_code == 2
    assert run("audit", "--limit", "0").exit_code == 2


def test_epochs_before_the_first_that_is_asked_for_are_left_out(run: Run, world: World) -> None:
    world.keep_rows(1, 5)
    place = ("--ledger", str(world.path))
    assert run("audit", *place).exit_code == 1
    result = run("audit", *place, "--since", "2", "-o", "json")
    assert result.exit_code == 0
    assert [one["epoch"] for one in document(result)["epochs"]] == [2, 3, 4]


def test_a_limit_holds_in_json_too_and_without_one_a_program_gets_all(on: Run) -> None:
    assert [epoch["epoch"] for epoch in document(on("audit", "-n", "2", "-o", "json"))["epochs"]] == [3, 4]
    assert len(document(on("audit", "-o", "json"))["epochs"]) == 4


def test_fail_on_info_is_heard(run: Run, world: World) -> None:
    world.delete_ledger()
    words = ("audit", "-q", "orders", "--sink", world.sink.address)
    assert [run(*words, "--fail-on", level).exit_code for level in ("warn", "info")] == [0, 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["1..4"], "--with"),
        (["4..1", "--with", "shlex:quote"], "'4..1' names no epochs"),
        (["1..4", "--with", "no.such:stream"], "names no function"),
        (["1..4", "--with", "shlex"], "names no function"),
        (["1..4", "--with", "shlex:quote", "--transform", "shlex:nothing"], "--transform"),
    ],
)
def test_epochs_are_computed_again_by_a_query_that_can_be_found(on: Run, given: list[str], said: str) -> None:
    result = on("replay", "check", *given)
    assert result.exit_code == 2
    assert said in result.stderr
