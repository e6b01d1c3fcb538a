"""Many random schedules on real stores, judged one by one: the same schedules that level L1 draws."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from onceonly.faults import Point
from onceonly_lab.checker import Judgement, Verdict, judge
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.history import Situation
from onceonly_lab.schedule import Action
from onceonly_lab.stores.ground import Ground
from onceonly_lab.stores.play import Played, play


@dataclass
class Ran:
    """What many schedules showed.

    Attributes:
        first: seed of the first.
        schedules: how many were played.
        seconds: of the clock.
        passed: how often each point was passed.
        acted: how often each action came to act at each point.
        reached: how many runs went through each situation.
        refused: why runs ended before all input was taken, with how many.
        failed: the first that is not clean; ``None`` if all are.
    """

    first: int
    schedules: int = 0
    seconds: float = 0.0
    passed: Counter[Point] = field(default_factory=Counter[Point])
    acted: Counter[tuple[Point, Action]] = field(default_factory=Counter[tuple[Point, Action]])
    reached: Counter[Situation] = field(default_factory=Counter[Situation])
    refused: Counter[str] = field(default_factory=Counter[str])
    failed: tuple[Played, Judgement] | None = None

    @property
    def rate(self) -> float:
        """Schedules a minute."""
        return 60 * self.schedules / max(self.seconds, 1e-9)

    @property
    def missing(self) -> tuple[Situation, ...]:
        """Situations that no run went through: without them the runs prove little."""
        return tuple(one for one in Situation if not self.reached[one])


def run(first: int, count: int, ground: Ground, tell: Callable[[Ran], None] = lambda _: None) -> Ran:
    """Play the schedules of seeds from ``first`` on, until one is not clean.

    Args:
        first: seed.
        count: how many.
        ground: the servers.
        tell: hears after each schedule what all of them showed so far.

    Raises:
        Stuck: a driver hangs; a note says with which seed.
    """
    ran, began = Ran(first), time.monotonic()
    for seed in range(first, first + count):
        try:
            played = play(draw(seed).alone, ground)
        except Exception as failure:
            failure.add_note(f"while the schedule of seed {seed} was played")
            raise
        judgement = judge(played.history)
        ran.schedules += 1
        ran.passed += played.passed
        ran.acted.update((fault.point, fault.action) for fault in played.acted)
        ran.reached.update(judgement.reached)
        ran.refused.update([played.refusal] if played.refusal else [])
        ran.seconds = time.monotonic() - began
        tell(ran)
        if judgement.verdict is not Verdict.CLEAN:
            ran.failed = (played, judgement)
            break
    return ran


def lines(ran: Ran) -> Iterator[str]:
    """A report, line by line."""
    yield (
        f"{ran.schedules:,} schedules from seed {ran.first} on real stores, {ran.seconds:.0f} s, "
        f"{ran.rate:.0f} schedules a minute"
    )
    actions: Counter[Action] = Counter()
    for (_, action), times in ran.acted.items():
        actions[action] += times
    yield "acted: " + ", ".join(f"{action} {times:,}" for action, times in actions.most_common())
    yield "reached: " + ", ".join(f"{one} {ran.reached[one]:,}" for one in Situation)
    if ran.refused:
        yield "ended by a refusal: " + ", ".join(f"{code} {times:,}" for code, times in ran.refused.most_common())
    if ran.failed is None:
        yield "the checker finds nothing"
        return
    played, judgement = ran.failed
    yield f"{judgement.sentence} with seed {played.schedule.seed}:"
    for finding in judgement.findings:
        yield f"  {finding.anomaly} {finding.sink or ''} epoch {finding.epoch}: {finding.what}, lines {finding.lines}"
    yield played.schedule.text


def document(ran: Ran) -> dict[str, Any]:
    """The same as values."""
    failed = ran.failed
    return {
        "level": "L2",
        "seed": ran.first,
        "schedules": ran.schedules,
        "seconds": round(ran.seconds, 1),
        "per_minute": round(ran.rate, 1),
        "passed": {str(point): times for point, times in ran.passed.items()},
        "acted": [{"point": point, "action": action, "times": times} for (point, action), times in ran.acted.items()],
        "reached": {str(one): ran.reached[one] for one in Situation},
        "refused": dict(ran.refused),
        "judgement": failed and failed[1].to_json(),
        "schedule": failed and failed[0].schedule.to_json(),
    }
