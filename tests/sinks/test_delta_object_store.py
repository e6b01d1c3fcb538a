"""The Delta sink on a store that speaks S3: an answer that is lost on the way back from a conditional PUT."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.sinks.object_store import BUCKET, ObjectStore

from onceonly.protocol import OutcomeUnknown
from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import DeltaSink

URI = f"s3://{BUCKET}/rows"
LOG_ENTRY = ".json"


class StoreHarness(SinkHarness):
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def connect(self) -> DeltaSink:
        return DeltaSink(URI, storage_options=self._store.options)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(URI, storage_options=self._store.options).to_pyarrow_table().to_pylist()
        return rows


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


# In both ways deltalake puts the entry again by itself, and finds its own in the way: a conflict with itself.
@pytest.mark.parametrize("instead", [None, HTTPStatus.INTERNAL_SERVER_ERROR], ids=["cut", "error"])
def test_a_commit_whose_answer_the_object_store_lost_is_there_once(
    store: ObjectStore, instead: HTTPStatus | None
) -> None:
    with Scenario(StoreHarness(store)) as story:
        driver = story.driver()
        first, planned = driver.writes(), driver.plan()
        prepared = driver.prepares(planned)
        with store.losing(LOG_ENTRY, instead), pytest.raises(OutcomeUnknown):
            driver.commits(planned, prepared)
        receipt = driver.looks_up(planned)
        assert receipt is not None
        assert receipt.chain == planned.epoch.chain
        story.holds(first, planned, driver.writes())
