"""The page of the copies from topic to topic: medians of rounds, and quotients within a round."""

from __future__ import annotations

from benchmarks.k2k import FLINK_USUAL, OURS, SPARK, Copied, page


def test_the_page_compares_peers_within_a_round() -> None:
    ours = [Copied(seconds, 400_000, 1.5, 4.0, 1.0) for seconds in (10.0, 8.0, 12.0)]
    flink = [Copied(seconds, 300_000, 2.5, 6.0, 1.0) for seconds in (20.0, 12.0, 12.0)]
    text = page({OURS: ours, FLINK_USUAL: flink, SPARK: []}, 2_000_000, 3)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert rows[OURS] == "| KafkaSink | exactly once | 10.0 | 200,000 | 400,000 | 1.5 s | 2.0 | 0.5 |  |"
    assert rows[FLINK_USUAL].endswith("| 3.0 | 0.5 | 1.50x as fast (1.00..2.00) |")
    assert SPARK not in rows
