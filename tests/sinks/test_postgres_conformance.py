"""The Postgres sink passes the whole suite, whatever it does with rows, through the driver and by executors."""

import pytest
from tests.sinks.postgres_harness import AppliedHarness, DeletingHarness, NarrowHarness, PostgresHarness
from tests.sinks.variants import BOTH_WAYS, asked_for_what_it_changes

from onceonly_lab.conformance import SinkConformance
from onceonly_lab.servers.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


class TestAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("driver"), load="driver")


@asked_for_what_it_changes
class TestAppendByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("executors"), load="executors")


@asked_for_what_it_changes
class TestUpsertThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("upsert_driver"), key="id", load="driver")


@asked_for_what_it_changes
class TestUpsertByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("upsert_executors"), key="id", load="executors")


@asked_for_what_it_changes
class TestApplyThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return AppliedHarness(postgres.database("apply_driver"), load="driver")


@asked_for_what_it_changes
class TestApplyByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return AppliedHarness(postgres.database("apply_executors"), load="executors")


@asked_for_what_it_changes
class TestUpsertWithADeleteColumn(SinkConformance):
    @pytest.fixture(params=BOTH_WAYS)
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        dsn = postgres.database("upsert_delete")
        return DeletingHarness(dsn, key="id", sequence="step", delete_flag="gone", load=request.param)


@asked_for_what_it_changes
class TestAddingAColumn(SinkConformance):
    @pytest.fixture(params=BOTH_WAYS)
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        return NarrowHarness(postgres.database("add_columns"), load=request.param)
