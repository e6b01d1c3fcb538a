"""The Delta sink passes the conformance suite: appending through the driver or through executors, and merging."""

from pathlib import Path

import pytest
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.variants import lengthy_claims_are_slow

from onceonly_sinks.conformance import SinkConformance


class TestDeltaAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path)


@lengthy_claims_are_slow
class TestDeltaAppendThroughExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, driver_limit=0)


@lengthy_claims_are_slow
class TestDeltaMerge(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, key="id", sequence="step")
