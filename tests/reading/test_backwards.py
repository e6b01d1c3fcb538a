"""A window at a position is read from the newest epoch back: it is what the whole history says, and costs no more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.reading.writing import Writer

from onceonly.event_time import TimeReader
from onceonly.event_time.marker_sources import OfSink, placed
from onceonly.machine.completeness import window_at
from onceonly.machine.writer_progress import WriterSet
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink, MemoryStore


class Watched(MemorySink):
    """A store that says how many epochs were asked of it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.read: list[int] = []

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        found = list(super().history(after))
        self.read.append(len(found))
        return iter(found)


@pytest.mark.parametrize(
    ("seed", "epochs"), [(0, 60), *(pytest.param(seed, 100, marks=pytest.mark.lab) for seed in range(4))]
)
def test_whatever_the_position_the_window_is_what_the_whole_history_says(seed: int, epochs: int) -> None:
    print(f"seed {seed}")
    draw, store, both = random.Random(seed), MemoryStore("clicks"), WriterSet(("web", "app"))
    writers = [Writer(name, MemorySink(store=store), both) for name in both.declared]
    for number in range(1, epochs):
        one, other = draw.sample(writers, 2)
        # One writer is silent for a long stretch: what is read of it must still reach down to its last epoch.
        one = writers[0] if 10 < number < epochs * 2 // 3 else one
        one.write(number, noted=number, sees=[other] if draw.random() < 0.7 and other is not one else [])
    source = OfSink(MemorySink(store=store))
    every = [pair for name in both.declared for pair in source.all(name, None)[0]]
    reader = TimeReader("web", MemorySink(store=store))
    last = max(place for _, receipt in every if isinstance(place := receipt.at("entry"), int))
    for entry in range(last + 2):
        position = {"entry": entry}
        assert reader.time_window(position) == window_at(placed(every, position), position)


def test_a_position_near_the_end_reads_as_few_epochs_of_an_old_table_as_of_a_young_one() -> None:
    store = MemoryStore("clicks")
    web, watched = Writer("web", MemorySink(store=store)), Watched(store=store)
    reader, most = TimeReader("web", watched), []
    for number in range(1, 241):
        place = dict(web.write(number, noted=number).position)
        if number % 80 == 0:
            watched.read.clear()
            assert reader.time_window(place).lower == number
            most.append(sum(watched.read))
    assert most[0] == most[-1] <= 20, most
