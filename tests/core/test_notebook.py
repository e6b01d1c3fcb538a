"""What a notebook shows: tables that need no style and no script, in which every text of a user is only text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from IPython.core.formatters import HTMLFormatter

from onceonly import exactly_once
from onceonly.api.wrapper import ExactlyOnce
from onceonly.machine.completeness import TimeWindow
from onceonly.reading import ReadPoint
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.epoch_time import WriterProgress
from onceonly_sinks.memory import MemorySink

HOSTILE = '<script>alert("1 & 2")</script>'
RECEIPT = Receipt(HOSTILE, 3, "c" * 64, "table-1", (("version", 12),), 1_234_567)


class Seen(HTMLParser):
    """Elements with attributes, and the text between them."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(value: object) -> Seen:
    """What IPython would send to the page."""
    markup = HTMLFormatter()(value)
    assert markup is not None
    assert len(markup) < 5_000
    seen = Seen(markup)
    assert seen.open == []
    assert set(seen.tags) <= {"table", "tr", "th", "td", "p"}
    assert seen.attributes <= {"colspan"}
    return seen


def written() -> ExactlyOnce:
    wrapped = exactly_once(MemorySink(id="memory:orders"), name="orders")
    wrapped._epochs.last_receipts = type(wrapped.last_receipts)((RECEIPT,))
    return wrapped


def test_a_receipt_is_a_table_of_what_the_sink_answered() -> None:
    seen = shown(RECEIPT)
    assert {HOSTILE, "3", "1234567", "version 12", "table-1", "c" * 64} <= set(seen.text)


def test_the_newest_receipts_are_a_table_with_a_row_for_each_sink() -> None:
    wrapped = written()
    assert wrapped.last_receipts == (RECEIPT,)
    seen = shown(wrapped.last_receipts)
    assert seen.tags.count("tr") == 2
    assert {"sink", "epoch", "rows", "position", HOSTILE, "version 12"} <= set(seen.text)


def test_without_an_epoch_there_is_nothing_to_show_but_that() -> None:
    assert shown(exactly_once(MemorySink()).last_receipts).text == ["no epoch was written in this process yet"]


def test_a_read_point_is_shown_as_the_place_in_each_sink() -> None:
    seen = shown(ReadPoint("orders", 3, "c" * 64, (RECEIPT,)))
    assert "orders, epoch 3" in seen.text
    assert {HOSTILE, "version 12"} <= set(seen.text)


def test_a_window_is_shown_with_every_writer_it_knows_of() -> None:
    seen = shown(TimeWindow(7, 9, without=(HOSTILE,), at=(WriterProgress(HOSTILE, 3, 5, 0),), unit="integer"))
    assert {"lower", "7", f"{HOSTILE}: epoch 3, noted 5"} <= set(seen.text)


@pytest.mark.parametrize("name", ["memory:orders", HOSTILE])
def test_the_promise_is_a_text_and_in_a_notebook_a_table(name: str) -> None:
    said = exactly_once(MemorySink(id=name)).explain()
    assert isinstance(said, str)
    assert said.startswith(f"{name} holds every row of the stream once.\n  because  ")
    seen = shown(said)
    assert f"{name} holds every row of the stream once." in seen.text
    assert {"because", "readers"} <= set(seen.text)
    assert [word for line in said.splitlines() for word in line.split()] == " ".join(seen.text).split()


def test_a_wrapper_shows_its_promise_and_then_what_was_written() -> None:
    seen = shown(written())
    assert "memory:orders holds every row of the stream once." in seen.text
    assert HOSTILE in seen.text
