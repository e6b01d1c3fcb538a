"""The Delta sink passes the conformance suite: appending through the driver or through executors, and merging."""

from pathlib import Path

import pytest
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.variants import asked_for_what_it_changes

from onceonly_lab.conformance import SinkConformance


class TestDeltaAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path)


@asked_for_what_it_changes
class TestDeltaAppendThroughExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, driver_limit=0)


@asked_for_what_it_changes
class TestDeltaMerge(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, key="id", sequence="step")
