"""Two writers of one table, both really killed: what is called complete is there, whenever somebody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.jobs import TABLE, Job, make_sink
from integration.processes import Drivers, until, was_killed
from integration.stage import ROWS, Inbox, rows_in
from integration.targets import PostgresTarget

from onceonly.event_time import TimeReader
from onceonly.faults import Point
from onceonly_sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres]

WRITERS = ("web", "app")
DEATHS = [f"{Point.INTEND_AFTER}:killgroup", f"{Point.STAGE_AFTER}:killgroup", f"{Point.COMMIT_SENT}:killgroup"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:2", f"{Point.COMMIT_AFTER}:killgroup", f"{Point.RECORD_BEFORE}:killgroup"]
ALONE = [one for one in DEATHS if "stage" not in one and not one.endswith(":2")]
"""Where the writer of one sink can die: it stages nothing."""

DEATHS_OF_ANY = [
    f"{Point.PREPARE_AFTER}:killgroup",
    f"{Point.COMMIT_SENT}:killgroup",
    f"{Point.COMMIT_AFTER}:killgroup",
]
"""Where a writer dies, however many sinks it has."""

_COMPLETE = f"""
SELECT w.lower, (SELECT count(*) FROM {TABLE} WHERE id < w.lower)
FROM onceonly.time_window w WHERE w.target = '{TABLE}'::regclass
"""


class Seen:
    """What readers were told, each time of one snapshot with the rows."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.lower = 0

    def look(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(_COMPLETE).fetchone()
        assert found is not None
        lower, rows = found
        if lower is None:
            assert self.lower == 0
            return
        assert lower >= self.lower
        assert rows == len(WRITERS) * lower, "each writer has a row of each number"
        self.lower = lower


def test_no_kill_of_either_writer_calls_complete_what_is_not_there(
    tmp_path: Path, pg: PostgresTarget, warm_rivals: Drivers
) -> None:
    inboxes = {name: Inbox(tmp_path / f"in-{name}") for name in WRITERS}
    table = str(tmp_path / "table")

    def job(name: str, **more: Any) -> Job:
        place = (str(inboxes[name].folder), str(tmp_path / f"ck-{name}"), str(tmp_path / f"{name}.db"))
        return Job(name, "postgres", pg.dsn, *place, writers=WRITERS, **more)

    web, app = job("web"), job("app", also=(("delta", table),))
    seen = Seen(pg.dsn)
    for inbox in inboxes.values():
        inbox.fill(2)
    warm_rivals.finish(web)
    seen.look()
    assert seen.lower == 0, "app was declared, and has not said anything"
    warm_rivals.finish(app)
    seen.look()
    killed = []
    for number, fault in enumerate(DEATHS):
        inboxes["web"].fill(2 * number + 4)
        inboxes["app"].fill(2 * number + 3)
        one = warm_rivals.start(app, fault=fault)
        other = warm_rivals.start(web, fault=ALONE[number % len(ALONE)])
        assert was_killed(one), f"{fault}: {one.last_words()}"
        killed.append(was_killed(other))
        seen.look()
    assert sum(killed) > len(DEATHS) // 2, killed
    for job_ in (web, app, web):
        warm_rivals.finish(job_)
        seen.look()
    assert seen.lower == ROWS * inboxes["app"].files - 1
    with TimeReader("app", DeltaSink(table)) as reader:
        # The table that one of them writes alone says the same of the dataset: it is in the epoch, not in the sink.
        assert reader.time_window().lower == seen.lower


# ---- one table of Delta, one topic, or both, by both writers


class Shared:
    """Places that both writers write to, and what readers were told there."""

    def __init__(self, root: Path, places: tuple[tuple[str, str], ...]) -> None:
        self.places, self.inboxes = places, {name: Inbox(root / f"in-{name}") for name in WRITERS}
        self.lower = dict.fromkeys(places, 0)
        self.jobs = [self._job(root, name) for name in WRITERS]

    def _job(self, root: Path, name: str) -> Job:
        (kind, target), *also = self.places
        place = (str(self.inboxes[name].folder), str(root / f"ck-{name}"), str(root / f"{name}.db"))
        return Job(name, kind, target, *place, writers=WRITERS, also=tuple(also))

    def look(self) -> None:
        """Nobody is told less than before, whichever writer and whichever place is asked."""
        for place in self.places:
            told = []
            for name in WRITERS:
                with TimeReader(name, make_sink(*place)) as reader:
                    told.append(reader.time_window().lower or 0)
            assert min(told) >= self.lower[place], f"{place[0]}: {told} after {self.lower[place]}"
            self.lower[place] = max(told)

    def hold(self) -> None:
        """What is called complete is there, of both writers: once no dead driver's transaction hides it any more."""
        for (kind, target), lower in self.lower.items():
            wanted = sorted(list(range(lower)) * len(WRITERS))
            until(lambda: [id_ for id_ in ids_in(kind, target) if id_ < lower] == wanted, f"{kind} shows it")  # noqa: B023


def ids_in(kind: str, target: str) -> list[int]:
    return sorted(id_ for id_, _ in rows_in(kind, target))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("kinds", [("delta",), ("kafka",), ("kafka", "delta")], ids="-".join)
def test_two_writers_of_a_topic_or_a_table_find_each_other_there_whoever_is_killed(
    kinds: tuple[str, ...], tmp_path: Path, any_kafka: Any, warm_rivals: Drivers
) -> None:
    topic = any_kafka.topic(f"of-two-{len(kinds)}")
    targets = {"delta": str(tmp_path / "table"), "kafka": f"{any_kafka.servers} {topic}"}
    shared = Shared(tmp_path, tuple((kind, targets[kind]) for kind in kinds))
    web, app = shared.jobs
    for number, fault in enumerate([None, *DEATHS_OF_ANY], start=1):
        for at, inbox in enumerate(shared.inboxes.values()):
            inbox.fill(2 * number + at)
        if fault:
            drivers = [warm_rivals.start(job, fault=fault) for job in shared.jobs]
            assert [was_killed(driver) for driver in drivers] == [True, True], fault
            shared.look()
        warm_rivals.finish(web)
        shared.look()
        warm_rivals.finish(app)
        shared.look()
        shared.hold()
    warm_rivals.finish(web)
    shared.look()
    least = min(inbox.files for inbox in shared.inboxes.values())
    assert set(shared.lower.values()) == {least * ROWS - 1}
    for kind, target in shared.places:
        every = [id_ for inbox in shared.inboxes.values() for id_ in range(inbox.files * ROWS)]
        assert ids_in(kind, target) == sorted(every), f"{kind}: each row once"
