"""The rights of the page are enough, and each is needed: every grant of it is left out once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from tests.secure_kafka import Right, SecureKafka, acls, give, secure_kafka
from tests.sinks import kafka_writer
from tests.sinks.postgres_writer import PIPELINE, Writer, run
from tests.test_docs import ROOT, SQL, blocks
from typer.testing import CliRunner

from onceonly.cli.app import app as cli
from onceonly.errors import OnceOnlyError
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

PAGE = ROOT / "docs" / "reference" / "least-rights.md"
BLOCKS = list(blocks(PAGE.read_text()))
APPEND, CHANGES, AUDITOR = (block.code for block in BLOCKS if block.info == SQL)
[OURS] = (block.code for block in BLOCKS if block.info == "text")
ACLS, _ = (block.code for block in BLOCKS if block.info == "bash")

# ---- Postgres


def statements(*codes: str) -> list[str]:
    """The statements of blocks, a grant of several rights as one each, roles left out."""
    listed = []
    for statement in (part.strip() for code in codes for part in code.split(";") if part.strip()):
        if grant := re.fullmatch(r"GRANT ([\w, ]+) (ON .*)", statement):
            listed += [f"GRANT {right.strip()} {grant[2]}" for right in grant[1].split(",")]
        elif not statement.startswith("CREATE ROLE"):
            listed.append(statement)
    return listed


@pytest.fixture
def private(dsn: str) -> Iterator[str]:
    """A database in which PUBLIC may do nothing, and the page's roles nothing yet."""
    database = run(dsn, "SELECT current_database()")[0][0]
    run(dsn, f"REVOKE ALL ON DATABASE {database} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC")
    for role in ("orders_writer", "orders_auditor"):
        run(dsn, f"CREATE ROLE {role} LOGIN")
    yield dsn
    for role in ("orders_writer", "orders_auditor"):
        run(dsn, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
    run(dsn, f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO PUBLIC")


def of_the_database(dsn: str, *rights: str) -> list[str]:
    return [
        f"GRANT {right} ON DATABASE {psycopg.conninfo.conninfo_to_dict(dsn)['dbname']} TO orders_writer"
        for right in rights
    ]


def allow(dsn: str, granted: Sequence[str]) -> None:
    """Begin again with these statements, where their objects are there."""
    run(dsn, "DROP SCHEMA IF EXISTS onceonly CASCADE; DROP TABLE IF EXISTS orders, members CASCADE")
    run(dsn, "DROP OWNED BY orders_writer, orders_auditor CASCADE")
    for statement in sorted(granted, key=lambda statement: not statement.startswith("CREATE")):
        run(dsn, statement)


def refused(dsn: str, table: str, batches: Sequence[pa.Table], **options: Any) -> str:
    """Write with the page's role, a start for each batch. The code of the refusal, or no text."""
    address = psycopg.conninfo.make_conninfo(dsn, user="orders_writer")
    try:
        for generation, batch in enumerate(batches, start=1):
            with Writer(address, table, generation, **options) as writer:
                writer.write(batch)
    except OnceOnlyError as error:
        return error.code
    return ""


NEW = [pa.table({"id": [1, 2], "item": ["pen", "ink"]}), pa.table({"id": [3], "item": ["cup"]})]
CHANGED = [pa.table({"id": [1, 2], "name": ["ann", "bob"], "gone": [False, gone]}) for gone in (False, True)]
CASES = {
    "append": ("orders", NEW, {}, ("CONNECT",), (APPEND,)),
    "changes": ("members", CHANGED, {"key": "id", "delete_flag": "gone"}, ("CONNECT", "TEMPORARY"), (APPEND, CHANGES)),
}


@pytest.mark.postgres
def test_a_schema_that_a_role_may_not_use_is_refused_with_the_grant(private: str) -> None:
    table, _, _, rights, codes = next(iter(CASES.values()))
    granted = [*of_the_database(private, *rights), *statements(*codes)]
    allow(private, [one for one in granted if "USAGE ON SCHEMA public" not in one])
    address = psycopg.conninfo.make_conninfo(private, user="orders_writer")
    with pytest.raises(OnceOnlyError, match="E508") as refusal, Writer(address, table, 1):
        pass
    assert "has no schema that orders_writer may use" in str(refusal.value)
    [grant] = re.findall(r"^ *Next: (GRANT .*)$", str(refusal.value), re.MULTILINE)
    run(private, grant)
    assert refused(private, table, []) == ""


@pytest.mark.postgres
@pytest.mark.parametrize("case", CASES)
def test_a_writer_needs_each_right_of_the_page_and_no_other(private: str, case: str) -> None:
    table, batches, options, rights, codes = CASES[case]
    granted = [*of_the_database(private, *rights), *statements(*codes)]
    allow(private, granted)
    assert refused(private, table, batches, **options) == ""
    others = {"orders", "members"} - {table}
    needed = [one for one in granted if not one.startswith("CREATE TABLE") and not others & set(one.split())]
    assert len(needed) >= 5
    passed = []
    for statement in needed:
        allow(private, [one for one in granted if one != statement])
        if refused(private, table, batches, **options) not in {"E501", "E502", "E508"}:
            passed.append(statement)
    assert passed == []


def put(cursor: Any, staged: Any, epoch: int) -> None:
    cursor.execute(f"INSERT INTO orders SELECT id, item FROM {staged}")


@pytest.mark.postgres
def test_sql_of_your_own_needs_a_temporary_table(private: str) -> None:
    granted = [*of_the_database(private, "CONNECT"), *statements(APPEND)]
    allow(private, granted)
    assert refused(private, "orders", NEW, apply=put) == "E502"
    allow(private, [*granted, *of_the_database(private, "TEMPORARY")])
    assert refused(private, "orders", NEW, apply=put) == ""


ALSO = {
    "a table that the first epoch creates": ({}, ["GRANT CREATE ON SCHEMA public TO orders_writer"], False),
    "Keep(history=)": ({"key": "id", "history": "all"}, ["GRANT CREATE ON SCHEMA public TO orders_writer"], True),
    "sealed_view=True": ({"sealed_view": True}, ["GRANT CREATE ON SCHEMA public TO orders_writer"], True),
    'schema="add_columns"': ({"schema": "add_columns"}, ["ALTER TABLE orders OWNER TO orders_writer"], True),
}


@pytest.mark.postgres
@pytest.mark.parametrize("option", ALSO)
def test_an_option_needs_what_its_row_adds(private: str, option: str) -> None:
    assert option in PAGE.read_text()
    options, added, exists = ALSO[option]
    table = "CREATE TABLE orders (id bigint PRIMARY KEY, item text, _epoch bigint)"
    others = [
        one for one in statements(APPEND) if not one.startswith("CREATE TABLE") and (exists or " orders " not in one)
    ]
    granted = [*of_the_database(private, "CONNECT", "TEMPORARY"), *others, *([table] if exists else [])]
    granted += ["GRANT UPDATE ON orders TO orders_writer"] if "key" in options else []
    batches = [NEW[0], NEW[1].append_column("more", pa.array([1]))] if "schema" in options else NEW
    allow(private, granted)
    assert refused(private, "orders", batches, **options) == "E502"
    allow(private, [*granted, *added])
    assert refused(private, "orders", batches, **options) == ""


@pytest.mark.postgres
def test_an_auditor_needs_each_right_of_the_page_and_no_other(private: str) -> None:
    as_auditor = psycopg.conninfo.make_conninfo(private, user="orders_auditor")
    allow(private, [*of_the_database(private, "CONNECT"), *statements(APPEND)])
    written(psycopg.conninfo.make_conninfo(private, user="orders_writer"))
    run(private, of_the_database(private, "CONNECT")[0].replace("orders_writer", "orders_auditor"))
    granted = statements(AUDITOR, OURS)
    for statement in granted:
        run(private, statement)
    assert audited(as_auditor) == {"audit": 0, "status": 0, "epochs": 0}
    for statement in granted:
        run(private, statement.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
        assert audited(as_auditor)["audit"] == 2, statement
        run(private, statement)
    assert audited(as_auditor)["audit"] == 0


def written(address: str) -> None:
    """An epoch and its record, as a query leaves them."""
    place = PostgresSink(address, "orders").address
    with closing(SqlLedger(address)) as ledger, Writer(address, "orders") as writer:
        ledger.open()
        ledger.enter(Pipeline(PIPELINE, (("postgres:orders", place),), "query", "file:/ck", 1, 1))
        receipt = writer.write(NEW[0])
        assert writer.last
        ledger.record(EpochRecord(PIPELINE, writer.fence, writer.last, (receipt,), recorded_ms=1))


def audited(address: str) -> dict[str, int]:
    """Exit codes of commands with one login for ledger and sink."""
    sink = ["--sink", PostgresSink(address, "orders").address]
    commands = {"audit": ["audit", *sink], "status": ["status"], "epochs": ["epochs", "list"]}
    return {
        name: CliRunner().invoke(cli, [*command, "--ledger", address]).exit_code for name, command in commands.items()
    }


# ---- Kafka


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as running:
        running.broker.topic("orders")
        yield running


def kafka_refused(secure: SecureKafka, markers: str) -> str:
    """Write in two starts with markers of their own. The code of the refusal, or no text."""
    tuning = {"marker_topic": markers, "answer_timeout": 8.0, "options": secure.options}
    try:
        for generation in (1, 2):
            with kafka_writer.Writer(secure.servers, "orders", generation, **tuning) as writer:
                writer.write(kafka_writer.values("a"))
    except OnceOnlyError as error:
        return error.code
    return ""


@pytest.mark.kafka
def test_a_sink_of_a_topic_needs_each_right_of_the_page_and_no_other(secure: SecureKafka) -> None:
    rights = acls(ACLS)
    give(secure.broker.servers, rights)
    assert kafka_refused(secure, "onceonly.all") == ""
    passed = []
    for number, right in enumerate(rights):
        give(secure.broker.servers, [one for one in rights if one != right])
        if kafka_refused(secure, f"onceonly.without-{number}") not in {"E502", "E508"}:
            passed.append(right)
    assert passed == []


@pytest.mark.kafka
def test_an_audit_of_a_topic_also_needs_to_describe_its_settings(secure: SecureKafka) -> None:
    describe = Right(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, AclOperation.DESCRIBE_CONFIGS)
    give(secure.broker.servers, acls(ACLS))
    options = {"marker_topic": "onceonly.audited", "options": secure.options}
    with kafka_writer.Writer(secure.servers, "orders", **options) as writer:
        writer.write(kafka_writer.values("a"))
        with pytest.raises(OnceOnlyError, match="E502"):
            writer.sink.recount()
        give(secure.broker.servers, [*acls(ACLS), describe])
        assert writer.sink.recount() == {1: 1}
