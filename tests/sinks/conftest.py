"""One embedded Postgres for all tests of this folder; each test that asks gets an empty database."""

from collections.abc import Iterator

import psycopg
import pytest

from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres

_EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')
                AND NOT starts_with(nspname, 'pg_temp') AND NOT starts_with(nspname, 'pg_toast') LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def _database(postgres: EmbeddedPostgres) -> str:
    return postgres.database("tests")


@pytest.fixture
def dsn(postgres: EmbeddedPostgres, _database: str) -> str:
    if not postgres.running:
        postgres.start()
    # Emptied, not made anew: a fresh database costs more than most tests here, and another from a template, 40 ms.
    with psycopg.connect(_database, autocommit=True) as connection:
        connection.execute(_EMPTY)
    return _database
