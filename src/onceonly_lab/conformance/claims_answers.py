"""Claims: members of a sink's base classes answer, where the harness lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onceonly.protocol import Receipt
from onceonly.protocol.health import UNOBSERVED
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import PIPELINE, Scenario, expect

ANSWERS: Mapping[str, Callable[[Any, Receipt], bool]] = {
    "content_epoch": lambda sink, newest: sink.content_epoch() == newest.epoch,
    "read_by_epoch": lambda sink, newest: {epoch for epoch, _ in sink.read_by_epoch((1, newest.epoch)) or ()} == {1, 2},
    "read_current": lambda sink, newest: {epoch for epoch, _ in sink.read_current((1, newest.epoch)) or ()} == {1, 2},
    "total": lambda sink, newest: (rows_total := sink.total()) is not None and rows_total.rows > newest.rows,
    "location_columns": lambda sink, _: bool(sink.location_columns),
    "read_at": lambda sink, newest: sink.read_at(newest).num_rows > newest.rows,
    "read_changes": lambda sink, newest: sink.read_changes(newest).num_rows > newest.rows,
    "select_at": lambda sink, newest: bool(sink.select_at(newest)),
    "identity_now": lambda sink, newest: sink.identity_now(newest.identity) == newest.identity,
    "seen_ids_store": lambda sink, _: sink.seen_ids_store(60) is not None,
    "window_store": lambda sink, _: sink.window_store(separate=True) is not None,
    "place": lambda sink, _: bool(sink.place()),
    "examine": lambda sink, _: sink.examine(UNOBSERVED) is not None,
    "pipelines": lambda sink, _: PIPELINE in sink.pipelines(),
    "newest_markers": lambda sink, newest: newest.epoch in {marker.epoch.number for marker in sink.newest_markers()},
    "source_identity": lambda sink, _: bool(sink.source_identity()),
}
"""Members that a harness may list, each with the check of its answer after two epochs with rows."""


def members_that_the_harness_lists_answer(harness: SinkHarness) -> None:
    """Each member of a base class that the harness lists answers for a target with two epochs."""
    if not harness.answers:
        raise NotTested("The harness lists no member of a base class: it has no answers.")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        reader = story.reader()
        *_, (_, newest) = reader.history()
        silent = [member for member in sorted(harness.answers) if not ANSWERS[member](reader, newest)]
        expect(not silent, f"After two epochs no answer, or a wrong one, of: {', '.join(silent)}.")


CLAIMS = claims_of(members_that_the_harness_lists_answer)
