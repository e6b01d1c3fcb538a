"""Where the servers of tests come from, and that a run which demands containers cannot pass without any."""

from __future__ import annotations

import os
from contextlib import closing

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from integration.containers import image
from integration.servers import VARIABLES, KafkaAddress, Origin, PostgresAddress, choose, postgres_at
from integration.test_containers import REQUIRED, demand

VARIABLE = VARIABLES["Postgres"]


def never() -> str | None:
    raise AssertionError("what the environment says needs no engine")


def test_the_environment_comes_before_containers_and_they_before_the_embedded_server() -> None:
    chosen = [
        ({VARIABLE: "postgresql://there/db"}, never, Origin.ENVIRONMENT),
        ({VARIABLE: "embedded"}, never, Origin.EMBEDDED),
        ({VARIABLE: ""}, lambda: None, Origin.CONTAINER),
        ({}, lambda: None, Origin.CONTAINER),
        ({}, lambda: "none answers", Origin.EMBEDDED),
    ]
    found = [choose(VARIABLE, said, no_engine).origin for said, no_engine, _ in chosen]
    assert found == [origin for _, _, origin in chosen]


def test_the_header_says_why_and_holds_no_address() -> None:
    assert str(choose(VARIABLE, {}, lambda: "none answers")) == "embedded (none answers)"
    assert "geheim" not in str(choose(VARIABLE, {VARIABLE: "postgresql://me:geheim@there/db"}, never))


def test_a_password_leaves_the_address_and_is_found_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    server = PostgresAddress("postgresql://me:ge%40heim@there:1/db?sslmode=disable")
    assert server.url == "postgresql://me@there:1/db?sslmode=disable"
    with server.login():
        assert os.environ["PGPASSWORD"] == "ge@heim"
    assert "PGPASSWORD" not in os.environ


@pytest.mark.slow
@pytest.mark.postgres
def test_a_server_that_outlives_the_run_keeps_none_of_our_databases(any_postgres: PostgresAddress) -> None:
    def databases() -> set[str]:
        with psycopg.connect(any_postgres.url) as connection:
            return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}

    before = databases()
    with postgres_at(any_postgres.url, outlives_us=True) as ours:
        first, again, other = (ours.database(name) for name in ("one", "one", "two"))
        assert first == again != other
        assert len(databases() - before) == 2
        with closing(psycopg.connect(first)):
            ours.drop_databases()
    assert databases() == before


@pytest.mark.slow
@pytest.mark.kafka
def test_tests_that_call_a_topic_alike_get_one_each(any_kafka: KafkaAddress) -> None:
    one, other = any_kafka.topic("one"), any_kafka.topic("one", partitions=2)
    admin = AdminClient({"bootstrap.servers": any_kafka.servers, "log_level": 0})
    assert [len(admin.list_topics(topic, timeout=10).topics[topic].partitions) for topic in (one, other)] == [1, 2]


def test_the_want_of_an_engine_is_a_skip_unless_containers_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    demand(None)
    with pytest.raises(pytest.skip.Exception, match="none answers"):
        demand("none answers")
    monkeypatch.setenv(REQUIRED, "1")
    demand(None)
    with pytest.raises(pytest.fail.Exception, match="none answers"):
        demand("none answers")


def test_the_compose_file_pins_its_images() -> None:
    images = [image(service) for service in ("postgres", "kafka")]
    assert [one for one in images if not one.partition(":")[2][:1].isdigit()] == [], "would be whatever is newest"
