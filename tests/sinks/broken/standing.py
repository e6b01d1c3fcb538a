"""Broken sinks that are put at epochs whose rows they do not hold, or are not put where they are."""

from __future__ import annotations

from collections.abc import Mapping

from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance.claims_reset import (
    a_sink_stands_at_no_epoch_but_that_of_its_rows,
    a_sink_stands_elsewhere_under_a_greater_fence_alone,
    a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones,
)
from onceonly_sinks.delta import DeltaSink


class TakesMarkersForRows(DeltaSink):
    """What its newest marker says, its target holds."""

    def content_epoch(self) -> int | None:
        return self.look().epoch


class InstallsAlone(DeltaSink):
    """Takes the fence, and stands where it stood."""

    def reset_to(self, fence: Fence, epoch: int) -> None:
        self.install(fence)


class StandsUnderAnyFence(DeltaSink):
    """Where it is fenced already, it takes that for done."""

    def reset_to(self, fence: Fence, epoch: int) -> None:
        try:
            super().reset_to(fence, epoch)
        except Superseded:
            return


STANDS: Mapping[type[DeltaSink], set[str]] = {
    TakesMarkersForRows: {a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones.__name__},
    InstallsAlone: {
        a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones.__name__,
        a_sink_stands_at_no_epoch_but_that_of_its_rows.__name__,
        a_sink_stands_elsewhere_under_a_greater_fence_alone.__name__,
    },
    StandsUnderAnyFence: {a_sink_stands_elsewhere_under_a_greater_fence_alone.__name__},
}
"""With the claims that catch them."""
