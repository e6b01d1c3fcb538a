"""Roles with few rights: what is printed works, and what a server does not tell is said and done without."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run

from onceonly.api.guarantee import GuaranteeInputs, derive
from onceonly.cli.doctor_checks import destination
from onceonly.errors import OnceOnlyError
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

ROLE = "app %1"
TOLD = {
    "pg_control_system()": "pg_control_system()",
    "pg_walfile_name(pg_lsn)": "pg_walfile_name()",
    "pg_current_wal_lsn()": "pg_walfile_name()",
}


@pytest.fixture
def app(dsn: str) -> Iterator[str]:
    """The DSN of a role that may read and add rows of one table."""
    run(dsn, f'DROP ROLE IF EXISTS "{ROLE}"')
    run(dsn, f'CREATE ROLE "{ROLE}" LOGIN')
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    run(dsn, f'GRANT SELECT, INSERT ON target TO "{ROLE}"')
    yield dsn.replace("postgres@", "app%20%251@")
    run(dsn, f'DROP OWNED BY "{ROLE}" CASCADE')
    run(dsn, f'DROP ROLE "{ROLE}"')
    for function in TOLD:
        run(dsn, f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")


def test_the_first_run_without_create_on_the_database_prints_the_command_that_works(dsn: str, app: str) -> None:
    with pytest.raises(OnceOnlyError) as caught:
        Writer(app)
    assert caught.value.code == "E502"
    command = caught.value.remedy.partition(";")[0]
    assert command == f'CREATE SCHEMA onceonly AUTHORIZATION "{ROLE}"'
    run(dsn, command)
    with Writer(app) as writer:
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


def refusal(app: str, generation: int) -> OnceOnlyError | None:
    try:
        with Writer(app, generation=generation) as writer:
            writer.write(orders(2))
    except OnceOnlyError as refused:
        return refused
    return None


def test_whatever_the_role_lacks_obeying_what_is_printed_goes_on(dsn: str, app: str) -> None:
    with Writer(dsn, id="postgres:other") as other:
        other.write(orders(1))
    run(dsn, f'REVOKE INSERT ON target FROM "{ROLE}"')
    obeyed: list[str] = []
    while refused := refusal(app, generation=len(obeyed) + 1):
        assert refused.code == "E502", str(refused)
        command = refused.remedy.partition(";")[0]
        assert command not in obeyed
        obeyed.append(command)
        run(dsn, command)
    assert rows(dsn) == [(1, "new"), (2, "new")]
    assert len(obeyed) == 3, obeyed


@pytest.mark.parametrize(("via", "code"), [("driver", "E508"), ("executors", "E502")])
def test_behind_row_security_the_command_that_is_printed_works(dsn: str, app: str, via: str, code: str) -> None:
    run(dsn, f'CREATE SCHEMA onceonly AUTHORIZATION "{ROLE}"')
    run(dsn, "ALTER TABLE target ENABLE ROW LEVEL SECURITY")
    with Writer(app, load=via) as writer:
        with pytest.raises(OnceOnlyError) as caught:
            writer.write(orders(1))
        assert caught.value.code == code
        command = caught.value.remedy.partition(";")[0]
        assert command == f'ALTER ROLE "{ROLE}" BYPASSRLS'
        run(dsn, command)
    with Writer(app, generation=2, load=via) as writer:
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


# ---- what the server does not tell


@pytest.mark.parametrize("function", TOLD)
def test_a_server_that_does_not_tell_is_written_and_what_is_lost_is_said(dsn: str, app: str, function: str) -> None:
    run(dsn, f'CREATE SCHEMA onceonly AUTHORIZATION "{ROLE}"')
    run(dsn, f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(
            app,
            "SELECT pg_control_system()" if "control" in function else "SELECT pg_walfile_name(pg_current_wal_lsn())",
        )
    with Writer(app) as writer:
        writer.write(orders(1))
        receipt = writer.write(orders(2))
        assert writer.position(receipt).identity == receipt.identity
        assert writer.position(receipt).disturbances == ()
        assert TOLD[function] in derive(writer.sink, None, None, GuaranteeInputs()).text
    [check] = [one for one in destination(PostgresSink(app, "target").address) if one.code == "D215"]
    assert TOLD[function] in check.message
    run(dsn, check.remedy.partition(": ")[2])
    assert not [one for one in destination(PostgresSink(app, "target").address) if one.code == "D215"]


def test_a_function_that_is_forbidden_or_allowed_later_makes_no_other_table_of_it(dsn: str, app: str) -> None:
    run(dsn, f'CREATE SCHEMA onceonly AUTHORIZATION "{ROLE}"')
    for generation, say in enumerate(("GRANT", "REVOKE", "GRANT", "REVOKE"), start=1):
        for function in TOLD:
            run(dsn, f"{say} EXECUTE ON FUNCTION {function} {'TO' if say == 'GRANT' else 'FROM'} PUBLIC")
        with Writer(app, generation=generation) as writer:
            newest = writer.write(orders(generation))
            assert writer.position(newest).disturbances == ()
            assert writer.position(newest).identity == newest.identity
    run(dsn, "DROP TABLE target; CREATE TABLE target (id bigint, note text)")
    run(dsn, f'GRANT SELECT, INSERT ON target TO "{ROLE}"')
    sink = PostgresSink(app, "target")
    sink.open(PIPELINE)
    assert [event.kind for event in sink.external_changes(newest)] == ["recreated"]
    sink.close()


def test_a_server_that_tells_has_no_hint(dsn: str) -> None:
    assert not [one for one in destination(PostgresSink(dsn, "target").address) if one.code == "D215"]
