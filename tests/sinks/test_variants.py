"""The table of what a variant of a sink can change: it names claims and classes, and broken twins are caught by it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.sinks.broken.twins import TWINS, Twin
from tests.sinks.delta_harness import DeletingDeltaHarness, DeltaHarness, NarrowDeltaHarness
from tests.sinks.duckdb_harness import DuckDBHarness
from tests.sinks.kafka_harness import KafkaHarness
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.postgres_harness import AppliedHarness, DeletingHarness, NarrowHarness, PostgresHarness
from tests.sinks.psycopg_sink import PsycopgHarness
from tests.sinks.variants import TOUCHED, asked_for_what_it_changes

from onceonly_lab.conformance import CLAIMS, Claim, SinkHarness, check
from onceonly_lab.conformance.claims_window_state import CLAIMS as RECALLING
from onceonly_sinks.delta import DeltaSink, Merge
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning
from onceonly_sinks.sql import SqlSink

PLAIN = {
    "TestTutorial",
    "TestMemoryAppend",
    "TestDeltaAppendThroughTheDriver",
    "TestAppendThroughTheDriver",
    "TestOneTopic",
}
"""Classes of tests that are asked for every claim, one for each sink; the tutorial's folder is, in one report."""

BY_HAND = Merge("t.id = s.id").when_matched_update().when_not_matched_insert()

DELTA: dict[str, tuple[type[DeltaHarness], dict[str, Any]]] = {
    "": (DeltaHarness, {}),
    "TestDeltaAppendThroughExecutors": (DeltaHarness, {"driver_limit": 0}),
    "TestDeltaMerge": (DeltaHarness, {"key": "id", "sequence": "step"}),
    "TestDeltaMergeByHand": (DeltaHarness, {"merge": BY_HAND}),
    "TestDeltaMergeWithADeleteColumn": (DeletingDeltaHarness, {"key": "id", "sequence": "step", "delete_flag": "gone"}),
    "TestDeltaAddingAColumn": (NarrowDeltaHarness, {"driver_limit": 0}),
}
POSTGRES: dict[str, tuple[type[PostgresHarness], dict[str, Any]]] = {
    "": (PostgresHarness, {"tuning": PostgresTuning(load="driver")}),
    "TestAppendByExecutors": (PostgresHarness, {"tuning": PostgresTuning(load="executors")}),
    "TestUpsertThroughTheDriver": (PostgresHarness, {"tuning": PostgresTuning(load="driver"), "key": "id"}),
    "TestUpsertByExecutors": (PostgresHarness, {"tuning": PostgresTuning(load="executors"), "key": "id"}),
    "TestApplyThroughTheDriver": (AppliedHarness, {"tuning": PostgresTuning(load="driver")}),
    "TestApplyByExecutors": (AppliedHarness, {"tuning": PostgresTuning(load="executors")}),
    "TestUpsertWithADeleteColumn": (
        DeletingHarness,
        {"tuning": PostgresTuning(load="driver"), "key": "id", "sequence": "step", "delete_flag": "gone"},
    ),
    "TestAddingAColumn": (NarrowHarness, {"tuning": PostgresTuning(load="driver")}),
    "TestAnotherDriver": (PsycopgHarness, {}),
}
MEMORY: dict[str, dict[str, Any]] = {
    "": {},
    "TestMemoryUpsert": {"key": ("id",)},
    "TestMemoryUpsertWithADeleteColumn": {"key": ("id",), "sequence": "step", "delete_flag": "gone"},
}
"""How the harness of a variant is made; of the plain one under the empty name."""

KEYED = {claim.name for claim in RECALLING}
"""Claims that write the state of windows. It is a table with a key, made by the same class: a sink that is wrong with a
key is wrong there in each of its variants."""

DRIVERS_DIE = "killed"
"""In the names of claims that take most of the time."""


def harness_of(sink: type[Any], variant: str, request: pytest.FixtureRequest) -> Callable[[], SinkHarness]:
    """Makes fresh targets of a sink in one of its variants."""
    if issubclass(sink, DeltaSink):
        delta, options = DELTA[variant]
        folder = request.getfixturevalue("tmp_path")
        return lambda: delta(_made(folder / uuid4().hex), sink=sink, **options)
    if variant == "TestDuckDB":
        return lambda: DuckDBHarness(sink)
    if issubclass(sink, PostgresSink | SqlSink):
        postgres, options = POSTGRES[variant]
        dsn = request.getfixturevalue("postgres").database("twins")
        return lambda: postgres(dsn, sink=sink, **options)
    if issubclass(sink, KafkaSink):
        kafka = request.getfixturevalue("kafka")
        return lambda: KafkaHarness(kafka, by_column=bool(variant), sink=sink)
    return lambda: MemoryHarness(sink, **MEMORY[variant])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def failing(make: Callable[[], SinkHarness], claims: list[Claim]) -> dict[str, str]:
    """The claims that a sink breaks, each with the evidence."""
    return {result.claim.name: result.evidence or "" for result in check(make, claims, seconds=60).failures}


def classes_of_tests() -> dict[str, list[str]]:
    """The classes made of the suite in this folder, each with its decorators."""
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    trees = [ast.parse(text) for text in texts if "SinkConformance):" in text]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        found.name: [ast.unparse(decorator) for decorator in found.decorator_list]
        for found in classes
        if any(ast.unparse(base).endswith("SinkConformance") for base in found.bases)
    }


def test_the_table_names_claims_with_a_reason() -> None:
    names = {claim.name for claim in CLAIMS}
    wrong = [(variant, name) for variant, claims in TOUCHED.items() for name in claims.keys() - names]
    silent = [(variant, name) for variant, claims in TOUCHED.items() for name, why in claims.items() if not why]
    assert (wrong, silent) == ([], [])


def test_every_class_of_the_suite_is_plain_or_in_the_table() -> None:
    classes = classes_of_tests()
    asked = {name for name, decorators in classes.items() if asked_for_what_it_changes.__name__ in decorators}
    slow = {name for name, decorators in classes.items() if "pytest.mark.slow" in decorators}
    assert asked == TOUCHED.keys()
    assert classes.keys() - asked - slow == PLAIN


def test_each_variant_with_a_way_of_going_wrong_of_its_own_has_a_twin() -> None:
    same_as_plain = {"TestDeltaPartitionedWithAnEpochColumn"}  # deltalake sorts rows into partitions, not the sink
    assert {twin.variant for twin in TWINS} == TOUCHED.keys() - same_as_plain


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_twin_is_caught_by_claims_of_the_table(twin: Twin, request: pytest.FixtureRequest) -> None:
    assert twin.claims <= TOUCHED[twin.variant].keys()
    caught = failing(harness_of(twin.sink, twin.variant, request), [one for one in CLAIMS if one.name in twin.claims])
    assert caught.keys() == twin.claims, caught


@pytest.mark.slow
# Where it breaks, a broken sink may leave a session open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_twin_is_right_in_its_plain_variant_and_wrong_by_the_table_in_the_other(
    twin: Twin, request: pytest.FixtureRequest
) -> None:
    claims = [claim for claim in CLAIMS if DRIVERS_DIE not in claim.name]
    plain = {} if issubclass(twin.sink, SqlSink) else failing(harness_of(twin.sink, "", request), claims)
    caught = failing(harness_of(twin.sink, twin.variant, request), claims)
    assert plain.keys() <= KEYED, plain
    assert twin.claims <= caught.keys()
    assert twin.others or caught.keys() == twin.claims, caught
