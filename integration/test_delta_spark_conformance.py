"""Spark's committer passes the claims in which it could differ from deltalake's; so does a table only Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.delta_by_spark import CLUSTERED, SparkHarness

from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.harness import Claim
from onceonly_lab.conformance.suite import CLAIMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TELLING = [
    claim
    for claim in CLAIMS
    if claim.name
    in {
        "a_lost_answer_to_an_install_is_found_by_installing_again",
        "a_marker_comes_back_exactly",
        "an_empty_epoch_leaves_a_marker",
        "a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones",
        "a_zombie_does_not_repeat_what_its_successor_wrote",
        "looking_up_finds_a_commit_whose_answer_was_lost",
        "one_of_racing_commits_lands",
        "the_cut_of_a_batch_decides_nothing",
    }
]


def _run(claim: Claim, harness: SinkHarness) -> None:
    claim.check(harness, seconds=300)


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_appending_through_spark(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", committer="spark"))


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_merging_through_spark(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", committer="spark", key="id", sequence="step"))


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_a_table_that_only_spark_writes(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", CLUSTERED))
