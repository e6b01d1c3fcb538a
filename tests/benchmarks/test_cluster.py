"""The page of the cluster: processor time by row, on two workers by that on one in the same round."""

from __future__ import annotations

from benchmarks.cluster import DELTA, KAFKA, POSTGRES, Ran, page

ABOUT = {"date": "today", "cores": 2, "cpu": "some", "pyspark": "4.2.0"}


def test_the_page_compares_workers_within_a_round() -> None:
    one = [Ran(10.0, cpu, 1.0) for cpu in (4.0, 2.0, 3.0)]
    two = [Ran(5.0, cpu, 2.0) for cpu in (4.0, 3.0, 3.3)]
    found = {(sink, workers): ran for sink in (KAFKA, POSTGRES, DELTA) for workers, ran in ((1, one), (2, two))}
    lines = page(found, 1_000_000, 3, ABOUT).splitlines()
    assert "| KafkaSink | 1 | 10.0 | 100,000 | 3.0 | 1.0 |  |" in lines
    assert "| KafkaSink | 2 | 5.0 | 200,000 | 3.3 | 2.0 | **1.10** (1.00..1.50) |" in lines
