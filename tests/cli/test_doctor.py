"""``onceonly doctor``: every check with one case that passes and one that does not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.world import World
from tests.cli.conftest import Run, document

from onceonly.cli import doctor_checks
from onceonly.cli.doctor import ledger_checks
from onceonly.doctor import PAGES, Check, State
from onceonly.protocol import OutcomeUnknown
from onceonly.spark import detect
from onceonly.spark.versions import LINES
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.install import Requirement, hint, requirement_of
from onceonly_checkpoints.model import UnreadableMarker


@pytest.mark.parametrize(
    ("found", "pins", "expected"),
    [
        ("4.2.0", "==4.2.0", True),
        ("4.2", "==4.2.0", True),
        ("4.1.2", "==4.2.0", False),
        ("3.3.9", ">=3.3,<3.4", True),
        ("3.4.0", "<3.4,>=3.3", False),
        ("3.3.0rc1", ">=3.3", True),
        ("18", ">=18", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(found: str, pins: str, expected: bool) -> None:
    assert doctor_checks.fits(found, pins) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sqlalchemy<2.2,>=2.1", Requirement("sqlalchemy", "", "<2.2,>=2.1", "")),
        ("pyspark==4.2.0; extra == 'spark'", Requirement("pyspark", "", "==4.2.0", "spark")),
        (
            'psycopg[binary]<3.4,>=3.3; extra == "postgres"',
            Requirement("psycopg", "[binary]", "<3.4,>=3.3", "postgres"),
        ),
    ],
)
def test_requirements_are_read_from_the_packages_own_metadata(line: str, expected: Requirement) -> None:
    assert requirement_of(line) == expected


def test_the_pins_of_the_installed_package_are_the_ones_compared() -> None:
    pins = {one.package: one.pins for one in doctor_checks.list_requirements()}
    assert pins["pyspark"] == "<4.3,>=3.5"
    assert {"sqlalchemy", "deltalake", "psycopg"} <= pins.keys()


def test_a_version_that_does_not_fit_is_a_problem_with_the_command_that_helps() -> None:
    check = doctor_checks.package(Requirement("sqlalchemy", "", "==1.4.0", ""))
    assert check.state is State.PROBLEM
    assert check.remedy == "pip install sqlalchemy==1.4.0"


def test_a_missing_package_of_an_extra_is_a_hint_and_of_the_base_a_problem() -> None:
    missing = "package-that-nobody-publishes"
    assert doctor_checks.package(Requirement(missing, "", "", "delta")).state is State.HINT
    assert doctor_checks.package(Requirement(missing, "", "", "")).state is State.PROBLEM


@pytest.mark.parametrize(
    ("release", "vector", "state"),
    [
        ("17.0.15", True, State.OK),
        ("21.0.2", True, State.OK),
        ("17.0.15", False, State.PROBLEM),
        ("11.0.2", True, State.PROBLEM),
        ("", False, State.PROBLEM),
        ("25.0.1", True, State.HINT),
    ],
)
def test_java_is_judged_by_release_and_module(release: str, vector: bool, state: State) -> None:
    check = doctor_checks.judge_java("/usr/bin/java", release, vector, LINES["4.2"])
    assert check.state is state
    assert bool(check.remedy) is (state is not State.OK)


def test_spark_3_5_starts_on_java_11_and_without_vectors() -> None:
    assert doctor_checks.judge_java("/usr/bin/java", "11.0.2", False, LINES["3.5"]).state is State.OK
    assert doctor_checks.judge_java("/usr/bin/java", "8", False, LINES["3.5"]).state is State.PROBLEM
    newer = doctor_checks.judge_java("/usr/bin/java", "21", True, LINES["3.5"])
    assert (newer.state, "a whole JRE of 11 or 17" in newer.remedy) == (State.HINT, True)


PYSPARK = Requirement("pyspark", "", ">=3.5,<4.3", "spark")


@pytest.mark.parametrize("version", ["3.5.9", "4.3.0"])
def test_a_pyspark_of_a_known_line_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(detect, "installed", lambda: version)
    check = doctor_checks.pyspark(PYSPARK)
    assert (check.state, check.message) == (State.OK, f"{version} (line {version[:3]})")


def test_a_pyspark_that_is_not_known_is_not_to_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "installed", lambda: "4.4.0")
    check = doctor_checks.pyspark(PYSPARK)
    assert check.state is State.PROBLEM
    assert "newer than this onceonly knows" in check.message
    assert "upgrade onceonly" in check.remedy
    assert "pip install" not in check.remedy


@pytest.mark.parametrize(
    ("version", "said", "remedy"),
    [
        ("4.3.0", "none is built for PySpark 4.3.0: a DeltaSink commits by deltalake", ""),
        ("3.5.9", "delta-spark is not installed", hint("delta-spark-3-5")),
        ("4.1.4", "delta-spark is not installed", hint("delta-spark")),
    ],
)
def test_the_jar_of_delta_is_that_of_the_spark_that_is_found(
    monkeypatch: pytest.MonkeyPatch, version: str, said: str, remedy: str
) -> None:
    monkeypatch.setattr(detect, "installed", lambda package="pyspark": version if package == "pyspark" else None)
    check = doctor_checks.delta_jar()
    assert check.message == said
    assert remedy in check.remedy


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = doctor_checks.java()
    assert check.state is State.PROBLEM
    assert str(tmp_path) in check.message


def test_workers_need_the_same_python_with_pandas_and_pyarrow() -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert doctor_checks.judge_workers("p", "/p", here).state is State.OK
    assert doctor_checks.judge_workers(None, "/p", "3.9").state is State.PROBLEM
    assert "cannot import" in doctor_checks.judge_workers(None, "/p", "").message


def test_pyspark_python_set_to_this_interpreter_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor_checks.workers().state is State.OK
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    assert doctor_checks.workers().state is State.PROBLEM


def test_another_spark_home_is_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert doctor_checks.spark_home().state is State.HINT
    monkeypatch.delenv("SPARK_HOME")
    assert doctor_checks.spark_home().state is State.OK


def test_spark_local_ip_is_taken_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert doctor_checks.local_address().state is State.OK


def test_a_server_that_does_not_answer_is_a_problem_without_the_password() -> None:
    dsn = "postgresql://me:geheim@127.0.0.1:9/db?connect_timeout=2"
    found = list(doctor_checks.destination(dsn))
    assert [check.state for check in found] == [State.PROBLEM]
    assert "geheim" not in repr(found)


def test_a_sink_that_answers_is_said(world: World) -> None:
    found = list(doctor_checks.destination(world.sink.address))
    assert [check.state for check in found] == [State.OK, State.HINT]
    assert "has no examine()" in found[1].message


def test_a_sink_that_does_not_is_a_problem() -> None:
    found = list(doctor_checks.destination("memory:gone@0"))
    assert [check.state for check in found] == [State.PROBLEM]


@pytest.mark.parametrize("asked", ["open", "fence", "from_address"])
@pytest.mark.parametrize("error", [OutcomeUnknown("rows", "no answer"), UnreadableMarker("marker format 9")], ids=repr)
def test_a_sink_that_cannot_be_read_is_a_finding_and_no_breakdown(
    world: World, monkeypatch: pytest.MonkeyPatch, asked: str, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(world.sink), asked, broken)
    seen = ledger_checks(str(world.path), None, ())
    problems = [check.message for check in seen if check.state is State.PROBLEM]
    if asked == "fence":  # it is not compared with the ledger then
        assert problems == []
    else:
        [said] = problems
        assert str(error) in said


def test_a_ledger_is_checked_and_never_created(world: World, tmp_path: Path) -> None:
    assert State.PROBLEM not in {check.state for check in ledger_checks(str(world.path), None, ())}
    (tmp_path / "x.db").write_text("this is not a database, whatever its name may say")
    assert [check.state for check in ledger_checks(str(tmp_path / "x.db"), None, ())] == [State.PROBLEM]


def test_the_command_counts_problems_and_ends_with_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    fit = run("doctor", "-o", "json")
    assert document(fit)["problems"] == 0
    assert fit.exit_code == 0
    checkpoints = ("--checkpoint", "s3a://bucket/ck", "--checkpoint", "/data/ck")
    broken = run("doctor", "--sink", "memory:gone@0", *checkpoints, "-o", "json")
    assert document(broken)["problems"] == 2
    assert broken.exit_code == 1
    assert {"name", "state", "code", "message", "remedy"} == document(broken)["checks"][0].keys()
    found = [(check["name"], check["code"]) for check in document(broken)["checks"] if check["state"] == "problem"]
    assert found == [("checkpoint", "D402"), ("memory:gone@0", "E508")]


def test_an_address_that_means_nothing_is_a_problem() -> None:
    for address in ("", "nonsense", "kafka9:x"):
        [check] = doctor_checks.destination(address)
        assert (check.state, "is not the address of a sink" in check.message) == (State.PROBLEM, True), address


def test_a_missing_ledger_file_is_a_problem_of_the_doctor(tmp_path: Path) -> None:
    [check] = ledger_checks(str(tmp_path / "no.db"), None, ())
    assert check.state is State.PROBLEM
    assert check.message.startswith("There is no ledger at")
    assert not (tmp_path / "no.db").exists()


# ---- pipelines


def coded(world: World) -> dict[str, Check]:
    """What was found that has a code, by code."""
    return {check.code: check for check in ledger_checks(str(world.path), None, ()) if check.code}


def test_a_pipelines_sinks_and_checkpoint_are_known_from_its_ledger(world: World) -> None:
    names = [check.name for check in ledger_checks(str(world.path), None, ())]
    assert list(dict.fromkeys(names)) == ["ledger", "orders", world.sink.address, "checkpoint"]


def test_two_queries_that_write_by_turns_under_one_name_are_found(world: World) -> None:
    lineage = world.line[-1].lineage
    assert lineage is not None
    world.write(3, lineage=replace(lineage, query_id="q-2", checkpoint="file:/other"))
    assert "D403" not in coded(world)
    world.write(3, lineage=lineage)
    check = coded(world)["D403"]
    assert check.state is State.PROBLEM
    assert f"query id q-2 (file:/other) and query id q-1 ({world.checkpoint})" in check.message


def test_a_driver_with_another_ledger_is_told(world: World) -> None:
    world.sink.install(Fence(7, "b" * 32))
    assert {code: check.state for code, check in coded(world).items()} == {"D404": State.HINT}


@pytest.mark.docs
def test_each_of_its_codes_has_a_page(run: Run) -> None:
    pages = {code: document(run("explain", code, "-o", "json")) for code in PAGES}
    assert [code for code, page in pages.items() if page["code"] != code] == []
    empty = [(code, title) for code in pages for title in ("what", "why it matters", "next") if not pages[code][title]]
    assert empty == []
