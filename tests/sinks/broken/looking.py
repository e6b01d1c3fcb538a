"""Broken sinks that look wrongly."""

from tests.sinks.broken.registry import caught_by

from onceonly.protocol import Peek
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.memory import MemorySink


@caught_by("a_look_shows_the_newest_marker", "a_look_changes_nothing")
class LooksAway(MemorySink):
    """A look never finds anything."""

    def look(self) -> Peek:
        return Peek(None, 0)


@caught_by("a_look_changes_nothing", "a_look_shows_the_newest_marker")
class LooksUnderAFence(MemorySink):
    """A look takes the fence first, to read undisturbed."""

    def look(self) -> Peek:
        standing = self.fence()
        if standing:
            self.install(Fence(standing.generation + 1, "who looks"))
        return super().look()
